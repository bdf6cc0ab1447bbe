"""Preferences of any known form: check them, split them, make one form of them.

    python -m data_tools.preference check --input FILE --tokenizer DIR
    python -m data_tools.preference split --input FILE --output data
    python -m data_tools.preference convert --input FILE --output pairs.json

Known forms, found by themselves: those of TRL (prompt, chosen, rejected as texts or messages; prompt, completion, label
for KTO), UltraFeedback, Anthropic, PaddleNLP (src, tgt, response, sort), LLaMA-Factory and ms-swift, as JSON lines, one
JSON list or Parquet. A row that is broken, has an empty response, or whose two responses are the same is told with its
line.

check prints how many there are of what, how long they are, in how many pairs the chosen response is the longer one, and
which pairs come twice or the other way round. With --tokenizer lengths are tokens, and it says what --src_length and
--max_length will cut.

split writes train.json and dev.json to --output. Where a row goes depends on its first question and --seed alone, so
that a prompt is on one side. Repeated rows are dropped.

convert writes messages, {"prompt": [...], "chosen": [...], "rejected": [...]}, for which training takes a chat
template; plain texts become a question of the user.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from data_tools.cli import BEGINS_ANEW, Parser, not_negative, percent, run
from data_tools.dialogues.datasets import input_files
from data_tools.dialogues.encoding import Encoding
from data_tools.dialogues.messages import row_json
from data_tools.dialogues.rows import FAULTS_SHOWN, Fault, Rows, check_faults, unused_line
from data_tools.formats.atomic import check_not_input, written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.inspect import length_histogram
from data_tools.language import localized
from data_tools.preferences.datasets import encode_preference_rows
from data_tools.preferences.forms import Preference, PreferenceColumns
from data_tools.preferences.samples import EncodedPreference, PreferenceCuts, encode_preferences
from data_tools.sft import (
    EXACT_HELP,
    UNLIMITED,
    add_lengths,
    choose_lengths,
    dev_limit,
    encoding_of,
    place_of,
    template_of,
    write_rows,
    write_sides,
)


@dataclass(frozen=True)
class Lengths:
    """Lengths of prompts, chosen (desired) and rejected (undesired) responses.

    Attributes:
        unit: Tokens or characters.
        pairs: Their number.
        longer: Pairs whose chosen response is the longer one.
        equal: Pairs whose responses are equally long.
    """

    unit: str
    prompts: np.ndarray
    chosen: np.ndarray
    rejected: np.ndarray
    pairs: int
    longer: int
    equal: int


def every(files: list[Rows[Preference]]) -> Iterator[Preference]:
    """Yield the preferences of all files."""
    return (preference for rows in files for preference in rows.entries)


def faults_of(files: list[Rows[Preference]]) -> list[Fault]:
    """Return the broken rows of all files."""
    return [fault for rows in files for fault in rows.faults]


def in_tokens(encoded: list[tuple[Preference, EncodedPreference]]) -> Lengths:
    """Return the lengths in tokens.

    Args:
        encoded: Without a limit.
    """
    responses = []
    for preference, ids in encoded:
        sizes = iter(map(len, ids.responses))
        responses.append([0 if text is None else next(sizes) for text in (preference.chosen, preference.rejected)])
    prompts = [len(ids.prompt) for _, ids in encoded]
    return _lengths("tokens", prompts, responses, [preference for preference, _ in encoded])


def _lengths(unit: str, prompts: list[int], responses: list[list[int]], preferences: list[Preference]) -> Lengths:
    pairs = [sizes for sizes, one in zip(responses, preferences, strict=True) if one.is_pair]
    return Lengths(
        unit,
        np.array(prompts),
        np.array([first for (first, _), one in zip(responses, preferences, strict=True) if one.chosen is not None]),
        np.array([second for (_, second), one in zip(responses, preferences, strict=True) if one.rejected is not None]),
        pairs=len(pairs),
        longer=sum(first > second for first, second in pairs),
        equal=sum(first == second for first, second in pairs),
    )


def check(args) -> None:
    """Print all there is to say.

    Raises:
        DataError: If more rows are broken than allowed.
    """
    console = Console(soft_wrap=True, markup=False, highlight=False)
    files = [_columns(args).read(file) for file in args.input]
    for rows in files:
        kind = "chats" if rows.schema.chat else "bare texts"
        broken = f", {plural(len(rows.faults), 'broken row')}" if rows.faults else ""
        console.print(f"{rows.file}: {_count(rows.entries)} ({rows.schema.name}), {kind}{broken}")
    for fault in faults_of(files)[:FAULTS_SHOWN]:
        console.print(f"  {fault}")
    if unused := unused_line(files):
        console.print(unused)
    encoded, faults = _encoded(files, args) if args.tokenizer else ([], [])
    if encoded:
        lengths = in_tokens(encoded)
    else:
        rows = list(every(files))
        prompts = [sum(text.size for text in one.prompt.messages if text.role != "system") for one in rows]
        responses = [[said.size if said else 0 for said in (one.chosen, one.rejected)] for one in rows]
        lengths = _lengths("characters", prompts, responses, rows)
    report_lengths(lengths, args.max_length if encoded else UNLIMITED, console)
    report_repeated(list(every(files)), console)
    if encoded:
        report_cuts(files, lengths, encoded, args, console)
    check_faults([*faults_of(files), *faults], args.max_broken_rows)


def report_lengths(lengths: Lengths, max_length: int, console: Console) -> None:
    """Print a histogram of the lengths."""
    table = Table(lengths.unit, "prompts", "chosen", "rejected", "", box=None)
    for column in table.columns[:4]:
        column.justify = "right"
    columns = (lengths.prompts, lengths.chosen, lengths.rejected)
    counts = [{low: count for low, _, count in length_histogram(sizes)} for sizes in columns]
    for low, high, _ in length_histogram(np.concatenate(columns)):
        beyond = "beyond --max_length" if low > max_length else ""
        span = f"{low:,} - {high:,}" if high > low else f"{low:,}"
        table.add_row(span, *(f"{count.get(low, 0):,}" for count in counts), beyond)
    console.print(table)
    if lengths.chosen.size and lengths.rejected.size:
        means = f"{lengths.chosen.mean():,.1f} and {lengths.rejected.mean():,.1f} {lengths.unit} on average"
        console.print(f"chosen and rejected responses have {means}")
    if lengths.pairs:
        console.print(
            f"the chosen response is the longer one in {lengths.longer / lengths.pairs:.1%} of pairs, as long in "
            f"{lengths.equal / lengths.pairs:.1%}"
        )


def report_repeated(preferences: list[Preference], console: Console) -> None:
    """Print how many prompts differ, and which rows repeat or contradict each other."""
    different = set(preferences)
    turned = sum(replace(one, chosen=one.rejected, rejected=one.chosen) in different for one in different)
    prompts = len({one.prompt for one in different})
    console.print(
        f"{prompts:,} different prompts; {plural(len(preferences) - len(different), 'repeated row')}; "
        f"{plural(turned, 'row')} that another one says the opposite of"
    )


def report_cuts(
    files: list[Rows[Preference]],
    lengths: Lengths,
    encoded: list[tuple[Preference, EncodedPreference]],
    args,
    console: Console,
) -> None:
    """Print what the length limits cut."""
    limited = [encode_preference_rows(rows, _encoding(rows, args, args.src_length, args.max_length)) for rows in files]
    samples = [sample for of_file, _, _ in limited for sample in of_file]
    cuts = sum((dropped for _, dropped, _ in limited), PreferenceCuts(0, 0))
    for sample in samples:
        cuts += PreferenceCuts(int(sample.cut_prompt), sample.cut_responses)
    whole = np.array([len(ids.prompt) + max(map(len, ids.responses)) for _, ids in encoded])
    console.print(
        f"--src_length {args.src_length} --max_length {args.max_length}: {cuts}; nothing is cut from --max_length "
        f"{int(whole.max())} on, 99 % are whole at {int(np.percentile(whole, 99, method='higher'))}"
    )


def _encoding(rows: Rows[Preference], args, src_length: int, max_length: int) -> Encoding:
    return encoding_of(args.tokenizer, template_of(args, rows.schema.chat), src_length, max_length)


def _encoded(files: list[Rows[Preference]], args) -> tuple[list[tuple[Preference, EncodedPreference]], list[Fault]]:
    """Return each preference with its ids, and the rows that the chat template cannot render."""
    encoded, faults = [], []
    for rows in files:
        found = encode_preferences(rows.entries, _encoding(rows, args, UNLIMITED, UNLIMITED))
        for preference, line, ids in zip(rows.entries, rows.lines, found, strict=True):
            if isinstance(ids, DataError):
                faults.append(Fault(rows.file, line, str(ids).rstrip(".")))
            else:
                encoded.append((preference, ids))
    return encoded, faults


def split(args) -> None:
    """Write train.json and dev.json.

    Raises:
        DataError: If a file cannot be read, or all rows go to one side.
    """
    files = _readable(args)
    if len({rows.schema.chat for rows in files}) > 1:
        raise DataError(
            f"{', '.join(args.input)}: some have chats, some bare texts, which training reads differently. Give them "
            "to two runs of this command, or make chats of them first: convert."
        )
    chat = files[0].schema.chat
    sides: tuple[dict[str, None], dict[str, None]] = ({}, {})
    repeated = 0
    dialogues = (preference.dialogues()[0] for preference in every(files))
    limit = dev_limit(args.dev_percent, dialogues, bool(args.dev_exact), args.seed)
    for preference in every(files):
        side = sides[place_of(preference.dialogues()[0], args.seed) < limit]
        row = row_of(preference, chat)
        repeated += row in side
        side[row] = None
    if not sides[0]:
        raise DataError(f"all prompts of {', '.join(args.input)} go to dev.json. Give a smaller --dev_percent.")
    written = {"train": sides[0], "dev": sides[1]}
    write_sides(Path(args.output), written, args.input)
    for name, side in written.items():
        if side:
            print(localized(f"{args.output}/{name}.json: {plural(len(side), 'row')}"))
    if repeated:
        print(localized(f"{repeated:,} repeated rows dropped"))


def convert(args) -> None:
    """Write all rows as messages.

    Raises:
        DataError: If a file cannot be read.
    """
    files = _readable(args)
    check_not_input(Path(args.output), args.input)
    with written_aside(args.output) as file:
        write_rows(file, (row_of(preference, chat=True) for preference in every(files)))
    print(f"{args.output}: {_count(list(every(files)))}")


def row_of(preference: Preference, chat: bool) -> str:
    """Return the JSON row of a preference: TRL's messages for chats, else its texts, or PaddleNLP's lists of texts."""
    both = (preference.chosen, preference.rejected)
    prompt, *others = preference.prompt.messages
    if chat:
        row = row_json(preference.prompt)
        row["prompt"] = row.pop("messages")
        responses: list = [one and [one.as_json()] for one in both]
    elif others:
        texts = [message.text for message in (prompt, *others)]
        system = {"system": texts.pop(0)} if prompt.role == "system" else {}
        row = {"src": texts[0::2], "tgt": texts[1::2], "response": [one.text for one in preference.responses]}
        row |= {"sort": [1, 0] if preference.is_pair else [int(preference.chosen is not None)]}
        return json.dumps(row | system, ensure_ascii=False)
    else:
        row, responses = {"prompt": prompt.text}, [one and one.text for one in both]
    if preference.is_pair:
        row |= {"chosen": responses[0], "rejected": responses[1]}
    else:
        row |= {"completion": responses[0] or responses[1], "label": preference.chosen is not None}
    return json.dumps(row, ensure_ascii=False)


def _count(preferences: Iterable[Preference]) -> str:
    """Return the numbers of preferences as text, such as "1,000 pairs, 5 desired and 3 other responses"."""
    preferences = list(preferences)
    pairs = sum(one.is_pair for one in preferences)
    desired = sum(one.rejected is None for one in preferences)
    parts = [plural(pairs, "pair")] if pairs else []
    if others := len(preferences) - pairs:
        parts.append(f"{desired:,} desired and {others - desired:,} other responses")
    return ", ".join(parts)


def _readable(args) -> list[Rows[Preference]]:
    files = [_columns(args).read(file) for file in args.input]
    check_faults(faults_of(files), args.max_broken_rows)
    if broken := len(faults_of(files)):
        print(localized(f"{broken:,} broken rows left out"))
    if unused := unused_line(files):
        print(localized(unused))
    return files


def _columns(args) -> PreferenceColumns:
    return PreferenceColumns(args.prompt_column, args.chosen_column, args.rejected_column)


def main() -> None:
    """Run the command."""
    parser = Parser("python -m data_tools.preference", __doc__)
    actions = {"check": check, "split": split, "convert": convert}
    parser.add_argument("action", choices=actions, help="what to do")
    parser.add_argument("--input", required=True, nargs="+", metavar="FILE", help="JSON lines, one JSON list, Parquet")
    parser.add_argument("--output", metavar="PATH", help="split: folder; convert: file")
    parser.add_argument("--prompt_column", metavar="KEY", help="key of the prompt, a text")
    parser.add_argument("--chosen_column", metavar="KEY", help="key of the better response")
    parser.add_argument("--rejected_column", metavar="KEY", help="key of the other response")
    parser.add_argument("--max_broken_rows", type=not_negative, default=0, metavar="N", help="leave out up to N")
    parser.add_argument("--dev_percent", type=percent, default=2, help="of the prompts (default: 2; 0: no dev.json)")
    parser.add_argument("--dev_exact", type=int, choices=[0, 1], default=0, help=EXACT_HELP)
    parser.add_argument("--seed", type=not_negative, default=0, help="which prompts go to dev.json (default: 0)")
    parser.add_argument("--tokenizer", metavar="DIR", help="count tokens with this tokenizer")
    parser.add_argument("--chat_template", metavar="FILE", help="count its tokens; default: chats, the tokenizer's")
    add_lengths(parser)
    args = parser.parse_args()
    if args.action != "check" and not args.output:
        parser.error(f"the following arguments are required for {args.action}: --output")
    choose_lengths(args)
    args.input = input_files(args.input)
    actions[args.action](args)


if __name__ == "__main__":
    run(main, BEGINS_ANEW)
