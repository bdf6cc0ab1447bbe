"""The decisions of the three-state switches, with simulated devices."""

import pytest

from launch.devices.gates import flash_attention, fused_rms_norm
from launch.devices.peak import peak_flops
from launch.errors import UserError

A100, V100, CPU = (8, 0), (7, 0), None


@pytest.mark.parametrize(
    "capability, dtype, enabled, reason",
    [
        (A100, "bfloat16", True, "on"),
        (A100, "float16", True, "on"),
        (A100, "float32", False, "needs --fp16 1 or --bf16 1"),
        (V100, "float16", False, "compute capability 7.0"),
        (CPU, "float32", False, "no GPU"),
    ],
)
def test_flash_attention_is_on_only_where_it_is_right(capability, dtype, enabled, reason):
    decision = flash_attention("auto", capability, dtype)
    assert decision.enabled is enabled
    assert reason in decision.reason


def test_flash_attention_required_on_a_v100_is_an_error_with_the_way_out():
    with pytest.raises(UserError, match=r"7\.0.*--use_flash_attention auto"):
        flash_attention("required", V100, "float16")


def test_off_is_off_also_where_it_would_be_possible():
    assert not flash_attention("off", A100, "bfloat16").enabled


def test_fused_rms_norm_falls_back_with_its_reason_when_it_is_not_built(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "fused_ln is not installed" in fused_rms_norm("auto", A100).reason
    with pytest.raises(UserError, match="fused_ln"):
        fused_rms_norm("required", A100)


def test_peak_rates_are_found_by_the_drivers_names():
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("Tesla V100-SXM2-32GB") == 125e12
    assert peak_flops("NVIDIA GeForce RTX 4090") == 165.2e12
    assert peak_flops("Some Future Card") is None
