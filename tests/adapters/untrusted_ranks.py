"""Adapters from anywhere, loaded for test_untrusted.py."""

from pathlib import Path

from tests.runs_ranks import train


def load_all(model: str, adapters: list[str]) -> dict[str, dict]:
    """What predict and serve make of each adapter, by its name: the logits of a prompt, or the refusal."""
    from launch.prediction.predictor import load_predictor
    from launch.serving.models import load_models

    found = {}
    for adapter in map(Path, adapters):
        found[adapter.name] = {
            "predict": _outcome(lambda path=adapter: load_predictor(model, path, None)),
            "serve": _outcome(lambda path=adapter: load_models("base", model, {"x": path})["x"].predictor),
        }
    return found


def _outcome(load) -> list[float] | str:
    import paddle

    from launch.errors import UserError

    try:
        model = load().model
    except UserError as error:
        return str(error)
    ids = paddle.to_tensor([[5, 9, 20, 31, 7, 45]])
    with paddle.no_grad():
        out = model(input_ids=ids, attention_mask=paddle.ones_like(ids))
    return (out[0] if isinstance(out, tuple) else out).flatten()[:64].tolist()


def run_without_pickles(commands: list[tuple[str, list[str]]]) -> list[dict]:
    """How each command (a module of launch, its words) ends where all that could run a pickle's program fails."""
    _refuse_pickles()
    return [train(name, argv, []) for name, argv in commands]


def _refuse_pickles() -> None:
    import pickle

    import numpy as np
    import paddle

    def refuse(*_, **__):
        raise AssertionError("a pickle would be loaded")

    stock_load = np.load
    np.load = lambda *args, allow_pickle=False, **more: refuse() if allow_pickle else stock_load(*args, **more)
    pickle.load = pickle.loads = pickle.Unpickler = refuse
    paddle.load = paddle.framework.io.load = paddle.framework.load = refuse
