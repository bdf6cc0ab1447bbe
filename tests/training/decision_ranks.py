"""What ranks decide that each have a simulated card."""

import contextlib
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

MODEL = SimpleNamespace(
    model_name_or_path="llama-rehearsal",
    use_flash_attention="auto",
    use_fused_rms_norm="auto",
    use_fused_rope="auto",
    tensor_parallel_overlap="auto",
    fp32_norms_and_head=False,
)
ADAPTER = SimpleNamespace(lora=False, prefix_tuning=False, num_prefix_tokens=24)
TRAINING = SimpleNamespace(
    precision=None,
    bf16=True,
    fp16=False,
    fp16_opt_level="O2",
    scale_loss=32768.0,
    tensor_parallel_degree=-1,
    tensor_parallel_config="",
    sequence_parallel=False,
    pipeline_parallel_degree=1,
    sep_parallel_degree=-1,
    bfloat16_products="",
)


def decide_all(cases: list[dict]) -> list[dict]:
    """decide() of each, one after the other: with what it changes as it was before."""
    from launch.switches import kernel_checks, kernel_trials, switch
    from launch.training import decisions

    changed = (decisions, kernel_checks, kernel_trials, switch)
    found = []
    for case in cases:
        before = [dict(vars(module)) for module in changed]
        found.append(decide(**case))
        for module, names in zip(changed, before, strict=True):
            vars(module).update(names)
    return found


def decide(
    cards: list,
    verdicts: list = ["", ""],  # noqa: B006 never changed, as the other lists here
    model: dict = {},  # noqa: B006
    training: dict = {},  # noqa: B006
    mask: str = "causal",
    prefix: bool = False,
    packed: bool = False,
    kernels: dict = {},  # noqa: B006
) -> dict:
    """Decisions of this rank, the card and the verdict of the start-up check being those of its number.

    cards: [major, minor] of each rank. verdicts: what its check finds; "run" for the real one, "no kernel" where
    Paddle's build is the one of this machine. kernels: what the trials of others find, by rank.
    """
    import paddle

    from launch.checkpoint.ranks import rank
    from launch.errors import UserError
    from launch.rehearsal.collectives import install
    from launch.switches import FLASH_ATTENTION, FUSED_ROPE, OVERLAP, kernel_checks, kernel_trials, switch
    from launch.training import decisions

    if len(cards) > 1 and not paddle.distributed.is_initialized():
        install()
        paddle.distributed.init_parallel_env()
    checked = []
    real = kernel_checks.attention_fault

    def attention_fault(attend, heads, dtype, shapes):
        tried = [[shape.length, shape.earlier, shape.padding] for shape in shapes]
        if shapes[0].packed:
            return verdicts[rank()] if verdicts[rank()] != "dense alone" else "its result is off"
        checked.append([heads.query, heads.key_value, heads.size, dtype, tried])
        if verdicts[rank()] == "run":
            return real(attend, heads, dtype, shapes)
        return "" if verdicts[rank()] == "dense alone" else verdicts[rank()]

    kernel_checks.attention_fault = attention_fault
    if verdicts[rank()] != "no kernel":
        kernel_checks.kernel_missing = lambda capability: ""
        kernel_checks.version_3_missing = lambda: ""
    decisions.compute_capability = lambda: tuple(cards[rank()])
    switch.paddle_build = lambda: "12.6"
    kernel_trials.rope_fault = lambda heads, dtype: kernels.get("rope", ["", ""])[rank()]
    kernel_trials.overlap_fault = lambda dtype, sequence_parallel: kernels.get("overlap", ["", ""])[rank()]
    overlapping = []
    kernel_trials.overlap = overlapping.append
    try:
        decided = decisions.decide(
            SimpleNamespace(**vars(MODEL) | model),
            SimpleNamespace(**vars(ADAPTER) | {"prefix_tuning": prefix}),
            SimpleNamespace(zero_padding=packed, eval_with_do_generation=mask == "dense" and not packed),
            SimpleNamespace(**vars(TRAINING) | training),
        )
    except UserError as error:
        return {"error": str(error), "checked": checked}
    return {
        "flash": decided.uses(FLASH_ATTENTION),
        "lines": decided.lines,
        "checked": checked,
        "kernels": sorted(kernel.flag for kernel in (FUSED_ROPE, OVERLAP) if decided.uses(kernel)),
        "overlapping": overlapping,
    }


def decide_rms_norm(capability: list | None, kinds: list, model: dict, training: dict) -> dict:
    """The decision about RMSNorm on such a card, Paddle's operator being one as its kernel is.

    kinds: of each rank's operator: "right", "wrong", right for a "few rows", or "none" for Paddle's CPU build as it is.
    """
    import paddle

    from launch.checkpoint.ranks import rank
    from launch.devices.fused_ln import Build, paddle_version
    from launch.families.named_configs import load_config
    from launch.rehearsal.collectives import install
    from launch.switches import FUSED_RMS_NORM, precision
    from launch.switches.switch import case_of

    if len(kinds) > 1:
        install()
        paddle.distributed.init_parallel_env()
    tried, parts = [], []

    def rms_norm(x, normalized_shape, weight, eps):
        assert x.dtype == weight.dtype and list(normalized_shape) == weight.shape == x.shape[-1:]
        parts.append(not x.is_contiguous())
        tried.append([x.shape[-1], str(x.dtype).removeprefix("paddle.")])
        eps = 0.1 if kinds[rank()] == "wrong" else eps
        inverse_rms = paddle.rsqrt(x.astype("float32").pow(2).mean(-1, keepdim=True) + eps)
        if kinds[rank()] == "few rows":
            computed = paddle.arange(inverse_rms.size).reshape(inverse_rms.shape) < 65535
            inverse_rms = inverse_rms * computed.astype("float32")
        return (x.astype("float32") * inverse_rms * weight.astype("float32")).astype(x.dtype), inverse_rms

    if kinds[rank()] != "none":
        paddle.nn.functional.rms_norm = rms_norm
    without_cuda = Build(Path("fused_ln"), paddle_version())
    values = SimpleNamespace(**vars(MODEL) | vars(ADAPTER) | vars(TRAINING) | model | training)
    dtype = precision.attention_dtype(values.bf16, values.fp16, values.fp16_opt_level)
    case = case_of(values, load_config(values.model_name_or_path), tuple(capability) if capability else None, dtype)
    decided = FUSED_RMS_NORM.start(values, replace(case, fused_ln=without_cuda if capability else None))
    losses = llama_losses(decided.enabled)
    return {"enabled": decided.enabled, "line": decided.reason, "tried": tried, "parts": parts, "losses": losses}


def llama_losses(fused: bool) -> list[float]:
    """Of a LLaMA as the decision sets it, and without a fused norm."""
    import paddle
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

    from launch.upstream import correct

    correct(["llama_fused_rms_norm_flag"])
    ids = paddle.arange(32).unsqueeze(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    losses = []
    for use in (fused, False):
        paddle.seed(1)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=256, use_fused_rms_norm=use, **sizes))
        losses.append(float(model(ids, labels=ids)[0]))
    return losses


def parse_all(cases: list) -> list[dict]:
    return [parse(*case) for case in cases]


def parse(argv: list[str], capability: list | None) -> dict:
    """bf16 and fp16 of run_pretrain's arguments on such a card, or the error."""
    from launch.config.run_config import RunConfig
    from launch.errors import UserError
    from launch.training import arguments

    arguments.compute_capability = lambda device: tuple(capability) if capability else None
    needed = ["--model_name_or_path", "llama-rehearsal", "--input_dir", "x", "--output_dir", "y", "--device", "cpu"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            *_, training = arguments.make_arguments(RunConfig.from_arguments("run_pretrain", needed + argv)[0])
    except UserError as error:
        return {"error": str(error)}
    return {"bf16": training.bf16, "fp16": training.fp16}


def decide_by_card(capabilities: list) -> dict:
    """As decide(), after --bf16 auto was resolved by each rank's own card."""
    import os

    from launch.switches.precision import resolve

    bf16, fp16 = resolve("auto", False, tuple(capabilities[int(os.environ["PADDLE_TRAINER_ID"])]))
    return decide(capabilities, training={"bf16": bf16, "fp16": fp16})
