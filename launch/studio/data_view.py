"""What training makes of data: their form, broken rows, the first samples with what counts in the loss, lengths.

    data_of(RecipeChoice.read({"recipe": "lora-qwen3-8b", "DATA": "mine.json"}))

By the functions that the checks of a start call (launch/preflight/dialogues.py), and `data_tools.inspect` for corpora.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_tools.dialogues.datasets import encode_rows, find_sources
from data_tools.dialogues.encoding import IGNORED, Encoding, rendered
from data_tools.dialogues.rows import Fault, Rows, unused_line
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.inspect import length_histogram
from data_tools.preferences.datasets import encode_preference_rows
from data_tools.preferences.forms import Preference
from launch.config.flag_values import FlagValues
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.encoding import template_line
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.preflight.dialogues import encoder_of, encoding_of, spread, template_of, tokenizer_directory
from launch.preflight.requested import make_questions
from launch.studio.planning import RecipeChoice

SHOWN = 3  # samples
SHOWN_TOKENS = 2000  # of a document of a corpus
FAULTS = 50  # broken rows that are listed
UNLIMITED = 1 << 30  # tokens
Ids = list[tuple[int, bool]]  # each with whether it counts in the loss


@dataclass(frozen=True)
class ShownSample:
    """A sample of the data.

    Attributes:
        texts: One, or of a pair the chosen and the rejected response's text.
        length: Tokens, uncut.
    """

    texts: list[Ids]
    length: int


def data_of(choice: RecipeChoice) -> dict:
    """Return what a choice's recipe makes of the files that its DATA names.

    Of several files the rows of the first are shown.

    Raises:
        DataError, UserError: If there are no data, or they cannot be read.
    """
    run, _ = choice.run(sizes_alone=True)
    if run.method.row_kind is None:
        return _corpora(run.flags)
    reader = run.method.row_kind(run.flags).reader
    make_questions(run)
    sources = find_sources(run.flags.dataset_name_or_path or "")
    files = [reader.read(file) for source in sources for file in (*source.train, *source.dev)]
    found, faults = _samples(files[0], run)
    return found | {
        "files": [{"file": rows.file, "form": rows.schema.name, "rows": len(rows.entries)} for rows in files],
        "unused": unused_line(files),
        **_broken([*(fault for rows in files for fault in rows.faults), *faults]),
    }


def _broken(faults: list[Fault]) -> dict:
    shown = [{"file": fault.file, "line": fault.line, "reason": fault.reason} for fault in faults[:FAULTS]]
    return {"broken": len(faults), "faults": shown}


def _samples(rows: Rows, run: RunConfig) -> tuple[dict, list[Fault]]:
    """Return the first samples, lengths of some, and the rows that the chat template cannot render.

    Without a tokenizer of the model on this machine the texts alone, and no lengths; without its configuration neither.
    """
    values = run.flags
    try:
        config = load_config(values.model_name_or_path or "")
    except UserError:  # the model is not here yet
        return {"template": "", "samples": [], **_lengths([])}, []
    directory = tokenizer_directory(values)
    template, encoder = template_of(rows, directory, config, values), encoder_of(directory, family_of_config(config))
    encoding = encoding_of(template, encoder, values)
    encode = _preferences if isinstance(next(iter(rows.entries), None), Preference) else _dialogues
    some = spread(rows)
    samples, faults = encode(some, encoding)
    found = {"template": template_line(template), "max_length": values.max_length}
    if encoder is None:
        return found | {"samples": _texts(rows, encoding), "lengths": [], "measured": 0}, faults
    whole, _ = encode(some, replace(encoding, src_length=UNLIMITED, max_length=2 * UNLIMITED))
    shown = [[_segments(ids, encoder.decode_chat) for ids in sample.texts] for sample in samples[:SHOWN]]
    return found | {"samples": shown, **_lengths([sample.length for sample in whole])}, faults


def _lengths(sizes: Any) -> dict:
    return {"lengths": length_histogram(np.array(sizes)), "measured": len(sizes)}


def _dialogues(rows: Rows, encoding: Encoding) -> tuple[list[ShownSample], list[Fault]]:
    samples, faults = encode_rows(rows, encoding)
    shown = []
    for one in samples:  # nothing predicts the first id
        is_target = [False, *(label != IGNORED for label in one.labels[1:])]
        shown.append(ShownSample([list(zip(one.ids, is_target, strict=True))], len(one.ids)))
    return shown, faults


def _preferences(rows: Rows, encoding: Encoding) -> tuple[list[ShownSample], list[Fault]]:
    samples, _, faults = encode_preference_rows(rows, encoding)
    shown = []
    for one in samples:
        prompt = [(i, False) for i in one.prompt]
        texts: list[Ids] = [prompt + [(i, True) for i in response] for response in one.responses]
        shown.append(ShownSample(texts, one.whole[0] + max(one.whole[1:])))
    return shown, faults


def _segments(ids: Ids, decode: Callable[[list[int]], str]) -> list[dict]:
    """Return runs of tokens that count in the loss, or do not."""
    runs = [(counted, [i for i, _ in run]) for counted, run in itertools.groupby(ids, key=lambda pair: pair[1])]
    return [{"text": decode(run), "counted": counted, "tokens": len(run)} for counted, run in runs]


def _texts(rows: Rows, encoding: Encoding) -> list[list[list[dict]]]:
    """Return the first rows as the template renders them, without a tokenizer."""
    samples = []
    for entry in rows.entries[:SHOWN]:
        dialogues = entry.dialogues() if isinstance(entry, Preference) else [entry]
        how = replace(encoding, last=isinstance(entry, Preference))
        texts = [found for _, found in rendered(dialogues, how) if not isinstance(found, DataError)]
        turns = [turns for found in texts for turns in found.samples]
        samples.append([_of_turns(one, isinstance(entry, Preference)) for one in turns])
    return samples


def _of_turns(turns: list[tuple[str, str]], last_alone: bool) -> list[dict]:
    """Return the turns as texts. last_alone: whether only the last answer counts in the loss."""
    segments = []
    for number, (before, answer) in enumerate(turns, 1):
        counted = not last_alone or number == len(turns)
        segments += [{"text": before, "counted": False}, {"text": answer, "counted": counted}]
    return segments


def _corpora(values: FlagValues) -> dict:
    """Return documents of pretraining, of which every token counts; they are cut into samples of max_seq_length."""
    corpora = [IndexedDataset(prefix) for _, prefix in find_corpora(values.input_dir or "")]
    encoder = encoder_of(tokenizer_directory(values), family_of_config(load_config(values.model_name_or_path or "")))
    first = corpora[0]
    documents = [first[number][:SHOWN_TOKENS].tolist() for number in range(min(SHOWN, len(first)))] if encoder else []
    return {
        "files": [{"file": one.prefix, "form": str(one.dtype), "rows": len(one)} for one in corpora],
        "unused": "",
        "template": "",
        "max_length": values.max_seq_length,
        "samples": [[_segments([(i, True) for i in ids], encoder.decode_chat)] for ids in documents] if encoder else [],
        **_lengths(np.concatenate([one.sizes for one in corpora])),
        **_broken([]),
    }
