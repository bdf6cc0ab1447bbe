"""Weights come into a model as from_pretrained brings them, to the bit, in every layout; what does not fit is told."""

import pytest

COMPARE = "tests.checkpoint.loading_ranks:compare"
REFUSAL = "tests.checkpoint.loading_ranks:refusal"
TP2, PP2 = {"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2}
CONFIGURATIONS = {
    "llama": {},
    "gqa": {"num_key_value_heads": 2},
    "tied": {"tie_word_embeddings": True},
}


@pytest.fixture(scope="module")
def models(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    ranks(1, "tests.checkpoint.loading_ranks:save_models", str(root), CONFIGURATIONS)
    return root


@pytest.mark.parametrize("files", ["single", "sharded", "pdparams"])
@pytest.mark.parametrize("model", CONFIGURATIONS)
def test_one_process(ranks, models, model, files):
    [names] = ranks(1, COMPARE, str(models / model / files), {})
    assert "llama.layers.3.mlp.down_proj.weight" in names


@pytest.mark.parametrize("files", ["single", "sharded"])
@pytest.mark.parametrize("model", CONFIGURATIONS)
def test_tensor_parallel(ranks, models, model, files):
    ranks(2, COMPARE, str(models / model / files), TP2)


@pytest.mark.parametrize("files", ["single", "sharded", "pdparams"])
@pytest.mark.parametrize("model", CONFIGURATIONS)
def test_pipeline_parallel(ranks, models, model, files):
    first, last = ranks(2, COMPARE, str(models / model / files), PP2)
    assert "llama.layers.1.mlp.down_proj.weight" in first and "llama.layers.2.mlp.down_proj.weight" in last
    assert not set(first) & set(last) 
