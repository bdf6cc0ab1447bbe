"""BestKeeper on ranks, for test_answers_and_best.py."""

from pathlib import Path


def keep(directory: str, parts: list) -> list[list[str]]:
    """Consider (step, loss) after (step, loss) in each (evaluations, whether the run goes on) of parts; what best/
    holds after each. A part of None is a kill between the two renames of the best."""
    import os

    from launch.checkpoint.ranks import rank
    from launch.training.evaluation import BestKeeper

    if int(os.environ["PADDLE_TRAINERS_NUM"]) > 1:
        import paddle

        from launch.rehearsal.collectives import install

        install()
        paddle.distributed.init_parallel_env()

    best, found = Path(directory) / "best", []
    for part in parts:
        if part is None:
            best.rename(best.with_name(".best.old"))
            continue
        evaluations, continued = part
        keeper = BestKeeper(directory, lambda target: (target / f"of-rank-{rank()}-at-{step}").touch(), "")
        for step, loss in evaluations:
            keeper.consider(step, loss, continued)
        found.append(sorted(one.name for one in best.iterdir()))
    return found
