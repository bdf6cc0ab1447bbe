"""Host memory that offload needs, before anything starts."""

from types import SimpleNamespace

import pytest

from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.preflight import memory

GIB = 2**30
RUN = (
    "--model_name_or_path chatglm2-6b --do_train 1 --fp16 1 --fp16_opt_level O2 --max_length 128 "
    "--per_device_train_batch_size 4 --output_dir out"
)


@pytest.fixture
def available(monkeypatch):
    def gib(size: float) -> None:
        monkeypatch.setattr(memory, "available_bytes", lambda: size * GIB)

    return gib


def findings(flags: str):
    words = parse_flags([*RUN.split(), "--sharding", *flags.split()])
    situation = RunConfig("launch/finetune_generation.py", words, processes=2, gpu_memory_gb=32)
    return {one.subject: one for one in memory.check_memory(situation)}


def test_what_offload_needs_must_be_there(available):
    """2 ranks keep 14 bytes of each of 6.24 billion parameters: 81 GiB, and what a process takes."""
    available(80)
    found = findings("stage2 offload")["host memory"]
    assert not found.ok and found.found.startswith("87 GiB for 2 ranks here, 80 GiB available")
    available(90)
    assert findings("stage2 offload")["host memory"].ok
    available(1)
    assert findings("stage2 offload --force 1")["host memory"].ok, "a user may insist"
    assert "host memory" not in findings("stage2")


def test_what_a_container_or_the_environment_leaves_counts(monkeypatch, tmp_path):
    total = SimpleNamespace(available=500 * GIB, total=100 * GIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: total)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert findings("stage2 offload")["host memory"].found.endswith("500 GiB available")
    monkeypatch.setenv("FLAGS_use_auto_growth_pinned_allocator", "0")
    assert findings("stage2 offload")["host memory"].found.endswith("100 GiB available")
    for name, text in (("max", 60 * GIB), ("current", 50 * GIB), ("stat", f"anon 7\ninactive_file {40 * GIB}\n")):
        (tmp_path / f"memory.{name}").write_text(str(text))
    assert findings("stage2 offload")["host memory"].found.endswith("50 GiB available")
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.delenv("FLAGS_use_auto_growth_pinned_allocator")
    assert findings("stage2 offload")["host memory"].found.endswith("500 GiB available")


def test_on_a_cpu_all_ranks_share_the_memory(available):
    """It fits where twice as much is there as one rank has."""
    available(10_000)
    found = findings("stage2 --device cpu")["host memory"].found
    each = float(found.removesuffix(" GiB of tensors in each of 2 ranks, 10000.0 GiB available here"))
    assert each > 40
    for gib, ok in ((1.9 * each, False), (2.1 * each, True)):
        available(gib)
        assert findings("stage2 --device cpu")["host memory"].ok == ok
