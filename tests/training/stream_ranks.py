"""The order that a trainer makes of its dataset, for test_sampler.py."""

from types import SimpleNamespace

from data_tools.formats.blended import BlendedDataset


def stream_of_a_blend(positions: int) -> tuple[list, list]:
    """(the samples at the first positions of a run, those of the blend's own epochs)"""
    from launch.checkpoint.data_ledger import Ledger
    from launch.training.data import sample_stream

    blend = BlendedDataset([range(40), range(500), range(90)], [0.2, 0.5, 0.3])
    args = SimpleNamespace(
        seed=3, per_device_train_batch_size=2, gradient_accumulation_steps=1, data_rank=0, data_ranks=1
    )
    stream = sample_stream(args, blend, Ledger.begin({}, 2, 1), positions // 2)
    own = [int(i) for epoch in range(3) for i in blend.epoch_order(3, epoch)]
    return [stream.sample_at(position) for position in range(positions)], own[:positions]
