"""Advice where a run does not fit: in preflight's refusal and in plan-X; what it says holds when it is done."""

import re
import shlex

import pytest

from tests.recipes.machine import Machine

# Too much for 40 GB.
ASKED = "--recompute 0 --per_device_train_batch_size 8 --gradient_accumulation_steps 1"


def advised(lines: str) -> list[tuple[float, str]]:
    """(GiB, ARGS) of each change in a plan."""
    sizes = [float(size) for size in re.findall(r"^ *\d+\. +([\d.]+) GiB  x", lines, re.M)]
    return list(zip(sizes, re.findall(r'^ +ARGS="(.*)"$', lines, re.M), strict=True))


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param({}, id="8 cards", marks=pytest.mark.long),
        pytest.param({"GPUS": "4"}, id="4 cards", marks=pytest.mark.nightly),
    ],
)
def test_what_a_plan_advises_fits_as_it_says(wishes, tmp_path):
    machine = Machine(tmp_path)
    wishes = wishes | {"ACTION": "plan", "GPU_MEMORY_GB": "40"}
    plan = machine.run("llama-7b/pretrain", ARGS=ASKED, **wishes)
    changes = [change for change in advised(plan.stdout) if "model_name_or_path" not in change[1]]
    assert not re.search("^fits: ", plan.stdout, re.M) and changes
    size, arguments = changes[0]
    again = machine.run("llama-7b/pretrain", ARGS=arguments, **wishes)
    assert re.search(rf"^fits: {size:.1f} GiB", again.stdout, re.M), again.stdout


def test_preflight_refuses_with_the_changes_that_help(tmp_path):
    machine = Machine(tmp_path, cards=1, kind="A100-40G")
    done = machine.run("llama-7b/finetune", GPUS="1", GPU_MEMORY_GB="40", ARGS="--tensor_parallel_degree 1")
    text = " ".join(done.stderr.split())
    assert done.returncode == 2 and "✗ memory" in text
    assert re.search(r'fix: \(1\) ARGS="[^"]+": .* GiB, time a token x \d\.\d\d', text)
    assert re.search(r'ARGS="--tensor_parallel_degree 1 [^"]*--lora 1[^"]*": [^:]*LoRA, ', text)
    assert "adapters are trained, the model is frozen" in text
    assert "--force 1 starts it all the same" in text
    assert shlex.split(re.search(r'ARGS="([^"]*)"', text)[1])
