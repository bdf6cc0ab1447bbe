"""A pretended machine: so many cards by a stand-in for NVML, a large disk, and a Paddle that cannot be imported or
only launches.

    machine = Machine(tmp_path, cards=8)
    done = machine.run("llama-7b/pretrain", "--max_steps", "10", GPUS="4")
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import launch.kubernetes
import launch.plan.plan_report
import launch.preflight.memory
import launch.preflight.report
import launch.processes.supervise
import launch.recipe  # noqa: F401 - and what it imports later: for the forks
from launch.config import removed
from launch.config.variables import KUBERNETES, NODES, RECIPE
from tests.corpora import write_corpus, write_dialogues
from tests.forked_commands import start_forked

ROOT = Path(__file__).resolve().parents[2]
FAKE_LAUNCHER = ROOT / "tests" / "processes" / "fake_launcher.py"

# pynvml: its functions are those of a stand-in.
NVML = """
import sys
sys.path.append({root!r})
from tests.devices.fake_nvml import FakeNvml, NVMLError, card
nvml = FakeNvml([card({kind!r}, index) for index in range({cards})], has_driver={cards} > 0)
def __getattr__(name):
    return getattr(nvml, name)
"""

# Python imports this at its start: a disk on which the checkpoints of any recipe have room.
DISK = """
import shutil
from collections import namedtuple
usage = namedtuple("usage", "total used free")
shutil.disk_usage = lambda path: usage(10**13, 0, 10**13)
"""

# `import paddle` is an error; `python -m paddle.distributed.launch` needs it and so is allowed to.
PADDLE = """
import sys
if not any("paddle.distributed.launch" in word for word in sys.orig_argv[1:4]):
    raise AssertionError("Paddle was imported")
"""

# What may be set where the tests run (`make test ARGS=...`) and must not reach the recipes.
VARIABLES = {"ACTION", "CUDA_VISIBLE_DEVICES", *RECIPE, *NODES, *KUBERNETES, *removed.VARIABLES}


def environment(**variables: str) -> dict[str, str]:
    """This process's for a recipe: this Python first in PATH, and of the variables of recipes those given alone."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return clean | {"PATH": f"{Path(sys.executable).parent}:{clean['PATH']}"} | variables


class Machine:
    """cards: how many, of a kind of tests/devices/fake_nvml.py. `folder` is where recipes run; it holds a corpus,
    data/corpus, and dialogues, data/train.json and data/dev.json."""

    def __init__(self, tmp_path: Path, cards: int = 0, kind: str = "A100"):
        self.folder = tmp_path / "work"
        self.stubs = tmp_path / "stubs"
        self.said = tmp_path / "said"
        self.said.mkdir(parents=True)
        (self.stubs / "paddle" / "distributed").mkdir(parents=True)
        (self.stubs / "sitecustomize.py").write_text(DISK)
        (self.stubs / "pynvml.py").write_text(NVML.format(root=str(ROOT), cards=cards, kind=kind))
        (self.stubs / "paddle" / "__init__.py").write_text(PADDLE)
        (self.stubs / "paddle" / "version").mkdir()
        (self.stubs / "paddle" / "version" / "__init__.py").write_text("cuda_version     = '12.6'\n")
        (self.stubs / "paddle" / "distributed" / "__init__.py").touch()
        (self.stubs / "paddle" / "distributed" / "launch.py").write_text(FAKE_LAUNCHER.read_text())
        (self.folder / "data").mkdir(parents=True)
        write_corpus(self.folder / "data" / "corpus")
        write_dialogues(self.folder / "data")

    def environment(self, **variables: str) -> dict[str, str]:
        return environment(PYTHONPATH=str(self.stubs)) | variables

    def run(self, recipe: str, *flags: str, **variables: str) -> subprocess.CompletedProcess:
        """The recipe as `bash recipes/X.sh` runs it, without the time that its imports take."""
        words = [str(ROOT / "recipes" / f"{recipe}.sh"), *flags]
        return start_forked("launch/recipe.py", self.folder, words, self.environment(**variables), self.said)

    def print(self, recipe: str, *flags: str, **variables: str) -> list[str]:
        """The words of the printed command."""
        done = self.run(recipe, *flags, ACTION="print", **variables)
        assert done.returncode == 0, done.stderr
        return shlex.split(done.stdout.replace("\\\n", " "))
