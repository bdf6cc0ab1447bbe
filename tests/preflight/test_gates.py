"""What a run may use, told before it starts, on simulated cards."""

from pathlib import Path

import pytest

from launch.config.run_config import RunConfig
from launch.devices import fused_ln
from launch.preflight import gpus
from launch.preflight.gpus import check_gates
from launch.switches import precision, switch
from tests.devices.fake_nvml import card

NOT_BUILT = (
    True,
    "fused RMSNorm: paddle.nn.functional.rms_norm, if the start finds it right (the module fused_ln is not built: "
    "make custom-ops)",
    "",
)
LLAMA = {"model_name_or_path": ["facebook/llama-7b"], "fp16": ["1"], "fp16_opt_level": ["O2"]}


@pytest.fixture
def told(monkeypatch):
    """told(kinds, **flags): {subject: (ok, found, fix)} with those cards here and used, a LLaMA-7B in float16."""
    monkeypatch.setattr(switch, "paddle_build", lambda: "12.6")
    monkeypatch.setattr(switch, "find_build", lambda: None)

    def check(kinds, **flags):
        cards = [card(kind, index) for index, kind in enumerate(kinds)]
        monkeypatch.setattr(gpus, "list_cards", lambda: cards)
        stated = LLAMA | {name: value if isinstance(value, list) else [value] for name, value in flags.items()}
        devices = tuple(str(one.index) for one in cards)
        findings = check_gates(RunConfig("run_pretrain", stated, devices, processes=max(1, len(devices))))
        return {finding.subject: (finding.ok, finding.found, finding.fix) for finding in findings}

    return check


EFFICIENT = "flash attention: on, by the memory efficient kernel, the one for compute capability"
LOSS_SCALE = "float16, loss scale 32768 (compute capability {} has no bfloat16, 8.0 (A100, 3090) has)"


@pytest.mark.parametrize(
    ("kinds", "bf16", "precision", "attention"),
    [
        (["A100"] * 8, "1", "bfloat16", "flash attention: on"),
        (["V100"], "auto", LOSS_SCALE.format("7.0"), f"{EFFICIENT} 7.0"),
        (["T4"], "auto", LOSS_SCALE.format("7.5"), f"{EFFICIENT} 7.5"),
    ],
    ids=["A100", "V100", "T4"],
)
def test_cards_take_the_precision_and_the_kernels_they_have(told, kinds, bf16, precision, attention):
    assert told(kinds, fp16="0", bf16=bf16) == {
        "precision": (True, precision, ""),
        "attention": (True, attention, ""),
        "RMSNorm": NOT_BUILT,
        "rotary embedding": (True, "fused rotary embedding: on", ""),
    }


@pytest.mark.parametrize(
    ("kinds", "flags", "reason"),
    [
        (["P100"], {}, "compute capability 6.0"),
        (["V100"] * 8, {"model_name_or_path": "chatglm-6b"}, "compute capability 7.0"),
        (["T4"], {"model_name_or_path": "chatglm2-6b"}, "compute capability 7.5"),
        (["A100", "V100"], {"model_name_or_path": "chatglm-6b"}, "compute capability 7.0"),
        (["A100"], {"fp16": "0"}, "float32"),
        (["A100"], {"fp16_opt_level": "O0"}, "float32"),
        (["A100"], {"model_name_or_path": "chatglm2-6b", "fp16_opt_level": "O1"}, "under --fp16_opt_level O1 queries"),
        (["A100"], {"model_name_or_path": "opt-6.7b"}, "paddlenlp's code of this family never calls it"),
    ],
)
def test_required_where_it_is_not_right_is_refused(told, kinds, flags, reason):
    ok, found, fix = told(kinds, use_flash_attention="required", **flags)["--use_flash_attention"]
    assert not ok and found.startswith(f"found required, not possible here: {reason}")
    assert fix == "--use_flash_attention auto for exact attention"


def test_on_a_cpu_only_what_is_required_is_refused(told):
    flags = {"device": "cpu", "fp16": "0"}
    assert told([], **flags, bf16="auto")["precision"] == (True, "float32", "")
    assert told([], **flags)["attention"] == (True, "flash attention: off (no GPU), exact attention", "")
    ok, found, _ = told([], **flags, use_flash_attention="required")["--use_flash_attention"]
    assert not ok and "no GPU" in found
    refused = (False, "found on, but the CPU has no kernels in half precision", "--bf16 0")
    assert told([], **flags, cpu_fast="off", bf16="1")["--bf16"] == refused


def test_on_a_cpu_bfloat16_is_that_of_products(told, monkeypatch):
    flags = {"device": "cpu", "fp16": "0"}
    monkeypatch.setattr(precision, "bfloat16_obstacle", lambda: "")
    line = "bfloat16 in products of matrices, float32 in sums, norms, softmax, loss and stored weights"
    for words in ({"bf16": "1"}, {"bf16": "auto"}, {"precision": "auto"}):
        assert told([], **flags, **words)["precision"] == (True, line, "")
    for words in ({"cpu_fast": "off"}, {"fp16": "1", "fp16_opt_level": "O1"}):
        assert told([], **flags | {"bf16": "auto"} | words)["precision"][1].startswith("float32")
    monkeypatch.setattr(precision, "bfloat16_obstacle", lambda: "it has none")
    assert told([], **flags, bf16="1")["--bf16"] == (False, "found on, but it has none", "--bf16 0")
    found = told([], **flags, precision="auto")["precision"][1]
    assert found.startswith("float32, chosen here as it has none; ")


def built(**record) -> fused_ln.Build:
    return fused_ln.Build(Path("fused_ln"), **{"paddle": fused_ln.paddle_version(), "sources": "-", **record})


CUDA_13 = {"cuda": "13.0", "architectures": ((7, 5), (8, 0), (9, 0))}


@pytest.mark.parametrize(
    ("build", "kinds", "flags", "reason"),
    [
        (None, ["A100"], {}, "the module fused_ln is not built: make custom-ops"),
        (built(paddle="3.2.0", **CUDA_13), ["A100"], {}, "the module fused_ln was built for Paddle 3.2.0, here is "),
        (built(), ["A100"], {}, "the module fused_ln was built without CUDA: make custom-ops, where nvcc is found"),
        (built(**CUDA_13), ["A100", "V100"], {}, "compute capability 7.0, CUDA 13.0 builds it for 7.5 and newer"),
        (built(paddle=""), [], {"device": "cpu", "fp16": "0"}, "the module fused_ln in fused_ln is not ours: "),
        (built(), ["A100"], {"model_name_or_path": "opt-6.7b"}, "paddlenlp's code of opt never calls it"),
    ],
)
def test_fused_rms_norm_is_refused_where_it_is_required_and_falls_back_elsewhere(
    told, monkeypatch, build, kinds, flags, reason
):
    monkeypatch.setattr(switch, "find_build", lambda: build)
    ok, found, fix = told(kinds, **flags, use_fused_rms_norm="required")["--use_fused_rms_norm"]
    assert not ok and found.startswith(f"found required, not possible here: {reason}")
    assert fix == "make custom-ops; or --use_fused_rms_norm auto for the framework's own RMSNorm"
    ok, found, _ = told(kinds, **flags, use_fused_rms_norm="auto")["RMSNorm"]
    on_card = kinds and "model_name_or_path" not in flags  # of a model that calls it
    instead = "paddle.nn.functional.rms_norm, if the start finds it right" if on_card else "off"
    assert ok and found.startswith(f"fused RMSNorm: {instead} ({reason}")
    assert "off by --use_fused_rms_norm off" in told(kinds, **flags, use_fused_rms_norm="off")["RMSNorm"][1]


@pytest.mark.parametrize(
    ("build", "kinds", "flags"),
    [
        (built(**CUDA_13), ["A100", "H100"], {}),
        (built(**CUDA_13), ["T4"], {}),
        (built(paddle=""), ["A100"], {}),  # somebody else's, for cards
        (built(), [], {"device": "cpu", "fp16": "0"}),
    ],
)
def test_fused_rms_norm_is_used_where_it_is_built(told, monkeypatch, build, kinds, flags):
    monkeypatch.setattr(switch, "find_build", lambda: build)
    assert told(kinds, **flags, use_fused_rms_norm="required")["RMSNorm"] == (True, "fused RMSNorm: on", "")


@pytest.mark.parametrize(
    ("kinds", "flags", "flag", "reason", "instead"),
    [
        (["A100"], {"model_name_or_path": "opt-6.7b"}, "use_fused_rope", "paddlenlp's code of", "separate operators"),
        ([], {"device": "cpu", "fp16": "0"}, "use_fused_rope", "no GPU", "separate operators"),
        (["A100"] * 2, {"tensor_parallel_degree": "2", "lora": "1"}, "tensor_parallel_overlap", "LoRA: ", "one after"),
    ],
)
def test_fused_kernels_are_refused_where_they_are_required_and_off_elsewhere(told, kinds, flags, flag, reason, instead):
    ok, found, fix = told(kinds, **flags, **{flag: "required"})[f"--{flag}"]
    assert not ok and found.startswith(f"found required, not possible here: {reason}")
    assert fix.startswith(f"--{flag} auto for {instead}")
    told_of = {"use_fused_rope": "rotary embedding", "tensor_parallel_overlap": "tensor parallel"}[flag]
    ok, found, _ = told(kinds, **flags)[told_of]
    assert ok and f": off ({reason}" in found and f"), {instead}" in found
    assert f"off by --{flag} off" in told(kinds, **flags, **{flag: "off"})[told_of][1]


def test_what_is_said_of_attention_and_tensor_parallel_elsewhere(told):
    found = told(["A100"] * 2, tensor_parallel_degree="2")
    assert found["tensor parallel"] == (True, "tensor parallel beside products: on", "")
    words = "enable_mp_async_allreduce"
    assert "tensor parallel" not in told(["A100"] * 2, tensor_parallel_degree="2", tensor_parallel_config=words)
    off = "flash attention: off by --use_flash_attention off, exact attention"
    assert told(["A100"], use_flash_attention="0")["attention"][1] == off
    assert told([]) == {}, "without knowing the cards nothing is said"
    assert "attention" not in told(["A100"], model_name_or_path="nowhere"), "a check of its own reports it"
