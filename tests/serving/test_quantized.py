"""A base in 8 or 4 bits below several adapters: one set of codes, answers near those of the base as it is."""

import pytest

from tests.serving.servers import start_serve

pytestmark = pytest.mark.long


def test_all_models_share_the_codes_and_stay_near_the_base(ranks, served):
    bounds = {"weight_only_int8": 0.1, "nf4": 0.6, "weight_only_int4": 0.6}
    for algo, found in ranks(1, "tests.serving.quantized_ranks:served", str(served), list(bounds))[0].items():
        assert found["shared"] and found["layers"] == 2 * 7 and found["weights"] == [], algo
        for name, distance in found["distances"].items():
            assert 0 < distance < bounds[algo], (algo, name, distance)
        assert min(found["apart"]) > 0.9  # so that an adapter on another base, or none, would be seen


def test_a_server_on_four_bits_answers(served):
    server = start_serve(
        *("--model_name_or_path", served / "model", "--adapter", f"poems={served / 'lora'}"),
        *("--weight_quantize_algo", "nf4", "--weight_double_quant", 1),
    )
    said = " ".join("".join(server.said).split())
    assert "base: 14 linear layers in nf4, 4.14 bits a weight, " in said, said  # 4.50 with scales in float32
    client = server.client()
    texts = {
        model: client.completions.create(model=model, prompt="a", max_tokens=8, temperature=0).choices[0].text
        for model in ("model", "poems")
    }
    assert texts["model"] != texts["poems"]
    assert server.stop() == 0
