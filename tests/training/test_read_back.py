"""A saved adapter is read back: it holds what was trained, and something was; else the run ends with the reason."""

import re

import pytest

from tests.training.finetune_material import argv

FINETUNE = "tests.training.read_back_ranks:finetune_with"
ADAPTERS = {"lora": {"lora": 1, "lora_rank": 4}, "prefix": {"prefix_tuning": 1, "num_prefix_tokens": 6}}
TWO = {"per_device_train_batch_size": 4}
LINE = re.compile(
    r"adapter read back from \S+: (\d+) tensors as trained, (\d+) of them not as at the beginning; largest difference "
    r"of the (loss|logits) of (\d+) training samples (\S+)"
)


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("read-back")
    ranks(1, "tests.training.finetune_material:make_material", str(root))
    return root


@pytest.fixture
def said(ranks, material, tmp_path):
    """said(processes, fault, **flags): what each rank said."""

    def run(processes: int, fault: str, **flags) -> list[dict]:
        return ranks(processes, FINETUNE, fault, argv(material, tmp_path / "out", max_steps=2, **flags))

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "processes", "flags", "expected"),
    [
        ("lora", 1, {}, ("28", "28", "logits", "2", "0")),
        ("prefix", 1, {}, ("1", "1", "logits", "2", "0")),
        ("lora", 2, {"tensor_parallel_degree": 2}, ("28", "28", "logits", "2", "0")),
        ("prefix", 2, {"tensor_parallel_degree": 2}, ("1", "1", "logits", "2", "0")),
        ("lora", 2, {"sharding": "stage3", **TWO}, ("28", "28", "logits", "2", "0")),
        (
            "lora",
            2,
            {"pipeline_parallel_degree": 2, "gradient_accumulation_steps": 2, **TWO}
            | {"pipeline_parallel_config": "disable_p2p_cache_shape"},
            ("28", "28", "loss", "8", "0"),
        ),
    ],
    ids=["lora", "prefix", "lora-tp2", "prefix-tp2", "lora-stage3", "lora-pp2"],
)
def test_what_was_compared_is_told(said, kind, processes, flags, expected):
    first = said(processes, "none", **ADAPTERS[kind], **flags)[0]
    assert first["exit_code"] == 0, first["stderr"]
    assert LINE.search(first["stdout"]).groups() == expected


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("bytes", "the adapter does not read back as it was trained: other numbers in llama.layers."),
        pytest.param("scaling", "lora_alpha is 3, trained was 8", marks=pytest.mark.long),
        pytest.param("logits", "the adapter read back gives other logits, by up to", marks=pytest.mark.long),
        ("updates", "the adapter is as it was before training: no step has updated it."),
    ],
)
def test_a_fault_ends_the_run_with_its_reason(said, fault, message):
    [only] = said(1, fault, **ADAPTERS["lora"])
    assert only["exit_code"] == 2
    assert message in only["stderr"]


@pytest.mark.long
def test_a_fault_on_disk_ends_every_rank(said):
    for one in said(2, "bytes", tensor_parallel_degree=2, **ADAPTERS["lora"]):
        assert one["exit_code"] == 2
        assert "other numbers in llama.layers." in one["stderr"]


@pytest.mark.long
def test_a_best_adapter_that_does_not_read_back_does_not_replace_the_one_before(said, tmp_path):
    [only] = said(1, "bytes", do_eval=1, eval_steps=1, **ADAPTERS["lora"])
    assert only["exit_code"] == 2
    assert not (tmp_path / "out" / "best").exists()
