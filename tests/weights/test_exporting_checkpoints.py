"""A checkpoint of any layout is exported as the final model is: the same bytes in every tensor."""

import shutil

import pytest
from safetensors.numpy import load_file

from launch.checkpoint.parts import sharded_weights
from launch.errors import UserError
from launch.weights.model_directories import export_directory
from tests.distributed.cells import CELLS, PRETRAINING, Cell
from tests.distributed.layouts import DP2, PP2, STAGE3
from tests.runs import STEPS

SHARD = 10**9


LAYOUTS = [Cell(PRETRAINING, layout) for layout in (DP2, PP2, STAGE3)]


@pytest.mark.parametrize(
    "cell",
    [CELLS[0], *(pytest.param(one, marks=pytest.mark.nightly) for one in LAYOUTS)],
    ids=lambda cell: cell.layout.name,
)
def test_a_checkpoint_is_exported_as_the_final_model_is(runs, tmp_path, cell):
    """With another byte, or one rank's file less, it is no model."""
    run = runs(**cell.arguments).output
    export_directory(run, tmp_path / "final", None, SHARD)
    export_directory(run / f"checkpoint-{STEPS}", tmp_path / "checkpoint", None, SHARD)
    final = load_file(tmp_path / "final" / "model.safetensors")
    found = load_file(tmp_path / "checkpoint" / "model.safetensors")
    assert found.keys() == final.keys()
    assert all(found[name].tobytes() == final[name].tobytes() for name in final)
    if cell is CELLS[0]:
        checkpoint = shutil.copytree(run / f"checkpoint-{STEPS}", tmp_path / f"checkpoint-{STEPS}")
        assert any(len(tensor.pieces) == 2 for tensor in sharded_weights(checkpoint).values())
        part = checkpoint / "model-00002-of-00002.safetensors"
        content = part.read_bytes()
        part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(UserError, match=rf"{part} is not what was written: its SHA-256 differs .* Take another"):
            export_directory(checkpoint, tmp_path / "out", None, SHARD)
        part.unlink()
        with pytest.raises(UserError, match=rf"{part} is missing"):
            export_directory(checkpoint, tmp_path / "out", None, SHARD)
        assert not (tmp_path / "out").exists()
