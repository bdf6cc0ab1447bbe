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


@pytest.mark.parametrize("switch", ["auto", "on", "required"])
def test_flash_attention_where_nothing_speaks_against_it(switch):
    decision = flash_attention(switch, "")
    assert (decision.enabled, decision.reason) == (True, "flash attention: on")


@pytest.mark.parametrize("switch", ["auto", "on"])
def test_flash_attention_falls_back_in_one_line(switch):
    decision = flash_attention(switch, "no GPU")
    assert (decision.enabled, decision.reason) == (False, "flash attention: off (no GPU), exact attention")


def test_flash_attention_required_where_it_is_not_right_is_an_error_with_the_way_out():
    with pytest.raises(UserError, match="not possible here: no GPU. Use --use_flash_attention auto for exact"):
        flash_attention("required", "no GPU")


def test_off_is_off_also_where_it_would_be_possible():
    assert not flash_attention("off", "").enabled


def test_fused_rms_norm_falls_back_with_its_reason():
    decision = fused_rms_norm("auto", "not built: make custom-ops")
    assert not decision.enabled
    assert decision.reason == "fused RMSNorm: off (not built: make custom-ops), the framework's own RMSNorm"
    with pytest.raises(UserError, match="not possible here: not built: make custom-ops. Use --use_fused_rms_norm auto"):
        fused_rms_norm("required", "not built: make custom-ops")
    assert fused_rms_norm("required", "").enabled


def test_one_line_says_which_rms_norm_is_used_and_why():
    by_paddle = fused_rms_norm("auto", "not built", "")
    assert by_paddle.enabled
    assert by_paddle.reason == "fused RMSNorm: on, by paddle.nn.functional.rms_norm (not built)"
    neither = fused_rms_norm("auto", "not built", "its result is off")
    assert not neither.enabled
    assert neither.reason == "fused RMSNorm: off (not built; its result is off), the framework's own RMSNorm"


def test_all_are_set_and_told():
    environment = {"NCCL_ALGO": "Ring", "HOME": "/root"}
    line = set_switches(environment)
    assert environment == {"HOME": "/root"} | PADDLE_FLAGS | VARIABLES
    assert line.startswith("deterministic: FLAGS_cudnn_deterministic=1, ") and "NCCL_ALGO=Ring" in line


def test_what_is_set_otherwise_is_refused_and_nothing_changed():
    environment = {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}
    expected = (
        "found FLAGS_embedding_deterministic=0, NCCL_ALGO=Tree in the environment, expected "
        "FLAGS_embedding_deterministic=1, NCCL_ALGO=Ring"
    )
    with pytest.raises(UserError, match=expected):
        set_switches(environment)
    assert environment == {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}


def test_paddle_is_asked():
    taken = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1, "FLAGS_cudnn_exhaustive_search": 0}
    check_switches(taken.get)
    with pytest.raises(UserError, match="Paddle did not take FLAGS_cudnn_deterministic, FLAGS_cudnn_exhaustive_search"):
        check_switches((taken | {"FLAGS_cudnn_deterministic": False, "FLAGS_cudnn_exhaustive_search": 1}).get)
