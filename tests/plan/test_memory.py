"""The memory model against known arithmetic, and its parts for themselves."""

import pytest

from launch.config.layout import Layout
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.plan.hardware import CARDS, GIB
from launch.plan.job import FLOAT16, Job, Lora, Offload, Prefix
from launch.plan.memory_model import bytes_if_far, least_bytes, plan_memory
from launch.plan.plan_report import activations_of_layers, memory_lines
from launch.plan.shards import adapter_tensors, deal, local_tensors, stage_layers
from launch.plan.step import Place, replay
from launch.tape.quantized import Format

ACTIVATIONS = ("attention", "MLP", "norms", "residuals", "embedding", "logits and loss")
STATES = ("parameters", "gradients", "master weights", "moments")
ONE, TP4 = Layout(1, 1, 1, 1, ""), Layout(1, 1, 4, 1, "")


def sharded(stage: int, ranks: int) -> Layout:
    return Layout(1, ranks, 1, 1, f"stage{stage}")


def half(model: str, layout: Layout, **more) -> Job:
    """Pretraining in float16 O2 without flash attention: micro batch 1 of 2048 tokens."""
    job = Job(load_config(model), layout, 1, 1, 2048, compute=FLOAT16, amp="O2", master_weights=True)
    return job.changed(**more)


@pytest.mark.parametrize(
    ("layout", "gigabytes"), [(ONE, 112), (sharded(1, 8), 38.5), (sharded(2, 8), 26.25), (sharded(3, 8), 14)]
)
def test_states_of_7b_on_8_cards(layout, gigabytes):
    """16 N, 4 N + 12 N / 8, 2 N + 14 N / 8, 16 N / 8 for N = 7 billion (arXiv 1910.02054, figure 1), before the
    optimizer's step, on average over the ranks: whole tensors are not dealt evenly."""
    job = half("llama-7b", layout)
    ranks = layout.sharding_parallel_degree
    phases = [replay(job, Place(0, rank))["optimizer step"] for rank in range(ranks)]
    kept = sum(phase.get(part, 0) for phase in phases for part in STATES) / ranks
    numbers = ModelShape.from_config(job.config).parameters
    assert kept / numbers * 7 == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize("layout", [ONE, sharded(1, 8), sharded(2, 8), sharded(3, 8)], ids=str)
def test_gradients_that_are_summed_in_float32_take_twice_the_memory(layout):
    """--amp_master_grad 1."""
    jobs = [half("llama-7b", layout, accumulation=2, master_gradients=master) for master in (False, True)]
    usual, summed = (replay(job, Place(0, 0))["optimizer step"] for job in jobs)
    for part, times in (("gradients", 2), ("parameters", 1), ("moments", 1)):
        assert summed[part] == times * usual[part], part
    flags = {"model_name_or_path": ["llama-7b"], "fp16": ["1"], "fp16_opt_level": ["O2"]}
    jobs = [Job.from_flags("run_pretrain", flags | {"amp_master_grad": [on]}, 1) for on in "10"]
    assert [job.gradient_item for job in jobs] == [4, 2]


def test_activations_of_7b_and_the_published_rule_with_stage_3():
    """(34 + 5 a s / h) s b h bytes a layer (arXiv 2205.05198, equation 2) are 28.5 GiB in all, 42.5 with the 14 of
    stage 3. Paddle keeps more: the softmax in float32 beside that in 16 bit (6 bytes a score, not 5), the norms' inputs
    in float32, and queries and keys before and after their rotation."""
    tokens, hidden, layers, scores = 2048, 4096, 32, 32 * 2048**2
    literature = layers * (34 * tokens * hidden + 5 * scores)
    plan = plan_memory(half("llama-7b", ONE))
    parts = plan.worst.peak.parts
    assert activations_of_layers(half("llama-7b", ONE)) == literature
    assert "a layer: 28.5 GiB of activations; here 37.8 GiB" in "\n".join(memory_lines(half("llama-7b", ONE), plan))
    found = sum(parts.get(part, 0) for part in ACTIVATIONS)
    beyond = layers * (scores + (12 + 8) * tokens * hidden)
    assert found == pytest.approx(literature + beyond, rel=0.05)
    # 14 GB of states and 28.5 of activations: 42.5 by the rules, which neither card has.
    job = half("llama-7b", sharded(3, 8))
    states = 16 * 7e9 / 8
    together = states + activations_of_layers(job) / GIB * 1e9
    assert together / 1e9 == pytest.approx(42.5, abs=0.05)
    assert plan_memory(job).peak_bytes > together


@pytest.mark.parametrize(
    ("layout", "sequence_parallel", "bytes_a_number"),
    [(ONE, False, 34 + 80), (TP4, False, 10 + (24 + 80) / 4), (TP4, True, 114 / 4)],
)
def test_the_published_rule_under_tensor_parallel(layout, sequence_parallel, bytes_a_number):
    """Equations 1, 2 and 4; 5 a s / h is 80 here."""
    job = half("llama-7b", layout, sequence_parallel=sequence_parallel)
    assert activations_of_layers(job) == 32 * 2048 * 4096 * bytes_a_number
    assert activations_of_layers(job.changed(recompute="full")) == 0


@pytest.mark.parametrize("layout", [ONE, sharded(2, 8), sharded(3, 8), Layout(1, 2, 2, 2, "stage1")], ids=str)
def test_what_is_kept_between_steps_is_below_every_peak(layout):
    job = half("llama-7b", layout, recompute="full", accumulation=2)
    plan, least = plan_memory(job), least_bytes(job)
    assert max(stage.peak.total_bytes for stage in plan.stages) > least
    parts = {*STATES, "allocator slack", "CUDA context", "NCCL"}
    if layout.sharding == "stage3":
        parts -= {"gradients"}  # slices are forgotten after the optimizer's step
    kept = [sum(stage.phases[-1].parts.get(part, 0) for part in parts) for stage in plan.stages]
    assert least == pytest.approx(max(kept), rel=0.01)


@pytest.mark.parametrize("layout", [ONE, sharded(2, 8), sharded(3, 8), Layout(1, 2, 2, 2, "stage1")], ids=str)
@pytest.mark.parametrize("recompute", ["", "full"])
def test_only_what_does_not_fit_is_far_too_large(layout, recompute):
    """It is never said of a job that fits to the byte, always where a fifth more would be needed."""
    job = half("llama-7b", layout, recompute=recompute, accumulation=2)
    peak = plan_memory(job).peak_bytes
    assert bytes_if_far(job, peak) == 0
    assert 0 < bytes_if_far(job, peak / 1.2) <= 1.1 * peak


def test_a_mask_of_packed_rows_is_kept_once_and_in_a_pipeline_for_each_layer():
    """Beside flash attention, in 16 bit, and as it is read in bytes: those of all micro batches of a pipeline at once.
    Its first stage has two micro batches under way, of 16 layers; the mask after the last one is sent."""
    mask, data = 2 * 2048**2, 2048**2
    for layout, micro_batches, masks in ((ONE, 1, 1), (Layout(1, 1, 1, 2, ""), 4, 2 * 16)):
        job = half("llama-7b", layout, flash_attention=True, accumulation=4)
        ends, masked = (replay(one, Place())["forward"]["attention"] for one in (job, job.changed(dense_mask=True)))
        assert masked - ends == pytest.approx(masks * mask + micro_batches * data, abs=2 * mask), layout


@pytest.mark.parametrize(
    ("model", "card", "flags", "dense"),
    [
        ("llama-7b", "A100-40G", {}, False),
        ("llama-7b", "V100-32G", {}, True),
        ("llama-7b", "A100-40G", {"pipeline_parallel_degree": ["2"]}, True),
        ("llama-7b", "A100-40G", {"use_flash_attention": ["off"]}, True),
        ("bloom-7b1", "A100-40G", {}, True),
        ("llama-7b", "V100-32G", {"zero_padding": ["0"]}, False),
    ],
)
def test_packed_rows_have_a_mask_where_flash_mask_is_off(model, card, flags, dense):
    given = {"model_name_or_path": [model], "precision": ["auto"], "fp16_opt_level": ["O2"], "zero_padding": ["1"]}
    assert Job.from_flags("finetune_generation", given | flags, 2, CARDS[card]).dense_mask == dense


def test_stages_of_a_pipeline_and_who_gets_which_tensor():
    plan = plan_memory(half("llama-7b", Layout(1, 1, 1, 4, ""), accumulation=8))
    attention = [stage.peak.parts["attention"] for stage in plan.stages]
    assert attention == sorted(attention, reverse=True)
    assert attention[0] / attention[2] == pytest.approx(2, rel=0.1)
    # Embedding, layers, norm and head are dealt alike, as paddle's SegmentLayers does it.
    job = half("llama-7b", Layout(1, 1, 1, 3, ""))
    assert [len(layers) for layers in stage_layers(job)] == [10, 12, 10]
    assert deal([5, 1, 1, 4], 2, largest_first=False) == [0, 1, 1, 1]
    assert deal([1, 2, 3], 2, largest_first=True) == [1, 1, 0]


def test_adapters_train_what_they_say():
    lora = half("llama-7b", ONE, adapter=Lora(8, ("q_proj", "v_proj")))
    assert sum(one.size for one in adapter_tensors(lora)) == 32 * 2 * 8 * (4096 + 4096)
    dora = half("llama-7b", ONE, adapter=Lora(8, ("q_proj", "v_proj"), dora=True))
    assert sum(one.size for one in adapter_tensors(dora)) == 32 * 2 * (8 * (4096 + 4096) + 4096)
    rows = half("llama-7b", ONE, adapter=Lora(8, ("q_proj", "v_proj"), tokens=3))
    assert sum(one.size for one in adapter_tensors(rows)) == 32 * 2 * 8 * (4096 + 4096) + 2 * 3 * 4096
    prefix = half("llama-7b", ONE, adapter=Prefix(64))
    assert sum(one.size for one in adapter_tensors(prefix)) == 64 * 2 * 32 * 4096
    for job in (lora, dora, rows, prefix):
        parts = plan_memory(job).worst.peak.parts
        assert parts["moments"] == 8 * sum(one.size for one in adapter_tensors(job))


def test_a_base_in_4_bits_takes_a_quarter_and_is_quantized_weight_by_weight():
    def layers(base: Format | None) -> int:
        job = half("llama-7b", ONE, adapter=Lora(8, ("q_proj",)), base=base)
        return sum(one.nbytes for one in local_tensors(job) if ".layers." in one.name)

    linear, quantized = layers(None), layers(Format("nf4", double_quant=True))
    assert quantized / linear == pytest.approx(4.127 / 16, rel=1e-3)  # QLoRA, arXiv 2305.14314, section 3
    job = half("llama-13b", ONE, adapter=Lora(8, ("q_proj",)), recompute="full", base=Format("nf4"))
    kept = sum(one.nbytes for one in local_tensors(job))
    assert loading(job) == kept  # the largest come first, as they are beside less than what is kept in the end


def test_an_offloaded_optimizer_is_on_the_host_unless_it_returns_for_its_step():
    job = half("llama-7b", sharded(2, 8))
    here, there = plan_memory(job), plan_memory(job.changed(offload=Offload(optimizer=True)))
    assert "moments" not in there.worst.peak.parts and "master weights" not in there.worst.peak.parts
    moved = there.host["offload"]
    # Of an average rank: the heaviest has a little more.
    assert moved == pytest.approx(here.worst.peak.parts["moments"] * 1.5, rel=0.15)
    stage = plan_memory(half("llama-7b", ONE, offload=Offload(optimizer=True, returns=True))).worst
    phases = {phase.name: phase.parts for phase in stage.phases}
    assert "moments" not in phases["backward"] and phases["optimizer step"]["moments"] == 8 * 6738415616


def test_moments_in_16_bits_take_half_everywhere():
    job = half("llama-7b", sharded(2, 8), offload=Offload(optimizer=True, gradients=True), saves_in_background=True)
    narrow = job.changed(moment_item=2)
    numbers = 6738415616
    wide, less = plan_memory(job), plan_memory(narrow)
    assert wide.disk["checkpoint"] - less.disk["checkpoint"] == 4 * numbers
    assert wide.host["offload"] - less.host["offload"] == pytest.approx(
        4 * numbers / 8, rel=0.15
    )  # of the fullest rank
    here, there = (plan_memory(one.changed(offload=Offload())).worst.peak.parts["moments"] for one in (job, narrow))
    assert there - here / 2 == pytest.approx(4 * 2**22, rel=0.01)  # the noise that they are rounded with
    flags = {"model_name_or_path": ["llama-7b"], "optim": ["adamw_16bit_moment"]}
    assert Job.from_flags("run_pretrain", flags, 1).moment_bytes == 4


def test_offloaded_activations_are_in_host_memory():
    job = half("llama-7b", ONE, recompute="full", flash_attention=True, sequence_length=8192)
    residual, moved = 2 * 8192 * 4096, Offload(activations=True)
    assert job.residual_bytes == residual
    here, there = plan_memory(job), plan_memory(job.changed(offload=moved))
    peaks = [phase.total_bytes for plan in (here, there) for phase in plan.worst.phases if phase.name == "backward"]
    assert peaks[0] - peaks[1] == 32 * residual  # at the head's backward pass, where none has come back yet
    assert there.host["offload"] == 32 * residual
    lora = job.changed(offload=moved, adapter=Lora(8, ("q_proj",)))
    assert plan_memory(lora).host["offload"] == 31 * residual  # the first layer is not recomputed
    pipeline = job.changed(offload=moved, layout=Layout(1, 1, 1, 4, ""), accumulation=8)
    assert plan_memory(pipeline).host["offload"] == 8 * 4 * residual  # the first stage has 4 micro batches under way
    divided = job.changed(offload=moved, layout=TP4, sequence_parallel=True)
    assert plan_memory(divided).host["offload"] == 32 * residual // 4


def test_a_large_evaluation_batch_is_the_peak():
    job = half("llama-7b", ONE, recompute="full", eval_batch=64)
    assert plan_memory(job).worst.peak.name == "evaluation"
    assert plan_memory(job.changed(eval_batch=1)).worst.peak.name != "evaluation"


@pytest.mark.parametrize(("model", "key"), [("opt-125m", "hidden_dropout_prob"), ("bloom-rehearsal", "hidden_dropout")])
def test_preferences_are_planned_without_the_dropout_of_the_model(model, key):
    whole, none = (half(model, ONE).config | {key: share} for share in (0.1, 0.0))
    with_dropout, without = (plan_memory(half(model, ONE, config=config)).peak_bytes for config in (whole, none))
    assert with_dropout > without
    of_pairs = [plan_memory(half(model, ONE, config=each, loss_type="simpo")).peak_bytes for each in (whole, none)]
    assert of_pairs[0] == of_pairs[1]


def test_a_head_in_float32_has_a_copy_of_its_weight():
    job = half("chatglm-6b", ONE, adapter=Lora(8, ("query_key_value",)), sequence_length=256)
    plans = [plan_memory(job.changed(float32_norms_and_head=one)) for one in (False, True)]
    narrow, wide = (plan.worst.peak.parts["logits and loss"] for plan in plans)
    head, logits = 130528 * 4096, 256 * 130528
    assert 4 * head <= wide - narrow <= 4 * head + 8 * logits


def loading(job: Job) -> int:
    """Bytes of parameters on the card then."""
    phase = next(one for one in plan_memory(job).worst.phases if one.name == "loading")
    return sum(phase.parts.get(part, 0) for part in ("parameters", "quantized base"))


def test_what_stage_3_divides_is_whole_before_but_offloaded_in_host_memory():
    job = half("llama-13b", sharded(3, 2), adapter=Lora(8, ("q_proj",)), recompute="full")
    offloaded = job.changed(offload=Offload(optimizer=True, gradients=True, parameters=True))
    whole = 2 * ModelShape.from_config(job.config).parameters
    assert loading(job) == pytest.approx(whole, rel=1e-3)
    assert loading(offloaded) == 2 * 32000 * 5120  # its largest tensor
    assert plan_memory(offloaded).host["offload"] == whole and "offload" not in plan_memory(job).host


def test_checkpoints_on_the_disk_and_in_host_memory():
    job = half("llama-7b", sharded(2, 8))
    numbers = ModelShape.from_config(job.config).parameters
    at_once, behind = (plan_memory(job.changed(saves_in_background=one)).host["checkpoint"] for one in (False, True))
    assert at_once == 2 * 32000 * 4096
    assert behind == pytest.approx((2 + 12 / 8) * numbers, rel=0.1)  # of the fullest rank
    # Weights in 16 bit, their float32 copy and two moments.
    numbers = 6738415616
    job = half("llama-7b", sharded(2, 8), checkpoints=3)
    expected = {"checkpoint": (2 + 4 + 8) * numbers, "kept checkpoints": 3 * 14 * numbers, "model": 2 * numbers}
    assert plan_memory(job).disk == expected
    lora = job.changed(adapter=Lora(8, ("q_proj",)))
    assert plan_memory(lora).disk["checkpoint"] == 14 * 32 * 8 * (4096 + 4096)
