"""What ranks decide that each have a simulated card."""

import contextlib
import io
from types import SimpleNamespace

MODEL = SimpleNamespace(
    model_name_or_path="llama-rehearsal", use_flash_attention="auto", use_fused_rms_norm="auto"
)
TRAINING = SimpleNamespace(
    precision=None, bf16=True, fp16=False, fp16_opt_level="O2", scale_loss=32768.0, tensor_parallel_degree=-1
)


def decide(capabilities: list, verdicts: list, model: dict, training: dict) -> dict:
    """Decisions of this rank, the card and the verdict of the start-up check being those of its number.

    capabilities: [major, minor] of each rank. verdicts: what its check finds; "run" for the real one.
    """
    import paddle

    from launch.devices import flash_attention
    from launch.errors import UserError
    from launch.rehearsal.collectives import install
    from launch.training import decisions
    from launch.training.ranks import rank

    if len(capabilities) > 1:
        install()
        paddle.distributed.init_parallel_env()
    checked = []
    real = decisions.disagreement

    def disagreement(attend, heads, dtype, mask):
        checked.append([heads.query, heads.key_value, heads.size, dtype, mask])
        return real(attend, heads, dtype, mask) if verdicts[rank()] == "run" else verdicts[rank()]

    decisions.disagreement = disagreement
    decisions.compute_capability = lambda: tuple(capabilities[rank()])
    flash_attention.paddle_build = lambda: "12.6"
    try:
        decided = decisions.decide(
            SimpleNamespace(**vars(MODEL) | model), SimpleNamespace(**vars(TRAINING) | training), mask="dense"
        )
    except UserError as error:
        return {"error": str(error), "checked": checked}
    return {"flash": decided.flash_attention.enabled, "lines": decided.lines, "checked": checked}


def parse(argv: list[str], capability: list | None) -> dict:
    """bf16 and fp16 of run_pretrain's arguments on such a card, or the error."""
    from launch.errors import UserError
    from launch.training import arguments

    arguments.compute_capability = lambda device: tuple(capability) if capability else None
    needed = ["--model_name_or_path", "llama-rehearsal", "--input_dir", "x", "--output_dir", "y", "--device", "cpu"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            *_, training = arguments.parse_pretrain(needed + argv)
    except UserError as error:
        return {"error": str(error)}
    return {"bf16": training.bf16, "fp16": training.fp16}


def decide_by_card(capabilities: list) -> dict:
    """As decide(), after --bf16 auto was resolved by each rank's own card."""
    import os

    from launch.devices.precision import resolve

    bf16, fp16 = resolve("auto", False, tuple(capabilities[int(os.environ["PADDLE_TRAINER_ID"])]))
    return decide(capabilities, ["", ""], {}, {"bf16": bf16, "fp16": fp16})
