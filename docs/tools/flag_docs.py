"""Write docs/flags.md: flags that cannot be combined, allowed values, and what becomes of PaddleNLP's flags.

    python -m docs.tools.flag_docs

Run it after a change of launch/preflight/rules, launch/config/aliases.py or the schema of the flags; a test fails until
then.
"""

import re
import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import joined
from launch.config.aliases import DROPPED, REFUSED, RENAMED
from launch.config.flag_values import all_flags
from launch.config.paddleformers import LEFT_OUT, NAMES, TRANSLATED
from launch.config.paddleformers import REFUSED as FORMERS_REFUSED
from launch.guard import guarded
from launch.preflight.rules import RULES, Rule
from launch.preflight.rules.model_limits import FAMILY_RULES
from launch.preflight.rules.rule import ANNOUNCE, REFUSE, WARN
from launch.reporting.markdown import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flags.md"
VALUE = re.compile(r"\{run\.(?:flags\.|layout\.)?(\w+)(?:\[(\w+)\])?[^}]*\}")


def render() -> str:
    """The page. Rows of model families are left out: the table of families has them."""
    rules = [rule for rule in RULES if rule not in FAMILY_RULES]
    rows = [(f"`--{rule.flag}`", _found(rule), _action(rule), rule.source) for rule in rules]
    renamed = [(f"`--{old}`", f"`--{new}`") for old, new in RENAMED.items()]
    left_out = [(f"`--{old}`", reason) for old, reason in DROPPED.items()]
    refused = [(f"`--{old}`", ", ".join(("no", *values)), reason) for old, (values, reason) in REFUSED.items()]
    formers = [(f"`{old}`", f"`--{new}`") for old, new in NAMES.items()]
    formers_left_out = [(", ".join(f"`{key}`" for key in keys.split(",")), reason) for reason, keys in LEFT_OUT.items()]
    formers_refused = [
        (f"`{key}`", ", ".join(("no", *filter(None, values))), why) for key, (values, why) in FORMERS_REFUSED.items()
    ]
    return f"""# Flags

Names and meanings are PaddleNLP's; `--help` of a recipe or a method lists all of them. This page is made by
`python -m docs.tools.flag_docs` from the tables that the checks use.

## What does not go together

Checked before every run, by recipe and by hand. A name in pointed brackets stands for the value that is found; an empty
cell is the value itself. Only a refused run does not start. Sources are files of paddlenlp 3.0.0b4 and Paddle 3.3.1;
"measured" was run on CPUs.

<!-- flags -->

{_table(("flag", "found", "what happens", "source"), rows)}

<!-- end of flags -->

## Numbers

Each numeric flag takes the values below, and none that is not finite.

<!-- flags -->

{_table(("flag", "allowed"), _ranges())}

<!-- end of flags -->

## Names of PaddleNLP's scripts

Flags of the scripts of PaddleNLP 2.6 and 3.0, and keys of its files of arguments
([recipes.md](recipes.md#paddlenlps-files-of-arguments)), are understood, with one line for each that changes.
`--tgt_length N` becomes `--max_length`, which counts question and answer together (`--src_length` + N), and
`--pipeline_parallel_mirco_batch_size` (so it was spelt) becomes the micro batch, with the rest of the batch as
accumulation. What is in none of these tables keeps its name.

<!-- flags -->

{_table(("theirs", "today"), renamed)}

<!-- end of flags -->

Left out:

<!-- flags -->

{_table(("theirs", "instead"), left_out)}

<!-- end of flags -->

Refused, unless they ask for nothing:

<!-- flags -->

{_table(("theirs", "asks for nothing", "why"), refused)}

<!-- end of flags -->

## Keys of PaddleFormers' and ERNIEKit's files

YAML files with a key `stage` ([recipes.md](recipes.md#paddleformers-and-erniekits-files)). What a file leaves out has
the default of these programs. Keys by other names:

<!-- flags -->

{_table(("theirs", "today"), formers)}

<!-- end of flags -->

A yes or no that is a word of `--tensor_parallel_config` or `--pipeline_parallel_config` becomes that word. Translated
by their value, each with its line:

<!-- flags -->

{_table(("theirs",), [(f"`{key}`",) for key in TRANSLATED])}

<!-- end of flags -->

Left out:

<!-- flags -->

{_table(("theirs", "why"), formers_left_out)}

<!-- end of flags -->

Refused, unless they ask for nothing:

<!-- flags -->

{_table(("theirs", "asks for nothing", "why"), formers_refused)}

<!-- end of flags -->
"""


def _ranges() -> list[tuple[str, str]]:
    return [(f"`--{name}`", flag.range_text) for name, flag in sorted(all_flags().items()) if flag.range]


def _found(rule: Rule) -> str:
    """Return what is wrong with the flag: nothing where its value is."""
    found = _plain(rule.found)
    return "" if found == f"<{rule.flag}>" else found


def _action(rule: Rule) -> str:
    done = {REFUSE: "refused", WARN: "warned", ANNOUNCE: "announced"}[rule.action]
    return f"{done}: {_plain(rule.reason)}" + (f". Fix: {_plain(rule.fix)}" if rule.fix else "")


def _plain(text: str) -> str:
    """{run.flags.max_steps} -> <max_steps>, {run.model[vocab_size]} -> <vocab_size>"""
    return VALUE.sub(lambda match: f"<{match[2] or match[1]}>", text)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return markdown(header, ([_cell(cell) for cell in row] for row in joined(rows)))


def _cell(text: str) -> str:
    """Nothing in it is taken for the table's own sign, or for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def main(argv: list[str]) -> None:
    Parser("python -m docs.tools.flag_docs", __doc__).parse_args(argv)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"docs/{PAGE.name}: {len(RULES)} rows")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
