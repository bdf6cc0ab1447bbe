"""What a search may replace: the changes by which the literature saves memory, what FIT may change, and layouts.

Whether the result is legal, fits, and how fast it is, launch/plan/search.py finds out.
"""

from collections.abc import Iterator
from itertools import product
from math import gcd

from launch.config.flag_values import Flags, FlagValues
from launch.config.layout import EVALUATION_BATCH, MICRO_BATCH
from launch.config.run_config import RunConfig
from launch.families.arithmetic import SLICE_TOKENS, ModelShape
from launch.families.named_configs import config_names, load_config
from launch.families.parameters import attention_heads, key_value_heads
from launch.families.registry import family_of_config
from launch.methods.preference_flags import SECOND_COPY
from launch.plan.job import FLOAT32, Job, Offload
from launch.plan.search import BATCH, Edit

MODEL = "model"  # the kind of edit that trains another model
STAND_INS = ("-rehearsal", "-tiny")  # configurations that nobody has weights of
QUANTIZED = "nf4"  # as recipes/llama-7b/qlora.sh
GRADES = ("", "core_attn", "full_attn", "full")
STAGES = ("", "stage1", "stage2", "stage2 offload", "stage3", "stage3 offload")
# What a flag of a layout means that is not stated.
DEFAULTS = {
    "tensor_parallel_degree": ["1"],
    "pipeline_parallel_degree": ["1"],
    "sequence_parallel": ["0"],
    "sharding": [""],
    "recompute": ["0"],
    "offload_optim": ["0"],
}
# All flags of a layout.
DIVIDING = {*DEFAULTS, "sharding_parallel_degree", "recompute_granularity"}
SAMPLED_AT_ONCE = "sampled_at_once"
ONE_EVALUATED = Edit("evaluation batch 1", "evaluation", {EVALUATION_BATCH: "1"})

ACTIVATIONS_ON_HOST = Edit(
    "recompute full, activations in host memory",
    "recompute",
    {"recompute": "1", "recompute_granularity": "full", "offload": "activations"},
)

SLICES = "sequence_slices"
SHARED_FROM = 2 * SLICE_TOKENS  # tokens of a sample that several ranks are offered to share


def long_text_edits(job: Job) -> Iterator[Edit]:
    """Yield what makes room for long texts beside recompute: its inputs in host memory, MLPs and norms in slices."""
    if not job.offload.activations:
        yield ACTIVATIONS_ON_HOST
    layout = job.layout
    alone = layout.tensor_parallel_degree == layout.pipeline_parallel_degree == 1 and layout.sharding != "stage3"
    whole = job.slice_tokens == 0 < job.changed(sequence_slices="auto").slice_tokens
    if whole and alone and not (job.base and job.base.algo == "llm.int8"):
        title = f"{ACTIVATIONS_ON_HOST.title}, MLPs and norms in slices"
        yield Edit(title, ACTIVATIONS_ON_HOST.kind, ACTIVATIONS_ON_HOST.flags | {SLICES: "auto"})


def shared_sample_edits(job: Job) -> Iterator[Edit]:
    """Yield the numbers of ranks that can share a long sample."""
    layout, config = job.layout, job.config
    alone = layout.tensor_parallel_degree == layout.pipeline_parallel_degree == 1
    possible = alone and job.family.shares_samples and not (job.weighed or job.reward_model)
    if not possible or job.sequence_length < SHARED_FROM:
        return
    heads = gcd(attention_heads(config), key_value_heads(config), job.sequence_length, layout.processes)
    for ranks in (2, 4, 8):
        if ranks > layout.sep_parallel_degree and heads % ranks == 0:
            yield Edit(f"{ranks} ranks share a sample", "sharing", {"sep_parallel_degree": str(ranks)})


def moment_edits(job: Job) -> Iterator[Edit]:
    """Yield the other moments that are small where parameters are updated within the backward pass."""
    if job.in_backward and job.eight_bits:
        yield Edit("factored moments", "moments", {"optim": "adafactor"}, "the optimizer is Adafactor")


def vocabulary_edits(job: Job) -> Iterator[Edit]:
    """Yield what makes room beside an adapter on one process: the word embedding in host memory, a quantized head.

    They are for models whose output layer has a weight of its own.
    """
    layout, base = job.layout, job.base
    alone = layout.tensor_parallel_degree == layout.pipeline_parallel_degree == 1
    if alone and not (job.trains_all or job.host_embedding or job.offload.parameters) and job.has_own_head:
        yield Edit("word embedding in host memory", "embedding", {"offload_embedding": "1"})
    if alone and base and not base.head and base.algo != "llm.int8" and job.has_own_head:
        yield Edit(f"output layer in {base.bits} bits", "head", {"quantize_head": "1"}, "the output layer is rounded")


def literature(run: RunConfig, job: Job) -> Iterator[Edit]:
    """Yield the single changes that make a run smaller, in the order in which the literature tries them.

    Args:
        run: the run, whose flags decide what applies
        job: of the run
    """
    if job.eval_batch > 1 and job.layout.pipeline_parallel_degree == 1:
        # Our evaluation sums losses batch by batch and keeps no logits; the largest tensor is one batch's logits.
        yield ONE_EVALUATED
    if job.compute == FLOAT32 and job.on_gpu:
        yield Edit("16 bit", "precision", {"bf16": "auto", "fp16": "0", "fp16_opt_level": "O2"})
    if not job.flash_attention:
        yield Edit("flash attention", "attention", {"use_flash_attention": "auto"})
    if job.reference == SECOND_COPY and job.loss_type:
        yield Edit("the reference computed before training", "reference", {"reference": "precomputed"})
    size = job.micro_batch
    while size := size // 2:
        yield Edit(f"micro batch {size}", BATCH, {MICRO_BATCH: str(size)})
    fewer = [
        one
        for one in samplings(run.flags, job.micro_batch * job.accumulation)
        if int(one.flags[SAMPLED_AT_ONCE]) < job.sampled_at_once
    ]
    yield from reversed(fewer)
    length = job.sequence_length // 2
    flags = {run.method.length_flag: str(length)}
    if run.flags.src_length:  # questions and answers keep their shares
        flags["src_length"] = str(run.flags.src_length // 2)
    yield Edit(f"samples of {length} tokens", "length", flags, "samples are cut at half the length")
    yield from _more_sharding(job)
    if job.trains_all and run.flags.optim == "adamw":
        flags = {"optim": "adamw_16bit_moment"}
        yield Edit("moments in 16 bits", "moments", flags, "the optimizer's moments are rounded")
    if job.own_loss and job.trains_all:
        yield Edit("LoRA", "adapter", {"lora": "1"}, "adapters are trained, the model is frozen")
    if (job.own_loss or run.flags.lora) and not job.base:
        flags = {"weight_quantize_algo": QUANTIZED} | ({} if run.flags.lora else {"lora": "1"})
        yield Edit("QLoRA: a base of 4 bits", "adapter", flags, "adapters are trained, the frozen model is rounded")
    yield from vocabulary_edits(job)
    yield from map(_recompute, GRADES[GRADES.index(job.recompute) + 1 :])
    if job.on_gpu:
        yield from long_text_edits(job)
        yield from shared_sample_edits(job)
    yield from _more_parallel(run, job)
    yield from _smaller_model(run, job)


def _more_sharding(job: Job) -> Iterator[Edit]:
    layout = job.layout
    if layout.data_ranks == 1:
        if job.trains_all and not job.offload.optimizer:
            yield Edit("optimizer in host memory between steps", "sharding", {"offload_optim": "1"})
        return
    if job.offload.gradients:
        return
    stages = ["stage1", "stage2", "stage3"]
    for stage in stages[stages.index(layout.sharding) if layout.sharding else 0 :]:
        if stage != layout.sharding:
            yield Edit(f"sharding {stage}", "sharding", {"sharding": stage})
        if stage != "stage1" and job.trains_all:  # adapters have no optimizer to speak of
            flags = {"sharding": stage, "offload_optim": "1"}
            yield Edit(f"sharding {stage}, optimizer in host memory between steps", "sharding", flags)
        if stage == "stage3" or (stage == "stage2" and job.trains_all):
            yield Edit(f"sharding {stage} with offload", "sharding", {"sharding": f"{stage} offload"})


def _recompute(grade: str) -> Edit:
    flags = {"recompute": "1", "recompute_granularity": grade} if grade else {"recompute": "0"}
    return Edit(f"recompute {grade}" if grade else "no recompute", "recompute", flags)


def _more_parallel(run: RunConfig, job: Job) -> Iterator[Edit]:
    """Yield more of tensor and pipeline parallel, less of neither."""
    layout = job.layout
    for tensor, pipeline in factors(run.processes):
        title, flags = [], {}
        if tensor > layout.tensor_parallel_degree:
            title.append(f"tensor parallel {tensor}")
            flags["tensor_parallel_degree"] = str(tensor)
            if "sequence_parallel" not in job.family.lacking:
                flags["sequence_parallel"] = "1"
        if pipeline > layout.pipeline_parallel_degree:
            title.append(f"pipeline parallel {pipeline}")
            flags["pipeline_parallel_degree"] = str(pipeline)
        if flags and tensor >= layout.tensor_parallel_degree and pipeline >= layout.pipeline_parallel_degree:
            yield Edit(" x ".join(title), "parallel", flags)


def _smaller_model(run: RunConfig, job: Job) -> Iterator[Edit]:
    """Yield the next smaller one of the family that has a configuration here."""
    name = run.flags.model_name_or_path or ""
    owner, slash, short = name.rpartition("/")
    if short not in config_names():
        return
    sizes = {}
    for other in config_names():
        if other.endswith(STAND_INS):
            continue
        config = load_config(other)
        if family_of_config(config) == job.family:
            sizes[other] = ModelShape.from_config(config).parameters
    smaller = [other for other in sizes if sizes[other] < sizes[short]]
    if smaller and owner:
        chosen = owner + slash + max(smaller, key=sizes.__getitem__)
        flags = {"model_name_or_path": chosen}
        if run.flags.tokenizer_name_or_path == name:
            flags["tokenizer_name_or_path"] = chosen
        yield Edit(f"a smaller model, {chosen}", MODEL, flags, "another model is trained")


def offloads(job: Job) -> Iterator[Edit]:
    """Yield the optimizer's states, or with them gradients and parameters, in host memory, in the stage as it is."""
    stage = job.layout.sharding
    kinds = [("nothing in host memory", Offload())]
    if job.trains_all and (job.layout.data_ranks == 1 or stage in ("stage2", "stage3")):
        kinds.append(("optimizer in host memory between steps", Offload(optimizer=True, returns=True)))
    if stage == "stage3" or (stage == "stage2" and job.trains_all):
        all_states = "optimizer, gradients and parameters in host memory"
        title = all_states if stage == "stage3" else "optimizer and gradients in host memory"
        kinds.append((title, Offload(optimizer=True, gradients=True)))
    for title, kind in kinds:
        flags = {}
        if stage and kind.gradients != job.offload.gradients:
            flags["sharding"] = f"{stage} offload" if kind.gradients else stage
        if kind.returns != job.offload.returns:
            flags["offload_optim"] = "1" if kind.returns else "0"
        if flags:
            yield Edit(title, "offload", flags)


def recomputes(job: Job) -> Iterator[Edit]:
    """Yield the other grades of recompute, and the inputs of recomputed layers in host memory."""
    if "recompute" in job.family.lacking:
        return
    yield from (_recompute(grade) for grade in GRADES if grade != job.recompute)
    yield from long_text_edits(job)


def samplings(values: FlagValues, samples: int) -> Iterator[Edit]:
    """Yield other numbers of answers that reinforcement samples at once, up to those of a rollout of so many prompts.

    No answer depends on the others.
    """
    if not values.sampled_at_once:
        return
    answers = samples * (values.group_size or 1) * (values.rollout_steps or 1)
    for size in (1 << exponent for exponent in range(3, (answers - 1).bit_length() + 1)):
        if size != values.sampled_at_once:
            yield Edit(f"{size} answers at once", "sampling", {SAMPLED_AT_ONCE: str(size)})


def layouts(processes: int, grades: tuple[str, ...] = GRADES, offload: tuple[str, ...] = ("", "1")) -> Iterator[Edit]:
    """Yield all ways to divide a run that has none of DIVIDING, legal or not.

    They are all combinations of tensor, pipeline and sequence parallel, sharding, and of these grades of recompute and
    values of --offload_optim. Flags at their defaults are left out.
    """
    for tensor, pipeline in factors(processes):
        stages = ("",) if tensor * pipeline == processes else STAGES
        for stage, grade, returns, sequence in product(stages, grades, offload, ("", "1") if tensor > 1 else ("",)):
            flags = {
                "tensor_parallel_degree": str(tensor) if tensor > 1 else "",
                "pipeline_parallel_degree": str(pipeline) if pipeline > 1 else "",
                "sequence_parallel": sequence,
                "sharding": stage,
                "recompute": "1" if grade else "",
                "recompute_granularity": grade,
                "offload_optim": returns,
            }
            yield Edit("", "layout", {name: value for name, value in flags.items() if value})


def undivided(flags: Flags) -> Flags:
    """Return the flags without a layout's."""
    return {name: words for name, words in flags.items() if name not in DIVIDING}


def factors(processes: int) -> Iterator[tuple[int, int]]:
    """Return (tensor, pipeline) degrees that are powers of two and whose product divides the processes."""
    powers = [1 << exponent for exponent in range(processes.bit_length()) if processes % (1 << exponent) == 0]
    return ((tensor, product // tensor) for product in powers for tensor in reversed(powers) if product % tensor == 0)
