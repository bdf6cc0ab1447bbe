"""What an import of paddlenlp brings with it."""

import json
import subprocess
import sys

from tests.recipes.machine import ROOT

IMPORTED = """
import json, sys
import paddle
handlers = []
paddle.disable_signal_handler = lambda: handlers.append("disabled")
from launch.upstream import correct
correct(["import_of_everything"])
import paddlenlp.trainer, paddlenlp.transformers, paddlenlp.peft, paddlenlp.generation
names = ("sklearn", "pandas", "pyarrow", "datasets", "fastapi", "seqeval")
print(json.dumps([[name for name in names if name in sys.modules], handlers, paddlenlp.__version__]))
"""
REQUESTED = (
    IMPORTED
    + """
from paddlenlp.prompt import PromptTrainer
from paddlenlp.datasets import ZeroPaddingMapDataset
from paddlenlp.trainer import trainer_compress
assert hasattr(paddlenlp.datasets, "load_dataset") and not hasattr(paddlenlp.prompt, "nothing")
print(json.dumps([paddlenlp.Taskflow.__name__, PromptTrainer.__name__, ZeroPaddingMapDataset.__name__,
                  trainer_compress.squad_evaluate.__name__]))
"""
)


def results(program: str) -> list:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_leaves_out_what_training_does_not_use():
    [[left, handlers, version]] = results(IMPORTED)
    assert left == []
    assert handlers == ["disabled"] and version == "3.0.0b4"


def test_has_what_is_requested_later():
    _, requested = results(REQUESTED)
    assert requested == ["Taskflow", "PromptTrainer", "ZeroPaddingMapDataset", "squad_evaluate"]
