"""Plans of a card whose rates a certificate has measured."""

import json
from dataclasses import replace

import pytest

from launch.config.flag_values import parse_flags
from launch.errors import UserError
from launch.plan.calibration import calibrated
from launch.plan.hardware import CARDS
from launch.plan.job import Job
from launch.plan.time_plan import plan_time

A100 = CARDS["A100-80G"]
FLAGS = "--model_name_or_path llama-7b --max_seq_length 2048 --bf16 1 --fp16_opt_level O2 --lora 1"


def certificate(folder, ratios, cards=("NVIDIA A100-SXM4-80GB",), pretended=False) -> str:
    rows = [{"numbers": {"unit": "s", "planned": 2.0, "measured": 2.0 * ratio}} for ratio in ratios]
    rows.append({"numbers": {"unit": "GiB", "planned": 1.0, "measured": 9.0}})
    of = {"pretended": pretended, "cards": [[name, 80 * 2**30, [8, 0]] for name in cards]}
    file = folder / "certify.json"
    file.write_text(json.dumps({"of": of, "results": [{"rows": rows}, {"rows": [{"numbers": {}}]}]}))
    return str(file)


def test_a_card_that_takes_longer_has_lower_rates_and_longer_plans(tmp_path):
    card, line = calibrated(A100, certificate(tmp_path, [1.2, 1.5, 9.0]))
    factor = A100.half_flops / card.half_flops
    assert factor == pytest.approx(1.5) and line.endswith("times x 1.50, the median of 3 measured steps")
    assert replace(card, half_flops=A100.half_flops, full_flops=A100.full_flops,
                   memory_bandwidth=A100.memory_bandwidth) == A100  # fmt: skip
    plans = [plan_time(Job.from_flags("run_pretrain", parse_flags(FLAGS.split()), 1, one), one) for one in (A100, card)]
    assert 1.4 < plans[1].step_seconds / plans[0].step_seconds <= 1.5001


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ratios": []}, "has no measured steps. Run make certify QUICK=1 on a card."),
        ({"pretended": True}, "has no measured steps"),
        ({"cards": ["Tesla T4"]}, "is of T4, the plan of A100-80G. Use CARD=T4."),
    ],
)
def test_another_file_is_refused(tmp_path, changes, told):
    with pytest.raises(UserError, match=told):
        calibrated(A100, certificate(tmp_path, **({"ratios": [1.2]} | changes)))
    (tmp_path / "certify.json").write_text("{}")
    with pytest.raises(UserError, match="is not the certify.json of make certify"):
        calibrated(A100, str(tmp_path / "certify.json"))
