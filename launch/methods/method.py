"""What one training method is: all that differs from method to method, as data. No Paddle, and Python alone.

Training itself, which needs Paddle, is named here and imported when it starts (Method.training).
"""

import pkgutil
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from launch.methods.bounds import AT_LEAST_ONE, STEPS

Flags = dict[str, list[str]]  # as in launch/config/flag_values.py


def flag(default: Any, *, help: str, **metadata) -> Any:
    """Return a field of an argument class.

    Args:
        default: MISSING where the flag is required.
        help: What it is for.
        metadata: `choices` of a text, `bounds` of a number (launch/methods/bounds.py).
    """
    return field(default=default, metadata={"help": help, **metadata})


@dataclass(frozen=True)
class RowArguments:
    """The flags of all methods that read rows of text."""

    dataset_name_or_path: list[str] = flag(
        MISSING, help="Folder with train.json and dev.json, one file, or weights and these: 0.7 a 0.3 b."
    )
    chat_template: str | None = flag(
        None, help="How turns become text: a name, file or none. Default: none for pairs, else the model's."
    )
    pad_to_multiple_of: int = flag(
        1, bounds=AT_LEAST_ONE, help="Pad batches to a length that this divides: 8 suits tensor cores."
    )
    max_broken_rows: int = flag(
        0, bounds=STEPS, help="Rows that cannot be read and are left out, at most; more stop the run."
    )


@dataclass(frozen=True)
class RowKind:
    """Rows of text that a method reads.

    Attributes:
        rows, samples: Their names in the singular.
        reader: Opens a file (data_tools.dialogues.datasets.Reader).
        encode: From rows and an Encoding to a dataset of samples, and the rows that the chat template does not
            render.
        show: A sample of the dataset as lines of text.
    """

    rows: str
    samples: str
    reader: Any
    encode: Callable[[Any, Any], tuple[Any, list]]
    show: Callable[[Any, Callable[[list[int]], str]], list[str]]


@dataclass(frozen=True)
class ArgumentFiles:
    """Files of arguments of one of PaddleNLP's scripts.

    Attributes:
        title: What the script does.
        keys: Any of them, unless its value says no, tells such a file.
        implied: Flags that the files do not state, as it is all that their script does.
        forgives_metric: A --metric_for_best_model that the method does not measure is left out.
        stage: What PaddleFormers' and ERNIEKit's files of the method have at `stage`; "": they have none.
    """

    title: str
    keys: frozenset[str]
    implied: Flags = field(default_factory=dict)
    forgives_metric: bool = False
    stage: str = ""


@dataclass(frozen=True)
class Fit:
    """A value of METHOD for make fit: its recipe, its ARGS, and the values that need less memory."""

    recipe: str
    arguments: str = ""
    smaller: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Method:
    """One training method.

    Attributes:
        name: The word behind launch/train.py.
        title: Its name in messages.
        script: The file in launch/ that starts it too, without .py; "": launch/train.py NAME alone does.
        training: "module:class" of its Training (launch/training/run.py).
        arguments: Its own argument classes, beside those that all methods have (launch/training/arguments.py).
        data_flag: The flag that names its data.
        length_flag: The flag that says how long its samples are.
        metrics: Measured by an evaluation, with or without "eval_" before it (launch/training/evaluation.py).
        rehearsal_data: From the flags and the folder of materials to {flag: (value, reason)} of a rehearsal.
        row_kind: From the flags' values to the rows of text that it reads; None: it reads files of token ids.
        rows_per_sample: From the flags' values to the rows of a sample in a batch: a pair has two.
        own_loss: The loss is one of ours (launch/training/losses.py), not that of the model's class.
        token_loss: The loss is a mean -ln p of tokens, whose usual course is known (launch/training/watches.py).
        reward_model: The model gives a score, not logits.
        full_title: What the studio calls training without an adapter, where an adapter's name stands for the
            method; "": the title counts in any case.
        files: PaddleNLP's files of arguments for it.
        fits: Values of METHOD for make fit.
    """

    name: str
    title: str
    training: str
    arguments: tuple[type, ...]
    metrics: tuple[str, ...]
    rehearsal_data: Callable[[Flags, Path], dict[str, tuple[str, str]]]
    script: str = ""
    data_flag: str = "dataset_name_or_path"
    length_flag: str = "max_length"
    row_kind: Callable[[Any], RowKind] | None = None
    rows_per_sample: Callable[[Any], int] = lambda values: 1
    own_loss: bool = True
    token_loss: bool = True
    reward_model: bool = False
    full_title: str = ""
    files: tuple[ArgumentFiles, ...] = ()
    fits: dict[str, Fit] = field(default_factory=dict)

    @property
    def reads_rows(self) -> bool:
        """It reads rows of text, by epochs if need be, with a tokenizer; else files of token ids, for --max_steps."""
        return self.row_kind is not None

    @property
    def program(self) -> str:
        """The program that starts it, from the repository: launch/run_dpo.py, or launch/train.py NAME."""
        return f"launch/{self.script}.py" if self.script else f"launch/train.py {self.name}"

    def load_training(self) -> type:
        """Import its Training, with Paddle."""
        return pkgutil.resolve_name(self.training)
