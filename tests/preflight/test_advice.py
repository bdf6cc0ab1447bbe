"""Advice where a run does not fit: in preflight's refusal and in plan-X; what it says holds when it is done."""

import re
import shlex

from tests.recipes.machine import Machine


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
