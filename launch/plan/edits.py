"""The single changes that make a run smaller, in the order in which the literature tries them.

Each function of EDITS looks at a run and says which flags to change; nothing where it does not apply. Whether the
result is legal, fits and how slow it is, others find out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launch.config.flag_values import Flags
from launch.config.layout import ACCUMULATION, EVALUATION_BATCH, MICRO_BATCH, Layout
from launch.config.preference_flags import SECOND_COPY
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import config_names, load_config
from launch.families.registry import family_of_config
from launch.plan.job import FLOAT32, Job

STAND_INS = ("-rehearsal", "-tiny")  # configurations that nobody has weights of
QUANTIZED = "nf4"  # as recipes/llama-7b/qlora.sh


@dataclass(frozen=True)
class Edit:
    """title: what it does, for people. kind: two edits of one kind exclude each other. flags: those that change.

    result: what else is trained then, "" where the run computes the same.
    """

    title: str
    kind: str
    flags: dict[str, str]
    result: str = ""


@dataclass(frozen=True)
class Requested:
    """The run that the user requested, and what the plan counts of it."""

    run: RunConfig
    job: Job

    @property
    def length_flag(self) -> str:
        return "max_length" if self.job.finetunes else "max_seq_length"


def edits(requested: Requested) -> list[Edit]:
    """All that apply, in order."""
    return [edit for function in EDITS for edit in function(requested)]


def _evaluation_batch(requested: Requested) -> Iterator[Edit]:
    """Our evaluation sums losses batch by batch and keeps no logits; the largest tensor is one batch's logits."""
    if requested.job.eval_batch > 1 and requested.job.layout.pipeline_parallel_degree == 1:
        yield Edit("evaluation batch 1", "evaluation", {EVALUATION_BATCH: "1"})


def _half_precision(requested: Requested) -> Iterator[Edit]:
    if requested.job.compute == FLOAT32 and requested.job.on_gpu:
        yield Edit("16 bit", "precision", {"bf16": "auto", "fp16": "0", "fp16_opt_level": "O2"})


def _flash_attention(requested: Requested) -> Iterator[Edit]:
    if not requested.job.flash_attention:
        yield Edit("flash attention", "attention", {"use_flash_attention": "auto"})


def _reference(requested: Requested) -> Iterator[Edit]:
    if requested.job.reference == SECOND_COPY:
        yield Edit("the reference computed before training", "reference", {"reference": "precomputed"})


def _micro_batch(requested: Requested) -> Iterator[Edit]:
    size = requested.job.micro_batch
    while size > 1:
        size //= 2
        yield Edit(f"micro batch {size}", "batch", {MICRO_BATCH: str(size)})


def _sequence_length(requested: Requested) -> Iterator[Edit]:
    """Questions and answers of fine-tuning keep their shares."""
    length = requested.job.sequence_length // 2
    flags = {requested.length_flag: str(length)}
    if requested.run.flags.src_length:
        flags["src_length"] = str(requested.run.flags.src_length // 2)
    yield Edit(f"samples of {length} tokens", "length", flags, "samples are cut at half the length")


def _sharding(requested: Requested) -> Iterator[Edit]:
    layout = requested.job.layout
    if layout.data_ranks == 1:
        if requested.job.trains_all and not requested.job.offload.optimizer:
            yield Edit("optimizer in host memory between steps", "sharding", {"offload_optim": "1"})
        return
    if requested.job.offload.gradients:
        return
    stages = ["stage1", "stage2", "stage3"]
    for stage in stages[stages.index(layout.sharding) if layout.sharding else 0 :]:
        if stage != layout.sharding:
            yield Edit(f"sharding {stage}", "sharding", {"sharding": stage})
        if stage != "stage1" and requested.job.trains_all:
            flags = {"sharding": stage, "offload_optim": "1"}
            yield Edit(f"sharding {stage}, optimizer in host memory between steps", "sharding", flags)
        if stage == "stage3" or (
            stage == "stage2" and requested.job.trains_all
        ):  # adapters have no optimizer to speak of
            yield Edit(f"sharding {stage} with offload", "sharding", {"sharding": f"{stage} offload"})


def _moments(requested: Requested) -> Iterator[Edit]:
    if requested.job.trains_all and requested.run.flags.optim == "adamw":
        flags = {"optim": "adamw_16bit_moment"}
        yield Edit("moments in 16 bits", "moments", flags, "the optimizer's moments are rounded")


def _adapters(requested: Requested) -> Iterator[Edit]:
    if requested.job.finetunes and requested.job.trains_all:
        yield Edit("LoRA", "adapter", {"lora": "1"}, "adapters are trained, the model is frozen")


def _quantized_base(requested: Requested) -> Iterator[Edit]:
    if (requested.job.finetunes or requested.run.flags.lora) and not requested.job.base:
        flags = {"weight_quantize_algo": QUANTIZED} | ({} if requested.run.flags.lora else {"lora": "1"})
        yield Edit("QLoRA: a base of 4 bits", "adapter", flags, "adapters are trained, the frozen model is rounded")


def _recompute(requested: Requested) -> Iterator[Edit]:
    granularities = ["core_attn", "full_attn", "full"]
    done = requested.job.recompute
    for granularity in granularities[granularities.index(done) + 1 if done else 0 :]:
        flags = {"recompute": "1", "recompute_granularity": granularity}
        yield Edit(f"recompute {granularity}", "recompute", flags)
    if requested.job.on_gpu and not requested.job.offload.activations:
        flags = {"recompute": "1", "recompute_granularity": "full", "offload": "activations"}
        yield Edit("recompute full, activations in host memory", "recompute", flags)


def _parallel(requested: Requested) -> Iterator[Edit]:
    """More of tensor and pipeline parallel, less of neither."""
    layout = requested.job.layout
    for tensor, pipeline in factors(requested.run.processes):
        title, flags = [], {}
        if tensor > layout.tensor_parallel_degree:
            title.append(f"tensor parallel {tensor}")
            flags["tensor_parallel_degree"] = str(tensor)
            if "sequence_parallel" not in requested.job.family.lacking:
                flags["sequence_parallel"] = "1"
        if pipeline > layout.pipeline_parallel_degree:
            title.append(f"pipeline parallel {pipeline}")
            flags["pipeline_parallel_degree"] = str(pipeline)
        if flags and tensor >= layout.tensor_parallel_degree and pipeline >= layout.pipeline_parallel_degree:
            yield Edit(" x ".join(title), "parallel", flags)


def _smaller_model(requested: Requested) -> Iterator[Edit]:
    """The next smaller one of the family that has a configuration here."""
    name = requested.run.flags.model_name_or_path
    owner, slash, short = name.rpartition("/")
    if short not in config_names():
        return
    sizes = {}
    for other in config_names():
        if other.endswith(STAND_INS):
            continue
        config = load_config(other)
        if family_of_config(config) == requested.job.family:
            sizes[other] = ModelShape.from_config(config).parameters
    smaller = [other for other in sizes if sizes[other] < sizes[short]]
    if smaller and owner:
        chosen = owner + slash + max(smaller, key=sizes.__getitem__)
        flags = {"model_name_or_path": chosen}
        if requested.run.flags.tokenizer_name_or_path == name:
            flags["tokenizer_name_or_path"] = chosen
        yield Edit(f"a smaller model, {chosen}", "model", flags, "another model is trained")


EDITS: tuple[Callable[[Requested], Iterator[Edit]], ...] = (
    _evaluation_batch,
    _half_precision,
    _flash_attention,
    _reference,
    _micro_batch,
    _sequence_length,
    _sharding,
    _moments,
    _adapters,
    _quantized_base,
    _recompute,
    _parallel,
    _smaller_model,
)


def with_edits(requested: Requested, chosen: tuple[Edit, ...]) -> Flags | None:
    """The flags with these edits, as many samples a step; None where the edits exclude each other or the samples cannot
    be dealt out."""
    if len({edit.kind for edit in chosen}) < len(chosen):
        return None
    changed = {name: [value] for edit in chosen for name, value in edit.flags.items()}
    try:
        layout = Layout.from_flags(requested.run.words | changed, requested.run.processes)
    except UserError:
        return None
    micro_batch = int(changed.get(MICRO_BATCH, [requested.job.micro_batch])[0])
    steps, rest = divmod(requested.job.global_batch, micro_batch * layout.data_ranks)
    if rest or not steps:
        return None
    if steps != requested.job.accumulation:
        changed[ACCUMULATION] = [str(steps)]
    return requested.run.words | changed


def factors(processes: int) -> Iterator[tuple[int, int]]:
    """(tensor, pipeline) degrees that are powers of two and whose product divides the processes."""
    powers = [1 << exponent for exponent in range(processes.bit_length()) if processes % (1 << exponent) == 0]
    return ((tensor, product // tensor) for product in powers for tensor in reversed(powers) if product % tensor == 0)
