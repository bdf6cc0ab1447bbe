"""The samples that a run has consumed, and so the position where its data continue. No Paddle.

The order of training is an endless stream of epochs that depends on the data and the seed alone. A ledger lists the
ranges of positions whose samples the weights have been trained on, and is saved with them: steps that a kill undid are
not in it, and their samples are read again.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from data_tools.formats.blended import BlendedDataset
from launch.errors import UserError

BATCH, DATA = "batch", "data"


@dataclass(frozen=True)
class Range:
    """Positions [start, stop) of the stream of data number `data`, consumed in steps first_step + 1 to last_step.

    Attributes:
        global_batch: Positions a step, on `data_ranks` ranks.
        tokens: In the samples of these positions.
        uneven: Steps read other numbers of positions than global_batch: those of a rollout are read before its first.
    """

    data: int
    first_step: int
    last_step: int
    start: int
    stop: int
    tokens: int
    global_batch: int
    data_ranks: int
    uneven: bool = False


@dataclass(frozen=True)
class Ledger:
    """The samples that a run has consumed.

    Attributes:
        data: Identities of its datasets, oldest first.
        ranges: In the order of training; the last one is growing.
    """

    data: tuple[dict, ...]
    ranges: tuple[Range, ...]

    @classmethod
    def begin(cls, data: dict, global_batch: int, data_ranks: int, uneven: bool = False) -> "Ledger":
        """Return the ledger of a run that begins. uneven: see Range."""
        return cls((data,), (Range(0, 0, 0, 0, 0, 0, global_batch, data_ranks, uneven),))

    @property
    def last(self) -> Range:
        """The growing range."""
        return self.ranges[-1]

    @property
    def samples(self) -> int:
        """Samples consumed, from all data."""
        return sum(entry.stop - entry.start for entry in self.ranges)

    @property
    def tokens(self) -> int:
        """Tokens consumed in all."""
        return sum(entry.tokens for entry in self.ranges)

    def at(self, step: int, stop: int, tokens: int) -> "Ledger":
        """Return the ledger after a step.

        Args:
            step: The number of the step.
            stop: The end of its last range.
            tokens: Consumed in all.
        """
        last = replace(self.last, last_step=step, stop=stop, tokens=self.last.tokens + tokens - self.tokens)
        return replace(self, ranges=(*self.ranges[:-1], last))

    def resumed(self, data: dict, global_batch: int, data_ranks: int, allowed: tuple[str, ...] = ()) -> "Ledger":
        """Return the ledger of a resumed run.

        Args:
            data: The identity of its dataset.
            global_batch: Samples of a step.
            data_ranks: Their number.
            allowed: The differences that are allowed, BATCH, DATA or both.

        Raises:
            UserError: If something else differs.
        """
        last, number = self.last, self.last.data
        if global_batch != last.global_batch and BATCH not in allowed:
            raise UserError(batch_changed(last.global_batch, global_batch, data_ranks))
        start, datasets = last.stop, self.data
        if data != self.data[number]:
            if DATA not in allowed:
                raise UserError(_data_changed(self.data[number], data))
            number, start, datasets = len(self.data), 0, (*self.data, data)
        if (number, global_batch, data_ranks) == (last.data, last.global_batch, last.data_ranks):
            return self
        step = last.last_step
        following = Range(number, step, step, start, start, 0, global_batch, data_ranks, last.uneven)
        return Ledger(datasets, (*self.ranges, following))

    def to_json(self) -> dict:
        """Return the ledger as a JSON-serializable dict."""
        return {"data": self.data, "ranges": [asdict(entry) for entry in self.ranges]}

    @classmethod
    def from_json(cls, value: dict) -> "Ledger":
        """Return the ledger of a dict."""
        return cls(tuple(value["data"]), tuple(Range(**entry) for entry in value["ranges"]))


def batch_changed(before: int, now: int, data_ranks: int) -> str:
    """Return the refusal of another global batch."""
    return (
        f"{now} samples a step, the run so far took {before}. Every sample would still be read once an epoch, but "
        "steps, warm-up and learning rate would mean something else from here on, and the losses would be of no "
        f"uninterrupted run. With {data_ranks} data ranks, --per_device_train_batch_size x "
        f"--gradient_accumulation_steps must be {before / data_ranks:g}; to go on all the same: --resume_changed batch."
    )


def _data_changed(before: dict, now: dict) -> str:
    flags = "--seed"
    if "dialogues" in before or any("dialogues" in part for part in before.get("parts", [])):
        flags = "--seed, --chat_template, --src_length and --max_length"
    return (
        f"the data are not those of the run so far: {', '.join(differences(before, now))}. They would be read from "
        f"their beginning, samples that were seen before among them. Give the former data and {flags}; to go on with "
        "these: --resume_changed data."
    )


def differences(before: dict, now: dict) -> Iterator[str]:
    """Yield each key in which the identities of two datasets differ, as "seed 2, was 1"."""
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            was, found = (str(identity.get(key, "nothing"))[:60] for identity in (before, now))
            yield f"{key} {found}, was {was}"


# ---- the proof that each sample is read once an epoch


def shuffled(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Return int64[samples]: the order of an epoch. NumPy guarantees the stream of RandomState, not default_rng's."""
    return np.random.RandomState([seed, epoch]).permutation(samples)


def epoch_order(data: dict, epoch: int) -> np.ndarray:
    """Return int64[samples]: the order in which an epoch reads a dataset, from its identity alone."""
    if "weights" in data:
        blend = BlendedDataset([range(part["samples"]) for part in data["parts"]], data["weights"])
        return blend.epoch_order(data["order_seed"], epoch)
    return shuffled(data["samples"], data["order_seed"], epoch)


@dataclass(frozen=True)
class Epoch:
    """An epoch of data number `data`: how many of its samples were read, and how often the most read sample was."""

    data: int
    epoch: int
    read: int
    samples: int
    most: int

    @property
    def ok(self) -> bool:
        """Whether each sample was read once at most."""
        return self.most <= 1 and self.read <= self.samples


def described(data: dict) -> str:
    """Return a dataset's identity, hashes shortened."""
    if "parts" in data:
        weights = " : ".join(map(str, data["weights"]))
        parts = "; ".join(described(part) for part in data["parts"])
        return f"a blend {weights} of {parts}; {data['samples']:,} samples an epoch, seed {data['order_seed']}"
    values = {key: value[:12] if isinstance(value, str) else value for key, value in data.items()}
    return ", ".join(f"{key} {value}" for key, value in values.items())


def epochs(ledger: Ledger) -> Iterator[Epoch]:
    """Count how often each sample was read in each epoch."""
    for number, data in enumerate(ledger.data):
        ranges = [entry for entry in ledger.ranges if entry.data == number and entry.start < entry.stop]
        samples = data["samples"]
        for epoch in range(-(-max((entry.stop for entry in ranges), default=0) // samples)):
            order, first = epoch_order(data, epoch), epoch * samples
            counts = np.zeros(int(order.max()) + 1, dtype=np.int64)
            for entry in ranges:
                read = order[max(entry.start - first, 0) : max(entry.stop - first, 0)]
                counts += np.bincount(read, minlength=counts.size)
            yield Epoch(number, epoch, int((counts > 0).sum()), samples, int(counts.max()))


def faults(ledger: Ledger) -> list[str]:
    """Return a line for each range that does not begin where the one before it, of the same data, ended."""
    found = []
    ends: dict[int, int] = {}
    step = 0
    for entry in ledger.ranges:
        expected = ends.get(entry.data, 0)
        if entry.start != expected:
            what = "read again" if entry.start < expected else "left out"
            low, high = sorted((entry.start, expected))
            found.append(
                f"data {entry.data + 1}, positions {low:,} to {high:,}: {what} after step {entry.first_step:,}"
            )
        if entry.first_step != step:
            found.append(f"steps {step:,} to {entry.first_step:,} are in no range")
        ends[entry.data], step = entry.stop, entry.last_step
    return found
