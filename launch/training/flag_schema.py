"""Write launch/models/flags.json, the flags of the shared modules as data, for checks that must not import Paddle.

    python -m launch.training.flag_schema

Run it after a change of launch/training/arguments.py or of the pinned paddlenlp; a test fails until then.
"""

import argparse
import json
from enum import Enum
from pathlib import Path

FLAGS_FILE = Path(__file__).resolve().parent.parent / "models" / "flags.json"


def schema() -> dict:
    """{"run_pretrain": {flag: {"type", "default", "choices"?, "help"}}}, names without the leading dashes."""
    from launch.training.arguments import pretrain_parser

    return {"run_pretrain": _flags(pretrain_parser())}


def _flags(parser) -> dict:
    flags = {}
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._StoreFalseAction)):  # --help and --no_X twins
            continue
        name = action.dest
        default = action.default.value if isinstance(action.default, Enum) else action.default
        flags[name] = {
            "type": {"strtobool": "bool", "loads": "json"}.get(action.type.__name__, action.type.__name__),
            "default": default,
            "help": " ".join((action.help or "").split()),
        }
        if action.choices:
            flags[name]["choices"] = list(action.choices)
    return dict(sorted(flags.items()))


def render() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FLAGS_FILE.write_text(render(), encoding="utf-8")
    print(f"{FLAGS_FILE.name}: {sum(len(flags) for flags in schema().values())} flags")
