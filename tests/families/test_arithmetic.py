"""Numbers that follow from a configuration, against published ones and against counting by hand."""

import pytest

from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import find_config, load_config
from launch.families.registry import family_of


def shape(name: str) -> ModelShape:
    return ModelShape.from_config(load_config(name))


def test_flops_are_those_of_matrix_products_and_attention():
    """Forward and both gradients; for frozen weights not that of the weights."""
    llama, matmul, attention = (
        shape("facebook/llama-7b"),
        6_738_415_616 - 32000 * 4096 - 65 * 4096,
        12 * 32 * 4096 * 2048,
    )
    for frozen, each in ((False, 6), (True, 4)):
        assert llama.training_flops_per_token(2048, attention=False, frozen=frozen) == each * matmul
        assert llama.training_flops_per_token(2048, attention=True, frozen=frozen) == each * matmul + attention


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("Qwen/Qwen9-7B", "MODEL=qwen2-7b, the nearest size known by name."),
        ("meta-llama/Llama-3.1-8B", "MODEL=meta-llama/Llama-3.1-8B, whose sizes are known."),
    ],
)
def test_a_name_of_a_hub_is_told_with_the_command(name, without):
    with pytest.raises(UserError) as refused:
        find_config(name)
    lines, short = str(refused.value).splitlines(), name.partition("/")[2]
    assert f"{name!r} is no directory" in lines[0] and "may be a model at Hugging Face or ModelScope" in lines[0]
    assert lines[1] == f"    make download MODEL={name}"
    assert lines[2].startswith(f"Then MODEL=models/{short}. ")
    assert lines[-2] == f"To plan and rehearse without it: {without}"
    assert ("hf auth login" in str(refused.value)) == name.startswith("meta-llama/")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("models/mine", "'models/mine' is no directory .* no configuration by name. Names: "),
        ("facebook/llama-70b", "(?s)llama-70b.*Names: .*llama-7b"),
    ],
)
def test_a_name_of_nothing_is_refused_with_the_names_there_are(name, said):
    with pytest.raises(UserError, match=said):
        find_config(name)


@pytest.mark.parametrize("path", ["/nope/llama-7b", "./llama-7b", "~/llama-7b", "a/b/llama-7b", "here/llama-7b"])
def test_a_directory_that_is_not_there_is_no_name(path, tmp_path, monkeypatch):
    """Its model would be another: made of random weights, or downloaded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(UserError, match="is no directory with a config.json.* Did you mean llama-7b?"):
        find_config(path)


def test_a_broken_configuration_is_named_with_its_line(tmp_path):
    (tmp_path / "config.json").write_text('{\n"model_type": llama}')
    with pytest.raises(UserError, match=r"config\.json:2: not JSON"):
        load_config(str(tmp_path))


def test_an_unknown_family_is_refused_with_the_families_there_are():
    with pytest.raises(UserError, match="'mamba'.*llama"):
        family_of("mamba")


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama-13b", 13_015_864_320),
        ("llama-3-8b", 8_030_261_248),
        ("qwen2-7b", 7_615_616_512),
        ("qwen2.5-0.5b", 494_032_768),  # "number of parameters 0.49B", 0.36B without embedding
        ("qwen3-8b", 8_190_735_360),
        ("bloom-7b1", 7_069_016_064),  # the model's card
        ("opt-6.7b", 6_658_473_984),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("mixtral-8x7b-v0.1", 46_702_792_704),
        ("qwen1.5-moe-a2.7b", 14_315_784_192),
        ("baichuan-7b", 7_000_559_616),  # README of Baichuan-7B and 13B
        ("baichuan-13b", 13_264_901_120),
        ("chatglm-6b", 6_176_956_416 - 3_670_016),  # all parameters that peft prints, without those of LoRA
        ("chatglm2-6b", 6_245_533_696 - 1_949_696),
    ],
)
def test_named_models_have_the_published_numbers_of_parameters(name, published):
    assert shape(name).parameters == published


@pytest.mark.parametrize(("name", "unit", "number"), [("glm-515m", 1e6, 515), ("glm-10b", 1e9, 10)])
def test_glm_has_its_published_number_of_parameters(name, unit, number):
    assert round(shape(name).parameters / unit) == number


def test_a_head_that_is_the_embedding_multiplies_all_the_same():
    bloom = shape("bloom-7b1")
    norms_and_biases = 30 * (4 + 9) * 4096 + 4 * 4096
    assert bloom.matmul_parameters == bloom.parameters - norms_and_biases
