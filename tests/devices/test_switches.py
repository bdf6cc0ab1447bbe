"""The decisions of the three-state switches; those of --deterministic: set, refused where the environment says
otherwise, checked in Paddle."""

import pytest

from launch.devices.switches import (
    PADDLE_FLAGS,
    VARIABLES,
    check_switches,
    flash_attention,
    fused_rms_norm,
    set_switches,
)
from launch.errors import UserError


@pytest.mark.parametrize(
    ("decision", "enabled", "reason"),
    [
        (flash_attention("auto", ""), True, "flash attention: on"),
        (flash_attention("on", ""), True, "flash attention: on"),
        (flash_attention("required", ""), True, "flash attention: on"),
        (flash_attention("off", ""), False, ""),
        (flash_attention("auto", "no GPU"), False, "flash attention: off (no GPU), exact attention"),
        (flash_attention("on", "no GPU"), False, "flash attention: off (no GPU), exact attention"),
        (fused_rms_norm("required", ""), True, ""),
        (fused_rms_norm("auto", "not built"), False, "off (not built), the framework's own RMSNorm"),
        (fused_rms_norm("auto", "not built", ""), True, "on, by paddle.nn.functional.rms_norm (not built)"),
        (fused_rms_norm("auto", "not built", "its result is off"), False, "off (not built; its result is off), the"),
    ],
)
def test_a_switch_is_decided_in_one_line(decision, enabled, reason):
    assert decision.enabled == enabled and reason in decision.reason


@pytest.mark.parametrize(
    ("switch", "flag"), [(flash_attention, "use_flash_attention"), (fused_rms_norm, "use_fused_rms_norm")]
)
def test_required_where_it_is_not_right_is_an_error_with_the_way_out(switch, flag):
    with pytest.raises(UserError, match=f"not possible here: no GPU. Use --{flag} auto"):
        switch("required", "no GPU")


def test_deterministic_switches_are_set_and_told_or_refused():
    environment = {"NCCL_ALGO": "Ring", "HOME": "/root"}
    line = set_switches(environment)
    assert environment == {"HOME": "/root"} | PADDLE_FLAGS | VARIABLES
    assert line.startswith("deterministic: FLAGS_cudnn_deterministic=1, ") and "NCCL_ALGO=Ring" in line
    environment = {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}
    expected = (
        "found FLAGS_embedding_deterministic=0, NCCL_ALGO=Tree in the environment, expected "
        "FLAGS_embedding_deterministic=1, NCCL_ALGO=Ring"
    )
    with pytest.raises(UserError, match=expected):
        set_switches(environment)
    assert environment == {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}
    taken = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1, "FLAGS_cudnn_exhaustive_search": 0}
    check_switches(taken.get)
    with pytest.raises(UserError, match="Paddle did not take FLAGS_cudnn_deterministic, FLAGS_cudnn_exhaustive_search"):
        check_switches((taken | {"FLAGS_cudnn_deterministic": False, "FLAGS_cudnn_exhaustive_search": 1}).get)
