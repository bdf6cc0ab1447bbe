"""A config.json with wrong values: refused with file, key, value, what is allowed and the fix; by every reader."""

import json

import pytest

from launch.errors import UserError
from launch.families import registry
from launch.families.named_configs import COUNTS, SIZES, check_config, check_values, load_config
from launch.families.registry import FAMILIES, parameters

SMALL = load_config("llama-rehearsal")
FAULTS = [
    ({"num_attention_heads": 3}, "num_attention_heads: found 3, allowed: a divisor of hidden_size, which is 64"),
    ({"num_key_value_heads": 3}, "num_key_value_heads: found 3, allowed: a divisor of num_attention_heads, which is"),
    ({"num_attention_heads": 64, "num_key_value_heads": 64}, "found 64, allowed: a number of heads of even size"),
    ({"vocab_size": "1000"}, "vocab_size: found '1000', allowed: a whole number, 1 or more"),
    ({"vocab_size": 0}, "vocab_size: found 0, allowed: a whole number, 1 or more"),
    ({"hidden_size": True}, "hidden_size: found True, allowed: a whole number, 1 or more"),
    ({"num_hidden_layers": 2.5}, "num_hidden_layers: found 2.5, allowed: a whole number from 1 to 4,096"),
    ({"num_hidden_layers": 10**7}, "num_hidden_layers: found 10000000, allowed: a whole number from 1 to 4,096"),
    ({"num_experts": 4097}, "num_experts: found 4097, allowed: a whole number from 1 to 4,096"),
    ({"intermediate_size": 2**40}, "intermediate_size: found 1099511627776, allowed: a whole number"),
    ({"rope_theta": -(10**4000)}, "rope_theta: found -1000000000"),
    ({"rope_theta": "x"}, "rope_theta: found 'x', allowed: a number above 0"),
    ({"rope_scaling": {"factor": 0}}, "rope_scaling: factor: found 0, allowed: a number above 0"),
    ({"rope_scaling": "linear"}, "rope_scaling: found 'linear', allowed: an object"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps: found nan, allowed: a number above 0, at most 1"),
    ({"initializer_range": -1}, "initializer_range: found -1, allowed: a number, 0 or more"),
    ({"attention_dropout": 2}, "attention_dropout: found 2, allowed: a number from 0 to 1"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings: found 'no', allowed: true or false"),
    ({"eos_token_id": SMALL["vocab_size"]}, f"allowed: a token id below vocab_size, which is {SMALL['vocab_size']}"),
    ({"eos_token_id": [2, 10**6]}, "eos_token_id: found 1000000, allowed: a token id below vocab_size"),
    ({"eos_token_id": "</s>"}, "eos_token_id: found '</s>', allowed: a token id, or a list of token ids"),
    ({"dtype": "float7"}, "dtype: found 'float7', allowed: float32, float16, bfloat16, float64"),
    ({"rope_theta": 10**30}, f"rope_theta: found {10**30}, allowed: a number above 0, at most 1e15"),
    *(
        ({key: None}, f"{key}: found None, allowed: a ")
        for key in ("hidden_size", "max_position_embeddings", "num_attention_heads", "vocab_size", "rms_norm_eps")
    ),
    ({"rope_theta": None}, "rope_theta: found None, allowed: a number above 0, at most 1e15"),
    *(
        ({"hidden_act": value}, f"hidden_act: found {value!r}, allowed: gelu, gelu_10, gelu_fast, ")
        for value in ("x", None, 5, ["silu"])
    ),
    ({"model_type": 7}, "model_type: found 7, allowed: a name in quotes"),
]


@pytest.mark.parametrize(("wrong", "message"), FAULTS, ids=lambda value: str(value)[:40])
def test_a_wrong_value_is_refused(tmp_path, wrong, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL | wrong))
    with pytest.raises(UserError) as refused:
        load_config(str(tmp_path))
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert str(refused.value).endswith("Correct the value, or copy config.json from the published model again.")


def test_a_number_of_thousands_of_digits_is_no_traceback(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "of_its_own": ' + "9" * 5000 + "}")
    with pytest.raises(UserError, match="config.json: found a number of thousands of digits. Copy the file again."):
        load_config(str(tmp_path))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_configuration_lists_parameters_without_end(family, monkeypatch):
    """Also where nobody looked at its sizes."""
    monkeypatch.setattr(registry, "MOST_PARAMETERS", 2000)
    config = dict.fromkeys(SIZES, 64) | {"model_type": family} | dict.fromkeys(COUNTS, 10**9)
    with pytest.raises(UserError, match="found more than 2,000 parameters. Copy the published one again."):
        parameters(config)


def test_what_is_not_stated_or_not_known_is_left():
    check_values({"vocab_size": None, "of_its_own": "1000"}, "config.json")
    check_config(SMALL | {"eos_token_id": [1, 2], "pad_token_id": -1}, "config.json")
    check_config(SMALL | {"rope_theta": None, "alibi": True, "num_attention_heads": 64, "num_key_value_heads": 64}, "")


def test_a_configuration_without_a_size_names_it():
    for key in ("vocab_size", "intermediate_size", "num_hidden_layers"):
        without = {name: value for name, value in SMALL.items() if name != key}
        with pytest.raises(UserError, match=f"config.json: {key}: not found. A model of type 'llama' needs it"):
            parameters(without)


def test_a_mistyped_directory_is_answered_with_the_one_beside_it(tmp_path):
    (tmp_path / "Qwen3-8B").mkdir()
    (tmp_path / "Qwen3-8B" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=f"Did you mean {tmp_path}/Qwen3-8B\\? "):
        load_config(str(tmp_path / "Qwen3-8b"))


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe{}", "not UTF-8 at byte 0"), (b'{"a":' * 10**5, "nested too deeply")]
)
def test_a_file_that_is_no_json_at_all(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_config(str(tmp_path))


def test_what_paddlenlp_writes_is_right(ranks):
    """ChatGLM's attention_scale is a switch, GLM's a number."""
    [written] = ranks(1, "tests.families.family_ranks:configurations_as_written")
    assert written["chatglm-6b"]["attention_scale"] is True and written["glm-10b"]["attention_scale"] == 1.0
    for name, config in written.items():
        check_config(config, name)
