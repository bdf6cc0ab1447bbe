"""make, the recipe, the launcher, the ranks: whichever is told to end or killed, the ranks save and nothing is left.

The whole chain as a user starts it, with a launcher that behaves as Paddle's and ranks that stand in for training:
they ask for the signals as training does and write a file where it saves.
"""

import os
import pty
import shutil
import signal
import subprocess
import time

import psutil
import pytest

from tests.processes.waiting import gone, wait_for
from tests.recipes.machine import ROOT, Machine

RANK = """\
import os, sys, time
sys.path.insert(0, {root!r})
from launch.processes.orphans import die_with_parent
from launch.processes.orphans import recorded_signals
die_with_parent()
rank = os.environ["PADDLE_TRAINER_ID"]
with recorded_signals() as received:
    with open("pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while not received:
        time.sleep(0.02)
    time.sleep(0.3)
    with open(f"saved.{{rank}}", "w") as file:
        file.write(os.environ["LAUNCH_COMMAND"])
"""

LINKS = ("make", "recipe", "launcher", "terminal")
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
CONTINUES = "make pretrain-tiny ARGS='--seed 7'"
QUICK = {("make", signal.SIGTERM), ("make", signal.SIGHUP), ("recipe", signal.SIGKILL), ("launcher", signal.SIGKILL)}


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    """A folder with our Makefile and a recipe of two ranks that stand in for training."""
    machine = Machine(tmp_path_factory.mktemp("chain"))
    folder = machine.folder
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "launch").mkdir()
    for name in ("environment", "recipe.sh"):
        (folder / "launch" / name).symlink_to(ROOT / "launch" / name)
    (folder / "run_pretrain.py").write_text(RANK.format(root=str(ROOT)))
    recipe = folder / "recipes" / "tiny" / "pretrain.sh"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(
        f"source {ROOT}/launch/recipe.sh\nPROCESSES=2\n"
        f'run {folder}/run_pretrain.py --model_name_or_path llama-7b --input_dir data --output_dir out "$@"\n'
    )
    return machine


class Chain:
    """A running `make pretrain-tiny` in a session of its own, whose process is `make`."""

    COMMAND = ["make", "--no-print-directory", "-o", "setup", "pretrain-tiny", "ARGS=--seed 7 --overwrite_output_dir 1"]

    def __init__(self, machine: Machine):
        self.folder = machine.folder
        self.environment = machine.environment()
        for left in ("pids", "saved.0", "saved.1"):
            (self.folder / left).unlink(missing_ok=True)
        self.ranks, self.pids = [], {}

    def start(self, **options) -> None:
        with open(self.folder / "shown", "w") as shown:
            make = subprocess.Popen(
                self.COMMAND,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=shown,
                start_new_session=True,
                **options,
            )
        self._find(make.pid)

    def start_in_a_terminal(self) -> int:
        """In the foreground of a terminal; the descriptor of its other end."""
        make, terminal = pty.fork()
        if make == 0:
            os.chdir(self.folder)
            os.execvpe("make", self.COMMAND, self.environment)
        self._find(make)
        return terminal

    def _find(self, make: int) -> None:
        wait_for(lambda: len(self._ranks()) == 2)
        self.ranks = self._ranks()
        launcher = psutil.Process(self.ranks[0]).ppid()
        recipe = psutil.Process(launcher).ppid()
        self.pids = {"make": make, "recipe": recipe, "launcher": launcher}
        assert psutil.Process(recipe).ppid() == make, "the recipe is not make's own child: a signal would not reach it"

    def _ranks(self) -> list[int]:
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def send(self, link: str, number: int) -> None:
        if link == "terminal":
            os.killpg(self.pids["make"], number)
        else:
            os.kill(self.pids[link], number)

    def wait_for_end(self) -> None:
        wait_for(lambda: all(gone(pid) for pid in [*self.ranks, *self.pids.values()]))

    @property
    def saved(self) -> list[str]:
        """What each rank that has saved says how to continue."""
        return [file.read_text() for file in sorted(self.folder.glob("saved.*"))]


@pytest.fixture
def chain(machine):
    chain = Chain(machine)
    yield chain
    for pid in [*chain.pids.values(), *chain.ranks]:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("link", "number"),
    [
        pytest.param(link, number, marks=[] if (link, number) in QUICK else [pytest.mark.long], id=link + number.name)
        for link in LINKS
        for number in SIGNALS
    ],
)
def test_ranks_save_and_end_whatever_is_ended(chain, link, number):
    chain.start()
    chain.send(link, number)
    chain.wait_for_end()
    assert chain.saved == [CONTINUES] * 2


def test_nohup_survives_the_end_of_its_terminal(chain):
    chain.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    chain.send("terminal", signal.SIGHUP)
    for rank in chain.ranks:
        os.kill(rank, signal.SIGHUP)
    time.sleep(0.5)
    assert not any(gone(pid) for pid in [*chain.ranks, *chain.pids.values()])
    assert not chain.saved
    chain.send("make", signal.SIGTERM)
    chain.wait_for_end()
    assert chain.saved == [CONTINUES] * 2


def test_a_terminal_that_is_closed_ends_the_run(chain):
    os.close(chain.start_in_a_terminal())
    chain.wait_for_end()
    assert chain.saved == [CONTINUES] * 2
