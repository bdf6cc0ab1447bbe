"""Write docs/from-deepspeed.md, the table of deepspeed_keys.json.

    python -m docs.tools.deepspeed_page

Run it after a change of deepspeed_keys.json; a test fails until then.
"""

import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import joined
from launch.config.deepspeed import table
from launch.guard import guarded

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-deepspeed.md"


def render() -> str:
    return f"""# From DeepSpeed, accelerate and Hugging Face's Trainer

How to translate a `deepspeed.json`, a YAML file of accelerate, or the arguments of a Trainer script. To translate one:

    python launch/commands/doctor.py --deepspeed ds_config.json

The command prints our flags, then the keys without a flag and why, then all flags in one line for `ARGS="..."`. It also
translates a file of arguments, as JSON or YAML: those of the Trainer, of PEFT and of LLaMA-Factory
(`per_device_train_batch_size`, `max_source_length`, `target_modules`, `finetuning_type`, ...). Comments and trailing
commas are read over, as DeepSpeed does. A mistake in the file is an error with file, line and key; unknown keys are
named behind the rest, with exit code 2. `python -m docs.tools.deepspeed_page` writes this page from the table that the
command uses.

The table has every key of DeepSpeed's documentation of August 2026. Of the ready files of axolotl (8), LLaMA-Factory
(18) and accelerate (17), of July and August 2026, 42 of 43 plan full fine-tuning of Llama-3-8B on 8 cards; the other
one shards parameters beside tensor parallelism. To count those of a checkout:
`python benchmarks/config_files.py deepspeed CHECKOUT/deepspeed_configs`.

- **`"auto"`** means that the Trainer uses its own argument; here the flag in that row sets the value.
- **Stages** are Paddle's: `--sharding stage1`, `stage2`, `stage3`. The word `offload` covers both `offload_optimizer`
  and `offload_param` of DeepSpeed. All processes that no other kind of parallelism uses form the sharding group.
- **The loss scale** follows DeepSpeed's rule. It doubles after `--loss_scale_window` steps without an overflow. From
  the `--loss_scale_hysteresis`-th overflow since it last doubled, each overflow halves it, down to `--min_loss_scale`.
  Without a setting, DeepSpeed begins at 2^16 and we begin at `--scale_loss` 32768. All ranks skip a step that overflows
  and report it. The step counts, because its samples were read, but the learning rate does not advance, so a schedule
  ends later by the number of skipped steps. On a CPU, arithmetic is float32, and the loss scale works as on cards.
- **Weights** are kept in half precision with a float32 copy in the optimizer (`--fp16_opt_level O2`), as in DeepSpeed.

## `deepspeed.json`

<!-- keys -->

{_part(table()["deepspeed"])}

<!-- end of keys -->

## Files of accelerate

A `deepspeed_config_file` that such a file names is translated by itself.

<!-- keys -->

{_part(table()["accelerate"])}

<!-- end of keys -->

## Arguments of the Trainer, of PEFT and of LLaMA-Factory

<!-- keys -->

{_part(table()["transformers"])}

<!-- end of keys -->
"""


def _part(rows: list[dict]) -> str:
    """Return the table of the keys that become flags, and the names of those that do not."""
    flags = joined((f"`{row['key']}`", *_meaning(row)) for row in rows if "why" not in row)
    others = ", ".join(f"`{row['key']}`" for row in rows if "why" in row)
    return f"{_table(flags)}\n\nWithout a flag (the command prints the reason of each): {others}."


def _meaning(row: dict) -> tuple[str, str]:
    """Return the flags and the remark of a row."""
    if "flag" in row:
        if row["flag"] == row["key"] and "note" not in row:
            return "the same name", ""
        flags = [row["flag"]] if isinstance(row["flag"], str) else row["flag"]
        exponent = " 2^n" if row.get("how") == "power_of_two" else ""
        return ", ".join(f"`--{flag}{exponent}`" for flag in flags), row.get("note", "")
    meant = [f"{value or '(empty)'}: `{words}`" for value, words in row["values"].items() if words]
    silent = [value or "(empty)" for value, words in row["values"].items() if not words]
    nothing = [f"{', '.join(silent)}: no flag"] if silent else []
    others = [f"others: {row['other']}"] if "other" in row else []
    notes = [row["note"]] if "note" in row else []
    return "; ".join([*meant, *nothing]), "; ".join([*notes, *others])


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(["| theirs | ours | remark |", "|---|---|---|", *lines])


def main(argv: list[str]) -> None:
    Parser("python -m docs.tools.deepspeed_page", __doc__).parse_args(argv)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE.relative_to(PAGE.parents[1])}: {sum(len(rows) for rows in table().values())} keys")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
