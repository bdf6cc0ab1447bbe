"""Rank functions of test_shared_weight_counted_twice.py."""

from tests.distributed import training_ranks


def pretrain(directory: str, output: str, argv: list[str], corrected: bool) -> None:
    """Three steps by run_pretrain, its log in the output directory."""
    from launch import upstream

    if not corrected:
        upstream.correct.__defaults__ = (
            tuple(name for name in upstream.CORRECTIONS if name != "shared_weight_counted_twice"),
        )
    flags = ["--model_name_or_path", f"{directory}/model", "--max_steps", "3", *argv]
    training_ranks.pretrain(directory, output, flags)
