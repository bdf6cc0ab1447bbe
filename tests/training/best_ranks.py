"""BestKeeper on ranks, for test_answers_and_best.py."""

from pathlib import Path


def keep(directory: str, evaluations: list[list], continued: bool, measured: str = "") -> list[str]:
    """Consider (step, loss) after (step, loss); what best/ holds at the end."""
    import os

    from launch.checkpoint.ranks import rank
    from launch.training.evaluation import BestKeeper

    if int(os.environ["PADDLE_TRAINERS_NUM"]) > 1:
        import paddle

        from launch.rehearsal.collectives import install

        install()
        paddle.distributed.init_parallel_env()

    def write(target: Path) -> None:
        (target / f"of-rank-{rank()}-at-{step}").touch()

    keeper = BestKeeper(directory, write, measured)
    for step, loss in evaluations:
        keeper.consider(step, loss, continued)
    best = Path(directory) / "best"
    return sorted(one.name for one in best.iterdir()) if best.exists() else []
