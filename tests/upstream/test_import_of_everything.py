"""What an import of paddlenlp brings with it."""

import json
import subprocess
import sys

import pytest

from tests.recipes.machine import ROOT

PROGRAM = """
import json, sys
import paddle
handlers = []
paddle.disable_signal_handler = lambda: handlers.append("disabled")
corrected = len(sys.argv) > 1
if corrected:
    from launch.upstream import correct
    correct(["import_of_everything"])
import paddlenlp.trainer, paddlenlp.transformers, paddlenlp.peft, paddlenlp.generation
names = ("sklearn", "pandas", "pyarrow", "datasets", "fastapi", "seqeval")
print(json.dumps([[name for name in names if name in sys.modules], handlers, paddlenlp.__version__]))
if corrected:
    from paddlenlp.prompt import PromptTrainer
    from paddlenlp.datasets import ZeroPaddingMapDataset
    from paddlenlp.trainer import trainer_compress
    assert hasattr(paddlenlp.datasets, "load_dataset") and not hasattr(paddlenlp.prompt, "nothing")
    print(json.dumps([paddlenlp.Taskflow.__name__, PromptTrainer.__name__, ZeroPaddingMapDataset.__name__,
                      trainer_compress.squad_evaluate.__name__]))
"""


def results(*argv: str) -> list:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.long
def test_import_of_everything():
    """What training does not use is left out, and there when it is requested later."""
    [[left, handlers, version], requested] = results("corrected")
    assert (left, handlers, version) == ([], ["disabled"], "3.0.0b4")
    assert requested == ["Taskflow", "PromptTrainer", "ZeroPaddingMapDataset", "squad_evaluate"]
    assert "sklearn" in results()[0][0]
