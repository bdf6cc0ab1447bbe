"""How much host memory loading takes beyond the parameters, on a checkpoint many times that."""

import json
from pathlib import Path

import numpy as np

from launch.families.named_configs import load_config
from tests.checkpoint.loading_ranks import prepare, start

MB = 1_000_000
# 252 MB in float32, the largest tensor 1 MB.
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 60,
    "vocab_size": 512,
    "max_position_embeddings": 64,  # every layer has its own table of positions
}


def write_checkpoint(directory: str, files: str) -> None:
    """A LLaMA of SHAPE, all ones. files: "single", "sharded" (8 files and an index) or "pdparams"."""
    import pickle

    from safetensors.numpy import save_file

    from launch.families.registry import parameters

    config = load_config("llama-rehearsal") | SHAPE
    root = Path(directory)
    root.mkdir()
    (root / "config.json").write_text(json.dumps(config))
    tensors = {one.name: np.ones(one.shape, np.float32) for one in parameters(config)}
    if files == "single":
        save_file(tensors, root / "model.safetensors", metadata={"format": "np"})
    elif files == "pdparams":
        (root / "model_state.pdparams").write_bytes(pickle.dumps(tensors, 4))
    else:
        places = {name: f"model-{number % 8}.safetensors" for number, name in enumerate(tensors)}
        for file in set(places.values()):
            own = {name: tensor for name, tensor in tensors.items() if places[name] == file}
            save_file(own, root / file, metadata={"format": "np"})
        index = {"metadata": {"total_size": sum(one.nbytes for one in tensors.values())}, "weight_map": places}
        (root / "model.safetensors.index.json").write_text(json.dumps(index))


def peak(warm_up: str, directory: str, flags: dict, way: str, dtype: str = "float32") -> dict:
    """Bytes of this rank's parameters, and the most that loading has taken at once beyond them.

    warm_up: a small model directory, loaded first, so that code and buffers are there.
    way: "ours" or "from_pretrained".
    host: resident memory as the kernel counts it (VmHWM), pages of the files that are mapped included.
    anonymous: without those pages, sampled every millisecond. tensors: by Paddle's own allocator.
    """
    import time

    from paddle.base import core

    from launch.checkpoint.model_loader import load_model

    arguments = start(flags)

    def load(path: str):
        model_class, config = prepare(path, arguments)
        if way == "ours":
            return load_model(model_class, config, dtype, path)
        return model_class.from_pretrained(path, config=config, dtype=dtype)

    load(warm_up)
    allocated = core.host_memory_stat_current_value("Allocated", 0)
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    started = time.monotonic()
    with ResidentMemory() as memory:
        model = load(directory)
    seconds = time.monotonic() - started
    own = {id(one): one.numel().item() * one.element_size() for one in model.parameters()}
    parameters = sum(own.values())
    return {
        "parameters": parameters,
        "seconds": seconds,
        "host": memory.peak - parameters,
        "anonymous": memory.anonymous_peak - parameters,
        "tensors": core.host_memory_stat_peak_value("Allocated", 0) - allocated - parameters,
    }


class ResidentMemory:
    """The growth of this process's memory within a `with` block, in bytes: `peak`, and `anonymous_peak`."""

    def __enter__(self):
        import threading

        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew (man 5 proc)
        self.start, self.anonymous_start = resident("VmRSS"), resident("RssAnon")
        self.anonymous_peak, self.running = 0, True
        self.sampler = threading.Thread(target=self.sample)
        self.sampler.start()
        return self

    def sample(self) -> None:
        import time

        while self.running:
            self.anonymous_peak = max(self.anonymous_peak, resident("RssAnon") - self.anonymous_start)
            time.sleep(0.001)

    def __exit__(self, *_):
        self.running = False
        self.sampler.join(60)
        self.peak = resident("VmHWM") - self.start


def resident(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024
