"""Write launch/config/flags.py, the flags of the methods with their types, for what must not import Paddle.

    python -m launch.training.flag_schema

Run it after a change of launch/training/arguments.py, of argument classes in launch/methods or of the pinned
paddlenlp; a test fails until then.
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import Field, fields
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from data_tools.cli import Parser
from launch.config.flag import Flag, default_of
from launch.errors import UserError
from launch.guard import guarded
from launch.methods.bounds import (
    AT_LEAST_ONE,
    BATCH,
    DEGREE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_BELOW_ONE,
    STEPS,
    UNSTATED_OR_STEPS,
)
from launch.methods.registry import METHODS

PAGE = Path(__file__).resolve().parents[1] / "config" / "flags.py"
HEAD = '''"""The flags of all methods with their types, and below each what it is for.

`python -m launch.training.flag_schema` makes this file from the argument classes of launch/training and launch/methods.
"""

from dataclasses import dataclass

from launch.config.flag import SwitchValue, known
'''
CLASSES = {
    "CommonFlags": "The flags that all methods have.",
    "MethodFlags(CommonFlags)": "These, and the flags of some methods: None in other runs. Defaults are the method's.",
}

# Values of upstream's flags that it reads as plain text: from its help texts, and from what this repository runs on.
CHOICES = {
    "device": ["cpu", "gpu"],
    "fp16_opt_level": ["O0", "O1", "O2"],
    "ckpt_quant_stage": ["O0", "O1", "O2"],
    "hybrid_parallel_topo_order": ["pp_first", "sharding_first"],
}
# The values that upstream's numeric flags take; our own have theirs beside them.
RANGES = {
    "adam_beta1": SHARE_BELOW_ONE,  # 1: the moment never changes, and its correction divides by zero
    "adam_beta2": SHARE_BELOW_ONE,
    "adam_epsilon": POSITIVE,
    "context_parallel_degree": DEGREE,
    "dataloader_num_workers": {"least": 0, "most": 1024},
    "eval_accumulation_steps": AT_LEAST_ONE,
    "eval_steps": STEPS,
    "expert_max_capacity": {"least": 1},
    "expert_min_capacity": {"least": 1},
    "expert_parallel_degree": DEGREE,
    "expert_tensor_parallel_degree": DEGREE,
    "gradient_accumulation_steps": BATCH,
    "learning_rate": {"least": 0, "most": 100},  # plain SGD takes rates above 10
    "local_rank": UNSTATED_OR_STEPS,
    "logging_steps": AT_LEAST_ONE,
    "lr_end": NOT_NEGATIVE,
    "max_evaluate_steps": UNSTATED_OR_STEPS,
    "max_grad_norm": NOT_NEGATIVE,
    "max_steps": UNSTATED_OR_STEPS,
    "minimum_eval_times": AT_LEAST_ONE,
    "num_cycles": POSITIVE,
    "num_train_epochs": {"above": 0, "most": 1_000_000},
    "ordered_save_group_size": STEPS,
    "pad_token_id": STEPS,
    "past_index": UNSTATED_OR_STEPS,
    "pdc_download_timeout": STEPS,
    "per_device_eval_batch_size": BATCH,
    "per_device_train_batch_size": BATCH,
    "pipeline_parallel_degree": DEGREE,
    "power": POSITIVE,
    "save_steps": AT_LEAST_ONE,
    "save_total_limit": UNSTATED_OR_STEPS,
    "scale_loss": POSITIVE,
    "seed": {"least": 0, "most": 2**32 - 1},  # what numpy.random.seed takes
    "sep_parallel_degree": DEGREE,
    "sharding_comm_buffer_size_MB": UNSTATED_OR_STEPS,
    "sharding_degree": DEGREE,
    "sharding_parallel_degree": DEGREE,
    "skip_data_intervals": STEPS,
    "tensor_parallel_degree": DEGREE,
    "warmup_ratio": SHARE,
    "warmup_steps": STEPS,
    "weight_decay": NOT_NEGATIVE,
}
# Flags of several words -> the name of the variable whose words TrainingArguments.__post_init__ checks in a loop.
WORD_LISTS = {
    "pipeline_parallel_config": "pipeline_parallel_config",
    "sharding_parallel_config": "sharding_parallel_config",
    "tensor_parallel_config": "mp_config",
    "unified_checkpoint_config": "unified_checkpoint_config",
}


def _fields(kinds: tuple[type, ...], own: bool) -> dict[str, str]:
    """Return {flag: its lines in the file} of dataclasses, each field of which is a flag. own: of some methods alone.

    Raises:
        UserError: For a number without bounds, and where two methods have a flag of one name and different types.
    """
    choices, words = CHOICES | _enum_choices(), _accepted_words()
    found: dict[str, tuple[str, str]] = {}
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in (field for field in fields(kind) if field.init):
            flag = _flag(field, hints[field.name], choices, words)
            text = _declaration(field.name, flag, own)
            purpose = " ".join(field.metadata.get("help", "").split()).replace("\\", "\\\\").replace('"', '\\"')
            lines = textwrap.fill(
                f'"""{purpose}"""', 118, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
            before, _ = found.setdefault(field.name, (text, lines))
            if before != text:
                raise UserError(f"--{field.name}: found {text.strip()} and {before.strip()}. Give one another name.")
    return {name: f"{text}\n{documentation}" for name, (text, documentation) in sorted(found.items())}


def _declaration(name: str, flag: Flag, own: bool) -> str:
    """Return the line of a flag. own: default and choices are left to the method."""
    default = flag.value(flag.default)
    hint = {"switch": "SwitchValue"}.get(flag.kind, "str" if flag.many else flag.kind)
    arguments = [_literal(flag.kind), *([] if own else [_literal(flag.default)])]
    shown = {"range": flag.range, "words": flag.words, "many": flag.many, "alone": flag.alone}
    if not own:
        shown["choices"] = flag.choices
    arguments += [f"{key}={_literal(value)}" for key, value in shown.items() if value]
    line = f"{name}: {hint}{' | None' if own or default is None else ''} = known({', '.join(arguments)})"
    return textwrap.fill(line, 120, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)


def _literal(value: Any) -> str:
    """Return a value as Python, text in double quotes."""
    match value:
        case str():
            return json.dumps(value)
        case tuple():
            return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
    return repr(value)


def _flag(field: Field, hint: Any, choices: dict, words: dict) -> Flag:
    from launch.training.arguments import Switch

    alternatives = [hint]
    if get_origin(hint) in (Union, UnionType):
        alternatives = [part for part in get_args(hint) if part is not NoneType]
    value_type: Any = Switch if Switch in alternatives else alternatives[0]
    many = get_origin(value_type) is list
    while get_origin(value_type) is list:
        [value_type] = get_args(value_type)
    allowed = field.metadata.get("choices") or choices.get(field.name) or ()
    if isinstance(value_type, type) and issubclass(value_type, Enum):
        allowed, value_type = [member.value for member in value_type], str
    kind = "switch" if value_type is Switch else value_type.__name__
    default = default_of(field)
    if default is None and hint is bool:
        default = False
    bounds: Mapping[str, float] = {}
    if kind in ("int", "float"):
        bounds = field.metadata.get("bounds") or RANGES.get(field.name, {})
        if not bounds:
            raise UserError(f"--{field.name}: found a number without bounds. flag(..., bounds=...) gives them.")
    return Flag(
        kind,
        default.value if isinstance(default, Enum) else default,
        choices=tuple(allowed),
        range=bounds,
        words=tuple(words.get(field.name, ())),
        many=many,
        alone=field.metadata.get("const", ""),
    )


def _enum_choices() -> dict[str, list[str]]:
    """Return flags that upstream types as text and turns into an enumeration, or looks up in a table, later."""
    from paddlenlp.trainer.integrations import INTEGRATION_TO_CALLBACK
    from paddlenlp.trainer.trainer_utils import OptimizerNames, SchedulerType

    return {
        "lr_scheduler_type": [member.value for member in SchedulerType],
        "optim": [member.value for member in OptimizerNames],
        "report_to": ["none", "all", *INTEGRATION_TO_CALLBACK],
    }


def _accepted_words() -> dict[str, list[str]]:
    """Return the words that TrainingArguments accepts in a flag of several, from its own loops `if x not in [...]`."""
    from paddlenlp.trainer import TrainingArguments
    from paddlenlp.trainer.trainer_utils import ShardingOption

    source = textwrap.dedent(inspect.getsource(TrainingArguments.__post_init__))
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For)]
    accepted = {}  # the first loop over a variable: a later one is for automatic parallelism
    for loop in sorted(loops, key=lambda loop: loop.lineno):
        for compared in ast.walk(loop):
            match compared:
                case ast.Compare(ops=[ast.NotIn()], comparators=[ast.List() as allowed]):
                    accepted.setdefault(ast.unparse(loop.iter), ast.literal_eval(allowed))
    words = {flag: list(dict.fromkeys(accepted[variable])) for flag, variable in WORD_LISTS.items()}
    return words | {"sharding": [option.value for option in ShardingOption]}


def render() -> str:
    """Return the text of the file."""
    from launch.training.arguments import argument_classes

    own = tuple(dict.fromkeys(kind for method in METHODS for kind in method.arguments))
    common = tuple(kind for kind in argument_classes(METHODS[0]) if kind not in own)
    parts = [HEAD]
    for (name, purpose), lines in zip(CLASSES.items(), (_fields(common, False), _fields(own, True)), strict=True):
        head = f'@dataclass(frozen=True, init=False, repr=False, eq=False)\nclass {name}:\n    """{purpose}"""\n'
        parts.append("\n".join([head, *lines.values()]) + "\n")
    return "\n\n".join(parts)


def main(argv: list[str]) -> None:
    """Run the command."""
    Parser("python -m launch.training.flag_schema", __doc__).parse_args(argv)
    text = render()
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: {text.count(' = known(')} flags")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
