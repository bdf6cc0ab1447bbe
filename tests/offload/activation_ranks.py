"""What the rank of the tests of offloaded activations does: a LLaMA that recomputes its layers."""

from tests.plan.memory_ranks import allocated, forget_peak, peak

SAMPLES, LENGTH = 2, 32


def step(layers: int, offload: bool) -> dict:
    """Two forward and backward passes, the second is looked at: {"loss", "gradients": their hash; bytes on the device:
    "between passes": what the forward pass has left, "backward": its peak; "host": bytes after each of the two}."""

    model, residuals = _model(layers, offload)
    seen = {"host": []}
    ids = _ids(LENGTH)
    for _ in range(2):
        model.clear_gradients()
        before = allocated()
        loss = _loss(model, ids)
        seen["between passes"] = allocated() - before
        forget_peak()
        loss.backward()
        seen["backward"] = peak() - before
        seen["host"].append(_host_bytes(residuals))
        seen["loss"] = float(loss)
        del loss  # and what its graph keeps
    seen["gradients"] = hash(b"".join(one.grad.numpy().tobytes() for one in model.parameters()))
    return seen


def host_bytes_of_lengths(lengths: list[int]) -> list[int]:
    """Host memory that is kept after a forward and backward pass of each length in turn."""
    model, residuals = _model(6, True)
    found = []
    for length in lengths:
        _loss(model, _ids(length)).backward()
        found.append(_host_bytes(residuals))
    return found


def _model(layers: int, offload: bool):
    import paddle
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from launch.offload.activations import offload_activations

    paddle.seed(7)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 256}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers, use_cache=False, recompute=True))
    model.recompute_enable()
    model.train()
    return model, offload_activations(model) if offload else None


def _ids(length: int):
    import paddle

    return paddle.arange(SAMPLES * length).reshape([SAMPLES, length])


def _loss(model, ids):
    loss = model(ids, labels=ids)
    return loss[0] if isinstance(loss, tuple) else loss


def _host_bytes(residuals) -> int:
    return sum(int(one.size) * one.element_size() for one in residuals._free) if residuals else 0
