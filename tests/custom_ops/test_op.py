"""The module fused_ln as Paddle's operator: numbers, gradients, views, refusals, forks, static graphs."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cpu_training import default_torch_python
from launch.cpu.settings import this_processor
from tests.store import ROOT

RANKS = "tests.custom_ops.op_ranks"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.long  # it is built first

ROUNDING = {"float32": 4e-7, "bfloat16": 2.0**-8, "float16": 2.0**-11}
PAIRS = [("float32",) * 2, ("bfloat16",) * 2, ("float16",) * 2, ("bfloat16", "float32"), ("float16", "float32")]


@pytest.fixture(scope="module")
def facts(fused_ranks, tmp_path_factory) -> dict:
    """What functions of op_ranks.py find, in one process."""
    return fused_ranks(1, f"{RANKS}:facts", str(tmp_path_factory.mktemp("static")), PAIRS)[0]


def test_numbers_of_float64(facts):
    for dtypes, of_shapes in zip(PAIRS, facts["errors"], strict=True):
        for errors in of_shapes:
            for error, dtype in zip(errors["ours"], (dtypes[1], dtypes[0], dtypes[1]), strict=True):
                assert error <= ROUNDING[dtype], dtypes


@pytest.mark.parametrize(("rows", "hidden"), [(512, 512), (64, 4096)])
def test_no_further_from_float64_than_paddle_and_torch(fused_ranks, rows, hidden):
    """One unit of float32's last place is left to luck. Paddle's own kernel needs AVX-512; elsewhere it ends by
    SIGILL."""
    (errors,) = fused_ranks(1, f"{RANKS}:errors", rows, hidden, "float32", "float32")
    processor = this_processor()
    own = None
    if processor is None or processor.has_avx512:
        (own,) = fused_ranks(1, f"{RANKS}:own_kernel_error", rows, hidden)
    command = [default_torch_python(), "-m", "tests.custom_ops.torch_errors", str(rows), str(hidden)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"`make test-long` installs what is compared with: {done.stderr}"
    torch = json.loads(done.stdout)
    print(rows, hidden, errors, "incubate", own, "torch", torch)
    for ours, composed in zip(errors["ours"], errors["composed"], strict=True):
        assert ours <= composed + 2.0**-24
    assert own is None or errors["ours"][0] <= own + 2.0**-24
    for ours, theirs in zip(errors["ours"], torch, strict=True):
        assert ours <= theirs + 2.0**-24


def test_gradients_and_static_graphs(facts):
    """By finite differences; without rows, of what is frozen, of views and with recomputation as of whole copies; made
    static and saved."""
    assert facts["gradient_of_differences"] < 1e-5
    assert facts["layouts"] == dict.fromkeys(["strided", "transposed", "middle", "one row"], 0.0)
    assert facts["corner_cases"] == {
        "empty": [[0, 64], [0, 64], 0.0],
        "frozen weight": 0.0,
        "frozen x": 0.0,
        "inverse_rms": [[3], True],
    }
    assert facts["recomputed"] == 0.0 and facts["static"] == [0.0, 0.0]


def test_wrong_shapes_and_dtypes_are_named(facts):
    assert [message.split("; ")[0] for message in facts["refused"]] == [
        "fused_rms_norm: x has shape [4, 63], weight [64]",
        "fused_rms_norm: x has shape [4, 64], weight [1, 64]",
        "fused_rms_norm: x is paddle.float64, weight paddle.float32",
        "fused_rms_norm: x is paddle.float32, weight paddle.bfloat16",
        "fused_rms_norm: x is paddle.float16, weight paddle.bfloat16",
    ]


FORK = """
import faulthandler, os
from launch.reporting.quiet import import_paddle_quietly
import_paddle_quietly()
import paddle, paddlenlp.trainer, fused_ln
x, weight = paddle.randn([512, 512]), paddle.ones([512])
expected = fused_ln.fused_rms_norm(x, weight)[0].numpy()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    os._exit(0 if (fused_ln.fused_rms_norm(x, weight)[0].numpy() == expected).all() else 1)
print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_can_use_it_after_its_parent_has(site):
    """With two threads, and what a parent inherits that was started by a process with scikit-learn. Without what launch
    sets, Paddle's own operators hang here, too (launch/reporting/quiet.py)."""
    environment = os.environ | {"PYTHONPATH": f"{site}:{ROOT}", "OMP_NUM_THREADS": "2", "KMP_INIT_AT_FORK": "FALSE"}
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["child: 0"], done.stderr


def test_llama_asks_for_it_as_upstreams_does_not(facts):
    assert "use_fast_layer_norm" in facts["upstreams_llama"] and 5 < facts["llama_loss"] < 7
    assert facts["linked_openmp"] == ["libiomp5.so"], "Paddle's alone"


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(), reason="this system gives no huge pages"
)
def test_a_large_result_takes_huge_pages(fused_ranks):
    """64 MiB are 16,384 pages of 4 KiB, of which malloc as it comes has to fault in each, or 32 of 2 MiB."""
    (faults,) = fused_ranks(1, f"{RANKS}:page_faults", 4096, 4096)
    assert min(faults) < 2000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
@pytest.mark.parametrize("held", [0, 48 << 20])
def test_a_result_of_some_megabytes_is_kept_by_malloc_as_it_comes(fused_ranks, held):
    """4 MiB are 1,024 pages, which malloc would give back and fault in again with each call."""
    (faults,) = fused_ranks(1, f"{RANKS}:page_faults", 2048, 512, held)
    assert min(faults) < 100
