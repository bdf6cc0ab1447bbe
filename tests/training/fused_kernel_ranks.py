"""The trials of launch/switches/kernel_trials.py on this machine, with stand-ins for kernels that a CPU lacks."""

import paddle

from launch.switches import kernel_trials
from launch.switches.kernel_checks import Heads

HEADS = Heads(4, 2, 16)


def stand_in(kind: str):
    """Paddle's fused rotary embedding as paddle/phi/kernels/fusion/gpu/fused_rope_utils.h computes it, use_neox False.

    kind: "right", or what is wrong: "positions" are not read, "sign" of the gradient, "adjacent" elements are turned.
    """

    class Rope(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, query, key, cosine, sine):
            ctx.save_for_backward(cosine, sine)
            return tuple(_turn(one, cosine, sine, kind) for one in (query, key))

        @staticmethod
        def backward(ctx, *gradients):
            cosine, sine = ctx.saved_tensor()
            return tuple(_turn(one, cosine, sine if kind == "sign" else -sine, kind) for one in gradients)

    def fused(q, k=None, v=None, sin=None, cos=None, position_ids=None, use_neox_rotary_style=True):
        batch, length, _, size = q.shape
        assert v is None and not use_neox_rotary_style
        assert sin.shape == cos.shape and sin.shape[0] == sin.shape[2] == 1 and sin.shape[3] == size
        assert q.dtype == k.dtype == sin.dtype == cos.dtype
        if position_ids is None:
            assert sin.shape[1] == length
        else:
            assert position_ids.dtype == paddle.int64 and position_ids.shape == [batch, length]
            assert sin.shape[1] >= length
        if position_ids is None or kind == "positions":
            position_ids = paddle.arange(length).unsqueeze(0)
        tables = [table.reshape([-1, size])[position_ids].unsqueeze(2).detach() for table in (cos, sin)]
        return (*Rope.apply(q, k, *tables), None)

    return fused


def _turn(x, cosine, sine, kind: str):
    half = x.shape[-1] // 2
    if kind == "adjacent":
        rotated = paddle.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
    else:
        rotated = paddle.concat([-x[..., half:], x[..., :half]], axis=-1)
    return x * cosine + rotated * sine


def rope_faults(kinds: list[str]) -> dict[str, str]:
    """By kind of stand-in; "none": Paddle's CPU build as it is."""
    stock, found = kernel_trials.fused_rotary_position_embedding, {}
    for kind in kinds:
        kernel_trials.fused_rotary_position_embedding = stock if kind == "none" else stand_in(kind)
        found[kind] = kernel_trials.rope_fault(HEADS, "float32")
    return found


def swiglu_faults() -> list[str]:
    """Of Paddle's operator, and of one without the factor of its second input's gradient."""
    right = kernel_trials.swiglu_fault("float32")
    kernel_trials.F.swiglu = lambda x, y: paddle.nn.functional.silu(x) * y.detach() + 0 * y
    return [right, kernel_trials.swiglu_fault("float32")]


def overlap_faults(sequence_parallel: bool) -> list[str]:
    """Of Paddle's linear layer that overlaps, of one that rank 1 cannot compute, and of one whose ranks do not sum."""
    from paddle.distributed import fleet

    from launch.rehearsal.collectives import install

    install()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    right = kernel_trials.overlap_fault("float32", sequence_parallel)
    product = kernel_trials.local_product_fault
    kernel_trials.local_product_fault = lambda dtype: "it fails here: no kernel image" if group.rank == 1 else ""
    alone = kernel_trials.overlap_fault("float32", sequence_parallel)
    kernel_trials.local_product_fault = product
    paddle.base.core.ProcessGroupGloo.all_reduce = lambda group, tensor, *args, **kwargs: _Done()
    wrong = kernel_trials.overlap_fault("float32", sequence_parallel)
    kernel_trials.overlap(sequence_parallel)
    configs = fleet.fleet._user_defined_strategy.hybrid_configs["mp_configs"]
    names = ("mp_async_allreduce", "mp_skip_c_identity", "sp_async_reduce_scatter")
    return [right, alone, wrong, *(name for name in names if getattr(configs, name))]


class _Done:
    def wait(self) -> None:
        pass


def losses_with_fused_rope(cases: list) -> list:
    """[loss, gradient norm, calls of the kernel] with and without it for [family, changes of its configuration,
    packed] each, on a pretended card."""
    import paddlenlp.transformers.llama.fusion_ops as fusion_ops
    import paddlenlp.transformers.llama.modeling as llama
    import paddlenlp.transformers.qwen2.modeling as qwen2

    from launch.families.registry import FAMILIES
    from launch.upstream.module_view import ModuleView
    from tests.families.family_ranks import batch, build, tiny

    calls = []

    def counted(*args, **kwargs):
        calls.append(args[0].shape)
        return stand_in("right")(*args, **kwargs)

    device = ModuleView(paddle.device, get_device=lambda: "gpu:0")
    llama.paddle = ModuleView(paddle, device=device)
    qwen2.get_env_device = lambda: "gpu"
    fusion_ops.fused_rotary_position_embedding = qwen2.fused_rotary_position_embedding = counted
    found = []
    for name, changes, packed in cases:
        both = []
        for use in (True, False):
            calls.clear()
            config = tiny(name, use_fused_rope=use, **changes)
            model = build(name, config)
            inputs = batch(FAMILIES[name], samples=2)
            if packed:
                length = inputs["input_ids"].shape[1]
                inputs["position_ids"] = (paddle.arange(length) % 5).expand([2, length])
            loss = model(**inputs)[0]
            loss.backward()
            norm = sum(float((one.grad.astype("float64") ** 2).sum()) for one in model.parameters()) ** 0.5
            both.append([float(loss), norm, len(calls)])
        found.append(both)
    return found
