"""Which sample is seen when, and by whom."""

import numpy as np

from launch.training.batches import PaddedShard, SampleStream


def stream(rank=0, ranks=1, micro_batch=2, accumulation=1, steps=10, samples=7, seed=5) -> SampleStream:
    return SampleStream(samples, seed, micro_batch, accumulation, rank, ranks, steps)


def test_the_order_is_that_of_numpys_generator_for_seed_and_epoch():
    order = [index for batch in stream(steps=7) for index in batch]
    assert order == [*np.random.RandomState([5, 0]).permutation(7), *np.random.RandomState([5, 1]).permutation(7)]


def test_a_dataset_may_have_an_order_of_its_own():
    def backwards(seed, epoch):
        return np.arange(7)[::-1] + 100 * seed + 10 * epoch

    own = SampleStream(7, 5, 1, 1, 0, 1, steps=9, epoch_order=backwards)
    assert [own.sample_at(position) for position in (0, 6, 8)] == [506, 500, 515]


def test_two_epochs_are_read_at_a_time_without_shuffling_again():
    """The thread that loads batches is ahead of the one that counts their samples."""
    asked = []

    def in_order(seed, epoch):
        asked.append(epoch)
        return np.arange(50) + 100 * epoch

    own = SampleStream(50, 5, 1, 1, 0, 1, steps=100, epoch_order=in_order)
    read = [own.sample_at(first + n) for n in range(50) for first in (0, 50)]
    assert read == [first + n for n in range(50) for first in (0, 100)]
    assert asked == [0, 1]


def test_a_run_reads_a_blend_in_the_order_of_its_shares(ranks):
    [(read, own)] = ranks(1, "tests.training.stream_ranks:stream_of_a_blend", 500)
    assert read == own and max(read) >= 203  # what the first epoch had no place for, too


def test_length_is_the_number_of_micro_batches_of_one_rank():
    assert len(stream(ranks=2, accumulation=3, steps=4)) == 12 == len(list(stream(ranks=2, accumulation=3, steps=4)))


def test_evaluation_covers_each_sample_once_and_all_ranks_run_equally_many_batches():
    shards = [list(PaddedShard(samples=11, micro_batch=2, data_rank=r, data_ranks=3)) for r in range(3)]
    assert {len(shard) for shard in shards} == {2}
    seen = [index for shard in shards for batch in shard for index in batch if index is not None]
    assert sorted(seen) == list(range(11))
    assert all(len(batch) == 2 for shard in shards for batch in shard)


def steps_of(streams: list[SampleStream], steps: int) -> list[list]:
    """What all ranks together see in each of so many steps from where the streams are, sorted."""
    batches = [iter(one) for one in streams]
    return [
        sorted(index for rank in batches for _ in range(streams[0].accumulation) for index in next(rank))
        for _ in range(steps)
    ]


def test_a_stream_goes_on_anywhere_on_any_number_of_ranks():
    """The same samples in each step as without the interruptions: global batch 8, epochs of 99 samples."""
    whole = steps_of([SampleStream(99, 5, 8, 1, 0, 1, steps=60)], 60)
    numbers, step, found = np.random.RandomState(0), 0, []
    while step < 60:
        ranks, micro_batch, accumulation = [(1, 8, 1), (2, 4, 1), (2, 2, 2), (4, 1, 2), (8, 1, 1)][numbers.randint(5)]
        streams = [
            SampleStream(99, 5, micro_batch, accumulation, rank, ranks, steps=60, first_step=step, start=8 * step)
            for rank in range(ranks)
        ]
        made = min(int(numbers.randint(1, 9)), 60 - step)
        found += steps_of(streams, made)
        assert streams[0].position(step + made) == 8 * (step + made)
        assert sum(1 for _ in streams[0]) == (60 - step) * accumulation
        step += made
    assert found == whole


def test_another_global_batch_goes_on_with_the_next_samples():
    before = steps_of([SampleStream(99, 5, 8, 1, 0, 1, steps=5)], 5)
    following = SampleStream(99, 5, 20, 1, 0, 1, steps=8, first_step=5, start=40)
    after = steps_of([following], 3)
    seen = [index for step in before + after for index in step]
    assert len(seen) == 100 and set(seen) == set(range(99))  # one of the next epoch


def test_nothing_before_the_start_is_asked_for():
    """Of a million samples the order of one epoch is made, whatever the position."""
    asked = []

    def epoch_order(seed: int, epoch: int) -> np.ndarray:
        asked.append(epoch)
        return np.arange(10**6)

    stream = SampleStream(
        10**6, 0, 8, 1, 0, 1, steps=10**6, epoch_order=epoch_order, first_step=300_000, start=2_400_000
    )
    assert next(iter(stream)) == list(range(400_000, 400_008)) and asked == [2]
