"""Sizes of the model against degrees and sequence length, and features that its family lacks.

The keys are those of the families' config.json; a size that a family does not state is not checked.
"""

from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.family import FEATURES
from launch.families.named_configs import load_config
from launch.families.parameters import HEADS, LAYERS
from launch.families.registry import family_of_config
from launch.models.rotary_scaling import scaled_by_length
from launch.preflight.rules.rule import ANNOUNCE, INNER, Rule

# Modules that a pipeline counts beside the decoder layers: embedding, last norm, head.
OTHER_PIPELINE_MODULES = 3
SLICES = "launch/training/sequence_slices.py"
LLAMA = "paddlenlp/transformers/llama/modeling.py"

RULES = (
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: not run.divides(run.tensor, *HEADS),
        found="{run.tensor} for {run.heads} attention heads",
        reason="each rank takes as many heads, upstream asserts it",
        source=f"{LLAMA}, LlamaAttention.__init__",
        fix="a degree that divides {run.heads}: {run.head_divisors}",
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: run.divides(run.tensor, *HEADS) and not run.divides(run.tensor, "num_key_value_heads"),
        found="{run.tensor} for {run.model[num_key_value_heads]} key/value heads",
        reason="upstream keeps them whole on each rank, and its attention then finds them in the wrong shape",
        source=f"{LLAMA}, LlamaAttention.__init__; measured: 2 on 4 ranks, 1 on 2 ranks: ValueError",
        fix="a degree that divides {run.model[num_key_value_heads]}",
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: not run.divides(run.tensor, *INNER),
        found="{run.tensor} for an intermediate size of {run.inner}",
        reason="each rank takes as many columns, upstream asserts it",
        source="paddle/distributed/fleet/layers/mpu/mp_layers.py, ColumnParallelLinear.__init__",
        fix="a degree that divides {run.inner}",
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: run.divides(run.tensor, *HEADS) and not run.divides(run.tensor, "hidden_size"),
        found="{run.tensor} for a hidden size of {run.model[hidden_size]}",
        reason="each rank takes as many columns",
        source="paddle/distributed/fleet/layers/mpu/mp_layers.py, ColumnParallelLinear.__init__",
        fix="a degree that divides {run.model[hidden_size]}",
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: not run.divides(run.tensor, "vocab_size") and bool(run.family) and run.family.odd_vocabulary,
        found="{run.tensor} does not divide the vocabulary of {run.model[vocab_size]}",
        reason="embedding and head stay whole on every rank",
        source=f"{LLAMA}, LlamaModel.__init__; measured: same losses",
        action=ANNOUNCE,
    ),
    Rule(
        flag="tensor_parallel_degree",
        when=lambda run: (
            not run.divides(run.tensor, "vocab_size") and bool(run.family) and not run.family.odd_vocabulary
        ),
        found="{run.tensor} does not divide the vocabulary of {run.model[vocab_size]}",
        reason="each rank of this family takes as many ids, upstream asserts it",
        source="paddle/distributed/fleet/layers/mpu/mp_layers.py, VocabParallelEmbedding.__init__",
        fix="a degree that divides {run.model[vocab_size]}",
    ),
    Rule(
        flag="pipeline_parallel_degree",
        when=lambda run: run.layers is not None and 0 < run.layers < run.pipeline - OTHER_PIPELINE_MODULES,
        found="{run.pipeline} stages for {run.layers} layers",
        reason="a stage would be empty, upstream asserts it",
        source="paddle/distributed/fleet/meta_parallel/parallel_layers/pp_layers.py, SegmentLayers.__init__",
        fix="at most {run.layers}",
    ),
    Rule(
        flag="pipeline_parallel_degree",
        when=lambda run: (
            run.layers is not None
            and not run.divides(run.pipeline, *LAYERS)
            and run.layers + OTHER_PIPELINE_MODULES >= run.pipeline
        ),
        found="{run.pipeline} stages for {run.layers} layers",
        reason="not equally many on each: embedding, norm and head are dealt out as if they were layers",
        source="paddlenlp/transformers/llama/modeling_pp.py, LlamaForCausalLMPipe.__init__; measured: same losses",
        action=ANNOUNCE,
    ),
    Rule(
        flag="max_seq_length",
        when=lambda run: run.longer_than_positions and run.flags.continue_training,
        found="{run.flags.max_seq_length}, and the model knows {run.positions} positions",
        reason="its weights have never seen the positions beyond",
        source="max_position_embeddings or max_sequence_length in the model's config.json",
        fix="at most {run.positions}; to train longer ones all the same, give the config.json of the model directory "
        "more of them: by rope_scaling (docs/families.md), or plain in max_position_embeddings",
    ),
    Rule(
        flag="max_seq_length",
        when=lambda run: run.longer_than_positions and not run.flags.continue_training,
        found="{run.flags.max_seq_length}",
        reason="the new model gets as many positions, its configuration says {run.positions}",
        source="launch/training/model.py, build_config",
        action=ANNOUNCE,
    ),
    Rule(
        flag="max_seq_length",
        when=lambda run: (run.flags.max_seq_length or 0) > run.window,
        found="{run.flags.max_seq_length}, and the model's attention reaches {run.window} positions",
        reason="the model classes of paddlenlp attend to all positions, whatever sliding_window says",
        source="paddlenlp/transformers/mistral/modeling.py, MistralModel._prepare_decoder_attention_mask",
        fix="at most {run.window}",
    ),
    Rule(
        flag="zero_padding",
        when=lambda run: bool(run.flags.zero_padding) and scaled_by_length(run.model),
        found="1, and rope_scaling in the model's config.json is dynamic",
        reason="it follows the length of a sequence: a sample would be scaled by those that share its row",
        source="transformers, modeling_rope_utils.py, _compute_dynamic_ntk_parameters",
        fix="--zero_padding 0, or rope_scaling of another type: yarn",
    ),
    Rule(
        flag="model_name_or_path",
        when=lambda run: (
            run.run.method.own_loss and bool(run.flags.do_train) and bool(run.model.get("output_router_logits"))
        ),
        found="its config.json has output_router_logits true",
        reason="fine-tuning leaves the auxiliary loss of experts out, pretraining adds it",
        source="launch/training/finetune.py, AnswerLoss",
        action=ANNOUNCE,
    ),
    Rule(
        flag="recompute_granularity",
        when=lambda run: (
            run.refuses("pipeline_full_recompute")
            and run.pipeline > 1
            and bool(run.flags.recompute)
            and run.flags.recompute_granularity == "full"
        ),
        found="full with --pipeline_parallel_degree {run.pipeline}",
        reason="the pipeline class of ChatGLM2 saves every activation all the same",
        source="paddlenlp/transformers/chatglm_v2/modeling_pp.py: recompute_interval is 0",
        fix="--recompute_granularity full_attn, which it does",
    ),
    Rule(
        flag="loss_chunk_tokens",
        when=lambda run: not run.has_loss_chunk,
        found="{run.flags.loss_chunk_tokens!r}",
        reason="the tokens of a chunk are a whole number above 0",
        source="launch/training/chunked_loss.py",
        fix="auto, off or a whole number above 0",
    ),
    Rule(
        flag="sequence_slices",
        when=lambda run: not run.has_slices,
        found="{run.flags.sequence_slices!r}",
        reason="the slices of a micro batch are a whole number above 0",
        source=SLICES,
        fix="auto, off or a whole number above 0",
    ),
    Rule(
        flag="sequence_slices",
        when=lambda run: run.slices and run.family is not None and not run.family.forward.slices_sequence,
        found="{run.flags.sequence_slices} for {run.family.title}",
        reason="its layers have no gated MLP of one kind for all tokens, with a norm of its own before it",
        source=SLICES,
        fix="--sequence_slices off, or a model like LLaMA, Qwen2, Qwen3 or Mistral",
    ),
    Rule(
        flag="sequence_slices",
        when=lambda run: run.slices and (run.tensor > 1 or run.pipeline > 1 or run.stage == "stage3"),
        found="{run.flags.sequence_slices} on {run.layout}",
        reason="a slice is computed again within the backward pass, where other ranks do not take part",
        source=SLICES,
        fix="--sequence_slices off, or data parallel with sharding stage1 or stage2",
    ),
    Rule(
        flag="sequence_slices",
        when=lambda run: run.slices and run.flags.weight_quantize_algo == "llm.int8",
        found="{run.flags.sequence_slices} with --weight_quantize_algo llm.int8",
        reason="its columns apart are those of all tokens together",
        source=SLICES,
        fix="--weight_quantize_algo weight_only_int8, or --sequence_slices off",
    ),
)

# What a family lacks, from launch/families: feature -> (flag that requests it, whether it does, what to do instead).
# Flash attention has a gate of its own.
REQUESTED_BY = {
    "pretrain": (
        "model_name_or_path",
        lambda run: not run.run.method.reads_rows,
        "--model_name_or_path names a model of another family",
    ),
    "tensor_parallel": ("tensor_parallel_degree", lambda run: run.tensor > 1, "--tensor_parallel_degree 1"),
    "pipeline_parallel": ("pipeline_parallel_degree", lambda run: run.pipeline > 1, "--pipeline_parallel_degree 1"),
    "sequence_parallel": (
        "sequence_parallel",
        lambda run: bool(run.flags.sequence_parallel),
        "--sequence_parallel 0",
    ),
    "recompute": ("recompute", lambda run: bool(run.flags.recompute), "--recompute 0"),
    "packing": ("zero_padding", lambda run: bool(run.flags.zero_padding), "--zero_padding 0"),
    "lora": ("lora", lambda run: bool(run.flags.lora), "--lora 0"),
    "prefix": ("prefix_tuning", lambda run: bool(run.flags.prefix_tuning), "--lora 1 instead of --prefix_tuning 1"),
}

FAMILY_RULES = tuple(
    Rule(
        flag=flag,
        when=lambda run, feature=feature, requested=requested: bool(run.lacking.get(feature)) and requested(run),
        found=f"{{run.family.title}} has no {FEATURES[feature]}",
        reason=f"{{run.lacking[{feature}]}}",
        source="launch/families/registry.py",
        fix=fix,
    )
    for feature, (flag, requested, fix) in REQUESTED_BY.items()
)


# Features that a run can do without, as it learns the same -> the flag that asks for them, and its value without.
DISPENSABLE = {"packing": ("zero_padding", 0), "recompute": ("recompute", 0)}
# And those of a file that another program's users wrote, for layouts that its families have.
OF_FILES = {"sequence_parallel": ("sequence_parallel", 0), "pipeline_parallel": ("pipeline_parallel_degree", 1)}
ACCUMULATION = "gradient_accumulation_steps"


def without_what_is_lacking(run: RunConfig, of_file: bool = False) -> tuple[RunConfig, list[str]]:
    """Return the run without what its recipe or file asks for and its model's family lacks, and lines.

    Ranks of a file's stages become data ranks, with less accumulation: a step has the samples of before, or the stages
    stay and are refused. So are the user's own flags, such as --zero_padding 1.
    """
    try:
        family = family_of_config(load_config(run.flags.model_name_or_path or ""))
    except UserError:  # which the check of the model reports
        return run, []
    changed, lines = {}, []
    for feature, (flag, without) in (DISPENSABLE | (OF_FILES if of_file else {})).items():
        found = int(getattr(run.flags, flag) or 0)
        if found <= without or flag in run.own or feature not in family.lacking:
            continue
        fewer = {flag: without}
        if without:
            steps, left = divmod(run.flags.gradient_accumulation_steps, found)
            if left:
                continue
            fewer = {ACCUMULATION: steps} | fewer
        changed |= {name: [str(value)] for name, value in fewer.items()}
        words = " ".join(f"--{name} {value}" for name, value in fewer.items())
        lines.append(
            f"{words} instead of {found}: {family.title} has no {FEATURES[feature]}: {family.lacking[feature]}"
        )
    return run.changed(changed), lines
