"""What a run reads: from the data flags to samples, and from samples to the batches of a rank."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import paddle

from data_tools.dialogues.datasets import Columns, Datasets, Survey, encode_survey, survey
from data_tools.dialogues.samples import sample_lines
from data_tools.formats.tokens.blend import find_corpora, open_splits
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.data_ledger import Ledger
from launch.checkpoint.ranks import first_on_rank_zero, rank
from launch.errors import UserError
from launch.families.encoding import check_vocabulary, encoding_of, template_lines
from launch.processes.orphans import be_data_worker
from launch.reporting.throughput import TimedLoader, TrainingClock
from launch.training.batches import PaddedDataset, PaddedShard, SampleStream


class TrainingData:
    """The samples of a run, in an order that depends on the data, the seed and what was consumed before.

    Attributes:
        train, valid: Datasets, None where the run does not need one.
        collate: Makes a batch of samples.
        padding: A sample whose labels count for nothing.
        ledger: What was consumed before, None without training.
        end: See SampleStream.
        mean_length: Tokens of a sample.
        lines: Printed about the data.
        passes: Steps that learn from a sample when it has been read.
        join: Set where each sample comes with values of its own (launch/training/precomputed.py); from (dataset,
            padding, collate) to such ones.
    """

    join: Callable[[Any, Any, Callable], tuple[Any, Any, Any]] | None = None
    passes = 1

    def __init__(
        self,
        train: Any,
        valid: Any,
        collate: Callable[[list], dict],
        padding,
        ledger: Ledger | None,
        args,
        steps: int,
        mean_length: float,
        end: int | None = None,
        epochs_requested: float = 1.0,
        lines: list[str] | None = None,
    ):
        self.train, self.valid = train, valid
        self.collate, self.padding = collate, padding
        self.steps = steps
        self.mean_length = mean_length
        self.epochs_requested = epochs_requested
        self.lines = lines or []
        self._ledger = ledger
        self._stream = sample_stream(args, train, ledger, steps, end) if ledger else None

    @property
    def ledger(self) -> Ledger:
        """Samples consumed before this run."""
        assert self._ledger is not None, "for training alone"
        return self._ledger

    @property
    def stream(self) -> SampleStream:
        """The samples to come, in order."""
        assert self._stream is not None, "for training alone"
        return self._stream

    @property
    def identity(self) -> dict:
        """The facts that the order of samples depends on."""
        return self.ledger.data[self.ledger.last.data]

    def step_text(self, global_batch: int) -> str:
        """Return the size of a step, for the line at the start."""
        raise NotImplementedError

    def tokens_until(self, step: int) -> int:
        """Return the tokens that all data ranks together have read before a step, 0 the first."""
        raise NotImplementedError

    def consumed_samples(self, step: int) -> int:
        """Return all samples consumed before a step, 0 the first."""
        return self.ledger.samples + self.stream.position(step) - self.stream.start

    def ledger_at(self, step: int) -> Ledger:
        """Return the ledger of all samples consumed before a step."""
        return self.ledger.at(step, self.stream.position(step), self.tokens_until(step))

    def train_loader(self, workers: int, clock: TrainingClock) -> TimedLoader:
        """Return batches of this rank, in the order of training."""
        loader = self._loader(self.train, self.stream, num_workers=workers, worker_init_fn=be_data_worker)
        return TimedLoader(loader, clock)

    def evaluation_loader(self, dataset, args) -> paddle.io.DataLoader:
        """Return batches of this data rank's share; equally many on all ranks."""
        return self._loader(dataset, evaluation_batches(dataset, args))

    def _loader(self, dataset, sampler, **options) -> paddle.io.DataLoader:
        samples, collate = self._batched(dataset)
        return paddle.io.DataLoader(samples, batch_sampler=sampler, collate_fn=collate, **options)

    def first_batch(self, samples: int) -> dict:
        """Return the first samples of training, as arrays."""
        padded, collate = self._batched(self.train)
        return collate([padded[i if i < len(self.train) else None] for i in range(samples)])

    def _batched(self, dataset) -> tuple[Any, Any]:
        """Return (samples, collate), typed loosely: Paddle requires only that they can be called so."""
        parts = (dataset, self.padding, self.collate)
        dataset, padding, collate = self.join(*parts) if self.join else parts
        return PaddedDataset(dataset, padding), collate


def evaluation_batches(dataset, args) -> PaddedShard:
    """Return the evaluation batches of this data-parallel rank."""
    return PaddedShard(len(dataset), args.per_device_eval_batch_size, args.data_rank, args.data_ranks)


def run_length(ledger: Ledger | None, samples: Any, args) -> tuple[int, int | None, float]:
    """Return (the last step, SampleStream's end, epochs requested) by --max_steps or --num_train_epochs."""
    if ledger is None or args.max_steps > 0:
        return args.max_steps, None, 1.0
    end = math.ceil(args.num_train_epochs * len(samples))
    steps = ledger.last.last_step + math.ceil((end - ledger.last.stop) / args.global_batch)
    return steps, end, args.num_train_epochs


def sample_stream(args, dataset, ledger: Ledger, steps: int, end: int | None = None) -> SampleStream:
    """Return the order of training from the ledger's end, for this rank's place in the layout.

    A blend has an order of its own.

    Args:
        end: See SampleStream.
        args: The flags.
        dataset: The samples.
        ledger: Consumed samples.
        steps: The last one.
    """
    return SampleStream(
        samples=len(dataset),
        epoch_order=getattr(dataset, "epoch_order", None),
        seed=args.seed,
        micro_batch=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        data_rank=args.data_rank,
        data_ranks=args.data_ranks,
        steps=steps,
        end=end,
        first_step=ledger.last.last_step,
        start=ledger.last.stop,
    )


# ---- corpora of token ids


def open_data(data_args, training_args, vocab_size: int) -> tuple[Any, Any]:
    """Open the corpora and build (or find cached) their sample indices, on rank 0 first.

    Return the datasets to train and to evaluate on, of {"input_ids", "labels"}, int64 [sequence_length]; None where the
    run does not need one.

    Rank 0 also reads every token id once, to check it against the vocabulary.

    Raises:
        UserError: If files are missing, damaged or hold ids beyond the vocabulary, or a split is empty.
    """
    names = [name for name, needed in (("train", training_args.do_train), ("valid", training_args.do_eval)) if needed]
    train, valid, _ = first_on_rank_zero(
        lambda: open_splits(
            " ".join(data_args.input_dir),
            data_args.split,
            data_args.max_seq_length,
            training_args.seed,
            cache_directory(data_args, training_args.output_dir),
            vocab_size if rank() == 0 else None,
            wanted=tuple(names),
        )
    )
    if valid is not None and 0 < data_args.max_eval_samples < len(valid):
        valid = FirstSamples(valid, data_args.max_eval_samples)
    return train, valid


def cache_directory(data_args, output_dir: str) -> Path:
    """Return the folder of sample indices.

    It is --data_cache, or index_cache beside the first corpus or, if that is read-only, in the output directory.
    """
    if data_args.data_cache:
        return Path(data_args.data_cache)
    _, prefix = find_corpora(" ".join(data_args.input_dir))[0]
    folder = Path(prefix).absolute().parent
    return (folder if os.access(folder, os.W_OK) else Path(output_dir)) / "index_cache"


class FirstSamples:
    """The first samples of a dataset."""

    def __init__(self, dataset, samples: int):
        self.dataset = dataset
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict:
        return self.dataset[index]

    def identity(self) -> dict:
        """Return the facts that the samples depend on."""
        return self.dataset.identity() | {"first": self.samples}


# ---- dialogues


def require_tokenizer(tokenizer):
    """Raise UserError where there is none."""
    if tokenizer is None:
        raise UserError("the model comes without a tokenizer: --tokenizer_name_or_path names the one it was made with.")
    return tokenizer


def open_dialogues(data_args, training_args, tokenizer, config, continuation: Continuation | None = None) -> Datasets:
    """Read and encode all dialogues, on rank 0 first.

    The tokenizer, which is saved with the result, then has the chat template of the training. A continued run that
    began before chats took the tokenizer's own template, which the identity of its data shows, keeps the family's.

    Raises:
        UserError: If files are missing or broken beyond what is allowed, or a token is beyond the vocabulary.
    """
    names = [name for name, needed in (("train", training_args.do_train), ("dev", training_args.do_eval)) if needed]
    columns = Columns(data_args.prompt_column, data_args.response_column)

    make_encoding = partial(encoding_of, data_args, tokenizer, config.to_dict())
    packed = data_args.max_length if data_args.zero_padding else None
    manifest = continuation.manifest if continuation else None
    before = manifest.data if manifest and not training_args.ignore_load_lr_and_optim else None

    def open_all() -> Datasets:
        paths = " ".join(data_args.dataset_name_or_path)
        found = survey(paths, tuple(names), columns, data_args.max_broken_rows)
        encoding = cache(make_encoding)
        datasets = encode_survey(found, encoding, packed)
        if before and data_args.chat_template is None and not _continues(datasets, before):
            of_family = cache(partial(make_encoding, family_template=True))
            earlier = encode_survey(found, of_family, packed)
            if _continues(earlier, before):
                datasets, encoding = earlier, of_family
        check_vocabulary((datasets.train, datasets.dev), config.vocab_size)
        return replace(datasets, lines=datasets.lines + _template_lines(found, datasets, encoding, tokenizer))

    return first_on_rank_zero(open_all)


def _continues(datasets: Datasets, before: dict) -> bool:
    """Return whether the training samples are the ones of a checkpoint's data."""
    assert datasets.train is not None, "only a run that trains continues a checkpoint"
    now = datasets.train.identity()
    return now == {key: before.get(key) for key in now}


def _template_lines(found: Survey, datasets: Datasets, encoding, tokenizer) -> list[str]:
    """Return lines for the user: the rows' template, and a sample as the model sees it."""
    kinds = sorted({rows.schema.chat for rows in found.files})
    lines = template_lines([encoding(kind).template for kind in kinds], tokenizer, trains=bool(found.train))
    shown: Any = datasets.train if datasets.train is not None else datasets.dev
    return lines + sample_lines(shown, partial(tokenizer.decode, clean_up_tokenization_spaces=False))
