"""The tables of model families and of PEFT's keys as Markdown, put where a document wants them.

    python -m docs.tools.family_table docs/families.md

replaces what stands between the two marks, a line each: <!-- families --> and <!-- end of families -->,
<!-- peft-keys --> and <!-- end of peft-keys -->.
"""

import json
import sys

from data_tools.cli import Parser
from docs.tools.pages import joined, write_tables
from launch.families.family import FEATURES, Family
from launch.families.named_configs import load_config
from launch.families.parameters import NORM
from launch.families.registry import FAMILIES, parameters
from launch.guard import guarded
from launch.reporting.markdown import markdown
from launch.weights.peft_keys import CARRIED, LIMITED, WITHOUT_EFFECT

NAME, PEFT_KEYS = "families", "peft-keys"
HAS, LACKS = "yes", "-"
FUSED = "fused RMSNorm"
LAYER_NORM = "its norms are LayerNorm, which Paddle computes by one operator"
OWN_NORM = "paddlenlp's code of its norm never calls the operator; leave --use_fused_rms_norm at auto"


def table() -> str:
    """One row a family, one column a feature; below it why something is lacking."""
    head = ["family", "`model_type`", "sees", *FEATURES.values(), FUSED]
    return "\n".join([markdown(head, map(_row, FAMILIES.values())), "", *_reasons()])


def _row(family: Family) -> list[str]:
    sees = "what came before" if family.attention == "causal" else "prompt both ways"
    marks = [LACKS if feature in family.lacking else HAS for feature in FEATURES]
    return [family.title, f"`{family.model_type}`", sees, *marks, HAS if family.fused_rms_norm else LACKS]


def _reasons() -> list[str]:
    """- LoRA, GLM: why and what instead; families with the same reason together."""
    titles: dict[tuple[str, str], list[str]] = {}
    for family in FAMILIES.values():
        for feature, reason in family.lacking.items():
            titles.setdefault((FEATURES[feature], reason), []).append(family.title)
        if not family.fused_rms_norm:
            tensors = parameters(load_config(family.rehearsal_config))
            layer_norm = any(tensor.kind == NORM and tensor.name.endswith(".bias") for tensor in tensors)
            titles.setdefault((FUSED, LAYER_NORM if layer_norm else OWN_NORM), []).append(family.title)
    return [f"- {feature}, {', '.join(names)}: {reason}." for (feature, reason), names in titles.items()]


def peft_table() -> str:
    """Return what becomes of each key of PEFT's adapter_config.json, keys with one answer in one row."""
    rows = [(f"`{key}`", "carried over") for key in CARRIED] + [
        (f"`{key}`", "without effect") for key in WITHOUT_EFFECT
    ]
    for key, limit in LIMITED.items():
        allowed = ", ".join(f"`{json.dumps(value)}`" for value in limit.allowed)
        rows.append((f"`{key}`", f"{allowed}; others are refused: {limit.reason}"))
    return markdown(["keys of `adapter_config.json`", "here"], joined(rows))


def main(argv: list[str]) -> None:
    write_tables(Parser("python -m docs.tools.family_table", __doc__), argv, {NAME: table, PEFT_KEYS: peft_table})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
