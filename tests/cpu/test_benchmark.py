"""The benchmark's arithmetic and its refusals; nothing is trained or timed here."""

from benchmarks import cpu_training
from launch.guard import guarded


def seconds(ours: list[float], theirs: list[float]) -> dict:
    """A result in which each round's turn has one step."""
    row = cpu_training.ROWS[1]
    return {"seconds": {cpu_training.OURS.name: [[s] for s in ours], row.name: [[s] for s in theirs]}}


def test_speed_is_the_median_step():
    result = seconds([1.0, 2.0, 16.0], [1.0, 1.0, 1.0])
    assert cpu_training.tokens_per_second(result, cpu_training.OURS) == 8 * 256 / 2.0


def test_ratio_is_taken_round_by_round():
    """The machine runs at half speed in the second round, for both: the ratio does not move."""
    assert cpu_training.ours_is(seconds([1.0, 2.0, 1.0], [3.0, 6.0, 2.0]), cpu_training.ROWS[1]) == 3.0


def test_model_of_a_shape():
    model = cpu_training.model_of("512x8")
    assert (model["hidden_size"], model["num_hidden_layers"], model["num_attention_heads"]) == (512, 8, 8)
    assert model["intermediate_size"] == 1376
    weights = cpu_training.random_weights(model)
    assert len(weights) == 3 + 8 * 9
    layers = 8 * (4 * 512**2 + 3 * 512 * 1376 + 2 * 512)
    assert sum(weight.size for weight in weights.values()) == 2 * 8000 * 512 + layers + 512


def test_refusals(tmp_path, capsys):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert guarded(cpu_training.main, ["--threads", "1", "--torch-python", str(python)]) == 2
    assert capsys.readouterr().err == (
        f"error: --torch-python {python}: no torch and transformers there; install requirements/compare.txt\n"
    )
    assert guarded(cpu_training.main, ["--threads", "100000"]) == 2
    assert capsys.readouterr().err.startswith("error: --threads 100000: this process may use ")
