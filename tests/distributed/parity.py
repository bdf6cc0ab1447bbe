"""How far a run that is divided over processes is from the same run on one."""

import numpy as np

from launch.checkpoint.manifest import read_manifest
from tests.distributed.cells import FULL, PRETRAINING, Cell
from tests.runs import Run, Runs, load_weights

# Four units in the last place of a loss near 5.5 in float32; correct layouts have been seen to differ by two.
LOSS_TOLERANCE = 2e-6
GRAD_NORM_TOLERANCE = 1e-5
# Of a tensor after SGD steps: relative to its largest change. Wrong factors show as 0.1 and more. The rate is large
# because norms begin at 1, where float32 has steps of 1e-7, and their gradients are near 1e-3.
UPDATE_TOLERANCE = 1e-4
# Of preferences: four sums of some 200 nats, each of which float32 rounds to 1.5e-5, times half of a beta of 0.1.
PAIRS_LOSS_TOLERANCE = 4 * 1.5e-5 * 0.05
PAIRS_TOLERANCES = {"accuracy": 0, "rewards_margin": 5e-6, "kl": 2e-6, "logps_chosen": 1e-4, "tokens_rejected": 0}
KTO_TOLERANCES = {"accuracy": 0, "rewards_margin": 2e-5, "kl": 1e-4, "desired": 0}

NUMBERS = ("global_step", "loss", "learning_rate", "grad_norm", "consumed_tokens")


def beyond_tolerance(runs: Runs, cell: Cell) -> dict[str, float]:
    """Return what of a cell differs too much from one process: logged steps, the evaluation, updates, by its name."""
    found = numbers_apart(runs(**cell.arguments), runs(**cell.alone.arguments))
    if cell.method in (PRETRAINING, FULL):
        found |= {name: (apart, UPDATE_TOLERANCE) for name, apart in updates_apart(runs, cell).items()}
    return {name: apart for name, (apart, tolerance) in found.items() if not apart <= tolerance}


def numbers_apart(found: Run, expected: Run) -> dict[str, tuple[float, float]]:
    """Return {a number of the log or of the evaluation: (how far two runs are apart at most, how far they may be)}."""
    first, evaluation = expected.steps[0], expected.evaluation
    norm = GRAD_NORM_TOLERANCE * (2 if "rewards_margin" in first else 1)
    apart = {"grad_norm": (float(np.abs(found.column("grad_norm") / expected.column("grad_norm") - 1).max()), norm)}
    tolerances = {"loss": LOSS_TOLERANCE, "consumed_tokens": 0}
    tolerances |= KTO_TOLERANCES if "desired" in first else PAIRS_TOLERANCES
    if "kl" in first:
        tolerances["loss"] = PAIRS_LOSS_TOLERANCE
    for key, tolerance in tolerances.items():
        if key in first:
            # Before the first update a margin is 0 but for its rounding, which so decides who is right.
            updated = slice(1 if key == "accuracy" else 0, None)
            apart[key] = (float(np.abs(found.column(key) - expected.column(key))[updated].max()), tolerance)
    tolerances |= dict.fromkeys(("tokens", "pairs", "responses"), 0)
    for key, tolerance in ((f"eval_{key}", tolerance) for key, tolerance in tolerances.items()):
        if key in evaluation:
            apart[key] = (abs(found.evaluation[key] - evaluation[key]), tolerance)
    return apart


def continued_apart(runs: Runs, cell: Cell) -> list[str]:
    """Return what is not equal to the bit where a cell goes on from its first checkpoint: numbers of steps, files of
    the last checkpoint."""
    whole, continued = runs(**cell.arguments), runs.continued(**cell.arguments)
    left = len(continued.steps)
    pairs = {key: (whole.column(key)[-left:], continued.column(key)) for key in NUMBERS}
    apart = [key for key, pair in pairs.items() if not np.array_equal(*pair, equal_nan=True)]
    files, found = (read_manifest(run.output / f"checkpoint-{len(whole.steps)}").files for run in (whole, continued))
    return apart + sorted(name for name in files | found if files.get(name) != found.get(name))


def updates_apart(runs: Runs, cell: Cell) -> dict[str, float]:
    """Return the difference of each tensor to that of one process, relative to its largest change in a step of SGD.

    The second halves of LoRA are 0 at first, so the first halves have a gradient from the second step on: of adapters
    two steps are made. Raises AssertionError where names differ, or one process left a tensor as it was.
    """
    alone = cell.alone.arguments
    if {"lora", "prefix_tuning"} & cell.flags.keys():
        initial, steps = runs(sgd=1, **alone).weights, 2
    else:
        initial, steps = load_weights(runs.material / cell.model), 1
    expected, found = runs(sgd=steps, **alone).weights, runs(sgd=steps, **cell.arguments).weights
    assert expected.keys() <= initial.keys()
    saved_by_a_stage = {"lm_head.weight"} if cell.model in ("tied", "ernie4_5") else set()
    assert found.keys() ^ expected.keys() <= saved_by_a_stage
    changes = {name: float(np.abs(tensor - initial[name]).max()) for name, tensor in expected.items()}
    untrained = {name for name in changes if name.endswith("e_score_correction_bias")}
    assert {name for name, change in changes.items() if not change} == untrained
    apart = {name: float(np.abs(tensor - expected[name]).max()) for name, tensor in found.items() if name in expected}
    return {name: difference / (changes[name] or 1.0) for name, difference in apart.items()}
