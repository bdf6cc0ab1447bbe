"""Names of models at the hubs, and the configuration of their sizes."""

import pytest

from launch.families.named_configs import CONFIGS, OTHERS, load_config, named_size


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen/QWEN3-8b-base", "qwen3-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "qwen1.5-moe-a2.7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("baichuan-inc/Baichuan2-7B-Base", "baichuan2-7b"),
        ("bigscience/bloomz-7b1-mt", "bloom-7b1"),
        ("__internal_testing__/tiny-random-llama", "llama-rehearsal"),
        ("__internal_testing__/tiny-fused-chatglm2", "chatglm2-rehearsal"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
    ],
)
def test_a_published_name_has_the_sizes_of_a_configuration_here(name, size):
    assert named_size(name) == size and load_config(size)
    assert not name.startswith("__") or load_config(name) == load_config(size)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/qwen3-8b",  # is one
        "mistralai/Mistral-7B-Instruct-v0.2",  # another vocabulary
        "Qwen/Qwen3-4B-Instruct-2507",  # other positions
        "models/Qwen3-8B",
        "mine/Qwen3-8B",
        "./Qwen3-8B",
        "Qwen3-14B",
        "__internal_testing__/tiny-random-bert",
        "",
    ],
)
def test_any_other_name_and_a_path_stay(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "Qwen3-14B").mkdir()
    assert named_size(name) == name


def test_names_of_other_forms_have_a_configuration():
    assert all((CONFIGS / f"{size}.json").is_file() for size in OTHERS.values())
