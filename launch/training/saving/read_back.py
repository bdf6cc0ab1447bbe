"""A saved adapter is read back from disk, every time: is it what was trained, and was it trained at all?

check = ReadBack(adapter, training_args)            # before training
check.check(directory, outcome, updated=True)       # after save_adapter(adapter, directory, training_args)
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from paddlenlp.peft import LoRAModel
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.adapters.add import PrefixModel
from launch.checkpoint.dtypes import convert
from launch.checkpoint.ranks import gather
from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.state.tensors import Held, held_tensors
from launch.checkpoint.weight_files import listed, read_indexed
from launch.errors import UserError
from launch.training.ranks import barrier, raise_first

# The largest difference allowed, relative to the largest number: computed twice, a card may add up in another order.
TOLERANCE = {"float32": 1e-6, "bfloat16": 1e-2, "float16": 1e-3}


class ReadBack:
    """Remembers how an adapter begins, by checksums. All methods are called by all ranks together."""

    def __init__(self, adapter: LoRAModel | PrefixModel, training_args):
        self.adapter, self.training_args = adapter, training_args
        self.dtype = str(adapter.model.config.dtype)
        self.beginning = {one.key: _checksum(convert(one.values(), one.dtype, "float32")) for one in self._held()}

    def check(self, directory: Path, outcome: Callable[[], np.ndarray], updated: bool) -> tuple[int, int, float]:
        """Fill the adapter from the files of `directory`: nothing may change.

        outcome: computes logits, or what the layout has instead, with the adapter as it is. updated: whether training
        must have changed it. Returns (tensors that training has changed, tensors, largest difference of outcomes).
        Raises UserError on all ranks where a file does not hold what was trained, or nothing was.
        """
        barrier()  # all files are written
        trained = outcome()
        changed, fault = set(), None
        try:
            changed = self._fill_from(directory)
        except (UserError, OSError, KeyError, ValueError) as error:
            fault = f"{directory}: the adapter does not read back as it was trained: {error}"
        raise_first(fault)
        again = outcome()
        difference = float(np.abs(again - trained).max(initial=0))
        if not difference <= TOLERANCE.get(self.dtype, 1e-6) * float(np.abs(trained).max(initial=1)):
            fault = f"{directory}: the adapter read back gives other logits, by up to {difference:.3g}. Save it again."
        everywhere = set().union(*gather(changed))
        if updated and not everywhere:
            fault = (
                f"{directory}: the adapter is as it was before training: no step has updated it. See loss and |g| in "
                "train_log.jsonl; a loss scale that never fits skips every step."
            )
        raise_first(fault)
        names = set().union(*gather({one.key for one in self._held()}))
        return len(everywhere), len(names), max(gather(difference))

    def _fill_from(self, directory: Path) -> set[str]:
        """The names of this rank's tensors that differ from their beginning. Raises UserError where one differs from
        what is trained here, or the configuration does."""
        self._compare_configuration(directory)
        stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
        changed, different = set(), []
        for one in self._held():
            whole = stored[one.key].open()
            if _checksum(replace(one.part, flat=None).of(whole)) != self.beginning[one.key]:
                changed.add(one.key)
            values = convert(one.part.of(whole), "float32", one.dtype)
            if not np.array_equal(values, one.values()):
                different.append(one.key)
            one.fill(values)
        if different:
            raise UserError(f"other numbers in {listed(different)}")
        return changed

    def _compare_configuration(self, directory: Path) -> None:
        lora = isinstance(self.adapter, LoRAModel)
        mine = self.adapter.lora_config if lora else self.adapter.prefix_config
        stored = json.loads((directory / (LORA_CONFIG_NAME if lora else PREFIX_CONFIG_NAME)).read_text("utf-8"))
        for name in ("r", "lora_alpha", "scaling", "target_modules") if lora else ("num_prefix_tokens",):
            if stored.get(name) != getattr(mine, name):
                raise UserError(f"{name} is {stored.get(name)!r}, trained was {getattr(mine, name)!r}")

    def _held(self) -> list[Held]:
        return held_tensors(self.adapter, None, self.training_args)


def _checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values))
