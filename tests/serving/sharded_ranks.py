"""A continuous batch of a model that is sharded over ranks, for test_sharded.py."""

from launch.checkpoint.ranks import rank, world_size
from launch.entry import start_paddle
from launch.serving import followers
from launch.serving.continuous_batch import ContinuousBatch
from launch.serving.followers import follow, lead
from tests.serving.continuous_ranks import Watched, drive, plain, row, served

ASKED = [
    ("model", list(range(20, 41)), 6, {}),
    ("model", list(range(20, 33)), 4, {"logprobs": 1}),
    ("lora", list(range(20, 38)), 5, {"prompt_logprobs": 2}),
    ("prefix", [50, 51, 52], 7, {"temperature": 1.0, "seed": 3}),
    ("lora", [9, 8, 7], 8, {}),
    ("model", list(range(20, 41)), 3, {}),
]


def answered(directory: str, fault: str = "") -> list | None:
    """What rows are told by rank 0; None on other ranks. fault: "all": the fourth step fails on all ranks, "follower":
    on rank 1 alone, "leader": on rank 0 alone."""
    start_paddle(on_cpu=True)
    models = served(directory)
    texts = Watched(models, 400)
    if fault in ("all", "follower" if rank() else "leader"):
        _fail_in_step(texts, 4)
    followers.SECONDS = 3.0
    if rank():
        return follow(texts)
    batch = ContinuousBatch(models, lead(texts) if world_size() > 1 else texts, 3)
    made = [row(name, prompt, most, **options) for name, prompt, most, options in ASKED]
    waiting = [one for one, _ in made]
    try:
        drive(batch, waiting)
    except RuntimeError:  # as the engine does it
        batch.clear()
        drive(batch, [one for one in waiting if not one.done])
    return [[plain(event) for event in told] for _, told in made]


def _fail_in_step(texts: Watched, step: int) -> None:
    stock, steps = texts.packed.run, []

    def run(parts):
        steps.append(parts)
        if len(steps) == step:
            raise RuntimeError("no memory for this step")
        return stock(parts)

    texts.packed.run = run
