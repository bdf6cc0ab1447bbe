"""What the demos are fine-tuned on, and what must be true of their models.

Questions and answers about Python's own library come from its sources: data for fine-tuning that every machine has.

    {"src": "What does textwrap.dedent do?", "tgt": "Remove any common leading whitespace from every line in `text`."}
    {"src": "How is textwrap.dedent called?", "tgt": "def dedent(text)"}

The modules that the demo's corpus holds out are those of dev.json: nothing asked there has been seen, not even in
pretraining. Each check gives its bound and the reason of it.
"""

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from data_tools.formats.atomic import written_aside
from data_tools.stdlib_corpus import modules
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.preflight.report import Finding

TRAIN_ROWS, DEV_ROWS = 4000, 128
LONGEST_ANSWER = 100  # characters


def write_questions(directory: Path, train: int, dev: int) -> None:
    """Write train.json and dev.json with so many rows at most."""
    for name, heldout, count in (("train.json", False, train), ("dev.json", True, dev)):
        with written_aside(directory / name) as file:
            for row in islice(_rows(heldout), count):
                file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


def _rows(heldout: bool) -> Iterator[dict]:
    for module, source in modules(sysconfig.get_path("stdlib"), heldout):
        yield from questions(module.removesuffix(".__init__"), source)


def questions(module: str, source: str) -> Iterator[dict]:
    """Rows about each function and method of a module that has a docstring."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="invalid escape sequence")  # of the library's old strings
        tree = ast.parse(source)
    for name, function in _functions(tree, module):
        text = (ast.get_docstring(function) or "").strip().partition("\n")[0].strip()
        call = f"def {function.name}({ast.unparse(function.args)})"
        if text and len(text) <= LONGEST_ANSWER and len(call) <= LONGEST_ANSWER:
            yield {"src": f"What does {name} do?", "tgt": text}
            yield {"src": f"How is {name} called?", "tgt": call}


def _functions(tree: ast.AST, place: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{place}.{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{place}.{node.name}")


# Natural text spreads around the closed form by a per cent or two: frequent tokens share one random row of the head.
FIRST_LOSS_TOLERANCE = 0.03
# A model that has learnt only how frequent each token is reaches the unigram cross-entropy and no less.
HELD_OUT_MARGIN_NATS = 1.5


def first_loss_check(first_loss: float, model: Path | str) -> Finding:
    """The loss before the first update lies where random weights put it: ln V + h sigma^2 / 2, within 3 %."""
    expected = ModelShape.from_config(load_config(str(model))).first_loss
    deviation = first_loss / expected - 1
    ok = abs(deviation) <= FIRST_LOSS_TOLERANCE
    return Finding(
        ok=ok,
        subject="first loss",
        found=f"{first_loss:.3f}, expected ln V + h sigma^2/2 = {expected:.3f} ({deviation:+.2%}, allowed 3 %)",
        fix="" if ok else "weights, labels or loss are not what they should be: no step has been made yet",
    )


def held_out_check(held_out_loss: float, unigram: float) -> Finding:
    """The model predicts unseen text better than token frequencies alone could, by at least 1.5 nats a token."""
    margin = unigram - held_out_loss
    ok = margin >= HELD_OUT_MARGIN_NATS
    return Finding(
        ok=ok,
        subject="held-out loss",
        found=f"{held_out_loss:.3f}, {margin:.2f} nats below the unigram cross-entropy {unigram:.3f} (needed: 1.5)",
        fix="" if ok else "train longer (--max_steps), or the labels do not belong to the inputs",
    )
