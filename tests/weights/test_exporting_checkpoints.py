"""A checkpoint of any layout is exported as the final model is: the same bytes in every tensor."""

import pytest
from safetensors.numpy import load_file

from launch.checkpoint.parts import sharded_weights
from launch.errors import UserError
from launch.weights.model_directories import export_directory
from tests.distributed.layouts import DP2, PP2, STAGE3, TP2

SHARD = 10**9


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("material")
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 2)
    return root


def trained(ranks, material, output, layout):
    """An output directory whose checkpoint-2 and final model are of the same step."""
    flags = layout.flags | {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": layout.micro_batch}
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    ranks(layout.processes, "tests.distributed.training_ranks:pretrain", str(material), str(output), words)
    return output


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(TP2, marks=pytest.mark.long),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (DP2, PP2, STAGE3)),
    ],
    ids=lambda layout: layout.name,
)
def test_a_checkpoint_is_exported_as_the_final_model_is(ranks, material, tmp_path, layout):
    """One rank's file less, and it is no model."""
    run = trained(ranks, material, tmp_path / "run", layout)
    export_directory(run, tmp_path / "final", None, SHARD)
    export_directory(run / "checkpoint-2", tmp_path / "checkpoint", None, SHARD)
    final = load_file(tmp_path / "final" / "model.safetensors")
    found = load_file(tmp_path / "checkpoint" / "model.safetensors")
    assert found.keys() == final.keys()
    assert all(found[name].tobytes() == final[name].tobytes() for name in final)

    if layout == TP2:
        checkpoint = run / "checkpoint-2"
        assert any(len(tensor.pieces) == 2 for tensor in sharded_weights(checkpoint).values())
        (checkpoint / "model-00002-of-00002.safetensors").unlink()
        with pytest.raises(UserError, match=r"checkpoint-2/model-00002-of-00002\.safetensors is missing"):
            export_directory(checkpoint, tmp_path / "out", None, SHARD)
        assert not (tmp_path / "out").exists()
