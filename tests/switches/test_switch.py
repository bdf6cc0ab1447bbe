"""What a switch says of its decision, and whom it asks for it."""

from types import SimpleNamespace

import pytest

from launch.errors import UserError
from launch.families.llama import LLAMA
from launch.switches import FLASH_ATTENTION, FUSED_RMS_NORM, SWITCHES
from launch.switches.switch import SwitchCase

A100 = SwitchCase(LLAMA, (8, 0), "12.6")


@pytest.mark.parametrize(
    ("switch", "setting", "obstacle", "enabled", "reason"),
    [
        (FLASH_ATTENTION, "auto", "", True, "flash attention: on"),
        (FLASH_ATTENTION, "on", "", True, "flash attention: on"),
        (FLASH_ATTENTION, "required", "", True, "flash attention: on"),
        (FLASH_ATTENTION, "off", "", False, "flash attention: off by --use_flash_attention off, exact attention"),
        (FLASH_ATTENTION, "auto", "no GPU", False, "flash attention: off (no GPU), exact attention"),
        (FLASH_ATTENTION, "on", "no GPU", False, "flash attention: off (no GPU), exact attention"),
        (FUSED_RMS_NORM, "required", "", True, "fused RMSNorm: on"),
        (FUSED_RMS_NORM, "auto", "not built", False, "fused RMSNorm: off (not built), the framework's own RMSNorm"),
    ],
)
def test_a_switch_is_decided_in_one_line(switch, setting, obstacle, enabled, reason):
    decision = switch.decide(setting, obstacle, A100)
    assert (decision.enabled, decision.reason) == (enabled, reason)


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.flag)
def test_required_where_it_is_not_right_is_an_error_with_the_way_out(switch):
    with pytest.raises(UserError) as raised:
        switch.decide("required", "no GPU", A100)
    assert str(raised.value) == (
        f"--{switch.flag} required: not possible here: no GPU. Use --{switch.flag} auto for {switch.instead}."
    )


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.flag)
def test_every_reason_has_a_source_and_a_plan_counts_on_nothing_that_is_off(switch):
    assert switch.cases and all(reason.source for reason in switch.cases)
    if switch.subject:
        assert not switch.planned(SimpleNamespace(**{switch.flag: False}), A100)
