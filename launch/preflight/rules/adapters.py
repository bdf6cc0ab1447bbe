"""Adapters and quantized bases: what they cannot be combined with."""

import math

from launch.preflight.rules.rule import ANNOUNCE, Rule

QUANTIZATION = "launch/adapters/quantization.py"
PISSA = "launch/adapters/pissa.py"
DORA = "launch/adapters/dora.py"
QUANTIZED_HEAD = "launch/adapters/quantized_layers.py, PackedColumns"
HOST_EMBEDDING = "launch/offload/embedding.py"
ROWS = "launch/adapters/token_rows.py"
BLOCKWISE = ("nf4", "fp4")

RULES = (
    Rule(
        flag="prefix_tuning",
        when=lambda run: bool(run.flags.prefix_tuning) and not run.run.method.reads_rows,
        found="1 in pretraining",
        reason="a prefix is trained on questions and answers, and tested there alone",
        source="launch/training/pretrain.py",
        fix="--lora 1, or launch/finetune_generation.py",
    ),
    Rule(
        flag="prefix_tuning",
        when=lambda run: bool(run.flags.prefix_tuning) and run.pipeline > 1,
        found="1 with --pipeline_parallel_degree {run.pipeline}",
        reason="upstream has no prefixes for pipelines (NotImplementedError)",
        source="paddlenlp/peft/prefix/prefix_model.py, PrefixModelForCausalLM.__init__",
        fix="--pipeline_parallel_degree 1, or --lora 1",
    ),
    Rule(
        flag="zero_padding",
        when=lambda run: bool(run.flags.zero_padding and run.flags.prefix_tuning),
        found="1 with --prefix_tuning 1",
        reason="each family widens the mask for a prefix in a way of its own, not tested on masks of packed dialogues",
        source="paddlenlp/peft/prefix/prefix_model.py, PrefixModelForCausalLM.forward",
        fix="--zero_padding 0, or --lora 1 instead of --prefix_tuning 1",
    ),
    Rule(
        flag="lora",
        when=lambda run: bool(run.flags.lora and run.flags.prefix_tuning),
        found="1 with --prefix_tuning 1",
        reason="one adapter at a time: the second would freeze the first",
        source="paddlenlp/peft/prefix/prefix_model.py, mark_only_prefix_as_trainable",
        fix="one of the two",
    ),
    Rule(
        flag="tensor_parallel_config",
        when=lambda run: (
            bool(run.flags.weight_quantize_algo) and run.has_word("tensor_parallel_config", "enable_mp_async_allreduce")
        ),
        found="enable_mp_async_allreduce with --weight_quantize_algo {run.flags.weight_quantize_algo}",
        reason="upstream's product that overlaps with the all-reduce takes whole weights only",
        source="paddle/distributed/fleet/layers/mpu/mp_layers.py, InnerOverlapLinear",
        fix="leave enable_mp_async_allreduce out",
    ),
    Rule(
        flag="pad_to_multiple_of",
        when=lambda run: (
            (run.flags.pad_to_multiple_of or 0) > 1
            and (run.flags.max_length or 0) % (run.flags.pad_to_multiple_of or 1) > 0
        ),
        found="{run.flags.pad_to_multiple_of}, which does not divide --max_length {run.flags.max_length}",
        reason="batches of the longest samples would be longer than that",
        source="launch/training/batches.py, PaddingCollator",
        fix="a --max_length that it divides",
    ),
    Rule(
        flag="max_length",
        when=lambda run: (run.flags.max_length or 0) > run.window,
        found="{run.flags.max_length}, and the model's attention reaches {run.window} positions",
        reason="the model classes of paddlenlp attend to all positions, whatever sliding_window says",
        source="paddlenlp/transformers/mistral/modeling.py, MistralModel._prepare_decoder_attention_mask",
        fix="at most {run.window}",
    ),
    Rule(
        flag="fp32_norms_and_head",
        when=lambda run: bool(run.flags.fp32_norms_and_head) and run.pipeline > 1,
        found="1 with --pipeline_parallel_degree {run.pipeline}",
        reason="layers of pipelines take all their inputs in one, which is not widened",
        source="launch/training/model.py",
        fix="--fp32_norms_and_head 0",
    ),
    Rule(
        flag="fp32_norms_and_head",
        when=lambda run: bool(run.flags.fp32_norms_and_head) and run.refuses("fp32_norms_and_head"),
        found="1 with a GLM",
        reason="its output layer is a function, no layer that could compute in float32",
        source="paddlenlp/transformers/glm/modeling.py, GLMForConditionalGeneration.forward",
        fix="--fp32_norms_and_head 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: bool(run.flags.pissa) and not run.flags.lora,
        found="1 without --lora 1",
        reason="it is a way to begin LoRA adapters",
        source=PISSA,
        fix="--lora 1, or --pissa 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: bool(run.flags.pissa) and run.tensor > 1,
        found="1 with --tensor_parallel_degree {run.tensor}",
        reason="the singular values of a sharded weight are not those of its parts",
        source="paddlenlp/peft/lora/lora_layers.py, RowParallelLoRALinear.__init__: a ValueError",
        fix="--tensor_parallel_degree 1 with --sharding stage2 or stage3, or --pissa 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: bool(run.flags.pissa and run.flags.weight_quantize_algo),
        found="1 with --weight_quantize_algo {run.flags.weight_quantize_algo}",
        reason="weights are quantized while they are read, before their singular values could be taken off",
        source="launch/adapters/quantized_layers.py, quantize_filled",
        fix="--pissa 0, or no --weight_quantize_algo",
    ),
    Rule(
        flag="pissa",
        when=lambda run: bool(run.flags.pissa) and run.has_word("sharding", "offload"),
        found="1 with --sharding {run.flags.sharding}",
        reason="weights are sliced while they are read, before their singular values could be taken off",
        source="launch/offload/group_sharded.py, keep_filled",
        fix="--sharding without offload, or --pissa 0",
    ),
    Rule(
        flag="dora",
        when=lambda run: bool(run.flags.dora) and not run.flags.lora,
        found="1 without --lora 1",
        reason="it trains the lengths of weights beside LoRA adapters",
        source=DORA,
        fix="--lora 1, or --dora 0",
    ),
    Rule(
        flag="dora",
        when=lambda run: bool(run.flags.dora and run.flags.pissa),
        found="1 with --pissa 1",
        reason="PiSSA's adapter is written anew as a plain LoRA, which has no lengths",
        source=PISSA,
        fix="one of the two",
    ),
    Rule(
        flag="dora",
        when=lambda run: bool(run.flags.dora) and run.has_word("sharding", "offload"),
        found="1 with --sharding {run.flags.sharding}",
        reason="weights are sliced while they are read, before the lengths of their columns could be taken",
        source="launch/offload/group_sharded.py, keep_filled",
        fix="--sharding without offload, or --dora 0",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: bool(run.flags.trainable_token_indices) and not run.flags.lora,
        found="{run.flags.trainable_token_indices} without --lora 1",
        reason="rows of tokens are trained beside LoRA adapters; without an adapter all of them are trained",
        source=ROWS,
        fix="--lora 1, or leave it out",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: (
            bool(run.flags.trainable_token_indices)
            and max(map(int, run.flags.trainable_token_indices.split())) >= run.model.get("vocab_size", math.inf)
        ),
        found="{run.flags.trainable_token_indices} with a vocabulary of {run.model[vocab_size]}",
        reason="an id is below the number of tokens of the model",
        source=ROWS,
        fix="the ids that launch/commands/add_tokens.py prints, with the model that it writes",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: bool(run.flags.trainable_token_indices) and max(run.tensor, run.pipeline) > 1,
        found="{run.flags.trainable_token_indices} with --tensor_parallel_degree {run.tensor} and "
        "--pipeline_parallel_degree {run.pipeline}",
        reason="the vocabulary is sharded there, or its two layers are on different stages",
        source=ROWS,
        fix="both degrees 1, with --sharding stage2 or stage3",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: bool(run.flags.trainable_token_indices and run.flags.pissa),
        found="{run.flags.trainable_token_indices} with --pissa 1",
        reason="PiSSA's adapter is written anew as a plain LoRA, of linear layers alone",
        source=PISSA,
        fix="--pissa 0",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: bool(run.flags.trainable_token_indices) and run.has_word("sharding", "offload"),
        found="{run.flags.trainable_token_indices} with --sharding {run.flags.sharding}",
        reason="weights are sliced while they are read, before rows could be taken from them",
        source="launch/offload/group_sharded.py, keep_filled",
        fix="--sharding without offload",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: (
            bool(run.flags.trainable_token_indices) and bool(run.flags.quantize_head or run.flags.offload_embedding)
        ),
        found="{run.flags.trainable_token_indices} with --quantize_head or --offload_embedding",
        reason="rows are taken from weights on the device that are not quantized",
        source=ROWS,
        fix="--quantize_head 0 and --offload_embedding 0",
    ),
    Rule(
        flag="trainable_token_indices",
        when=lambda run: (
            run.flags.trainable_token_indices is not None
            and run.family is not None
            and (run.family.attention == "prefix" or run.family.head.reads_length_first)
        ),
        found="{run.flags.trainable_token_indices} with a {run.family.title}",
        reason="rows are tried for output layers that read [batch, length, hidden size], and for weights of their own",
        source=ROWS,
        fix="a model of another family",
    ),
    Rule(
        flag="rslora",
        when=lambda run: bool(run.flags.rslora) and not run.flags.lora,
        found="1 does nothing without --lora 1",
        reason="it scales the product of LoRA adapters",
        source="launch/adapters/add.py, add_lora",
        action=ANNOUNCE,
    ),
    Rule(
        flag="lora_plus_scale",
        when=lambda run: run.flags.lora_plus_scale != 1 and not run.flags.lora,
        found="{run.flags.lora_plus_scale:g} does nothing without --lora 1",
        reason="it is the learning rate of LoRA adapters' second matrix",
        source="launch/adapters/add.py, add_lora",
        action=ANNOUNCE,
    ),
    Rule(
        flag="weight_quantize_algo",
        when=lambda run: (
            bool(run.flags.weight_quantize_algo and run.flags.do_train)
            and not (run.flags.lora or run.flags.prefix_tuning)
        ),
        found="{run.flags.weight_quantize_algo} without an adapter",
        reason="quantized weights are not trained",
        source="launch/adapters/quantized_layers.py",
        fix="--lora 1, or --prefix_tuning 1; --do_train 0 evaluates it",
    ),
    Rule(
        flag="weight_double_quant",
        when=lambda run: bool(run.flags.weight_double_quant) and run.flags.weight_quantize_algo not in BLOCKWISE,
        found="1 does nothing with --weight_quantize_algo {run.flags.weight_quantize_algo}",
        reason="it is for the scales of blocks, which nf4 and fp4 have",
        source=QUANTIZATION,
        action=ANNOUNCE,
    ),
    Rule(
        flag="quantize_head",
        when=lambda run: bool(run.flags.quantize_head) and not run.flags.weight_quantize_algo,
        found="1 does nothing without --weight_quantize_algo",
        reason="the output layer takes the format of the other linear layers",
        source=QUANTIZATION,
        action=ANNOUNCE,
    ),
    Rule(
        flag="quantize_head",
        when=lambda run: bool(run.flags.quantize_head) and run.flags.weight_quantize_algo == "llm.int8",
        found="1 with --weight_quantize_algo llm.int8",
        reason="outliers of the last hidden states are not looked for",
        source=QUANTIZED_HEAD,
        fix="--weight_quantize_algo weight_only_int8, or --quantize_head 0",
    ),
    Rule(
        flag="quantize_head",
        when=lambda run: bool(run.flags.quantize_head) and max(run.tensor, run.pipeline) > 1,
        found="1 with --tensor_parallel_degree {run.tensor} and --pipeline_parallel_degree {run.pipeline}",
        reason="parts of a quantized output layer are computed on one process",
        source=QUANTIZED_HEAD,
        fix="--tensor_parallel_degree 1 and --pipeline_parallel_degree 1, or --quantize_head 0",
    ),
    Rule(
        flag="quantize_head",
        when=lambda run: bool(run.flags.quantize_head and run.flags.fp32_norms_and_head),
        found="1 with --fp32_norms_and_head 1",
        reason="a quantized output layer computes in the dtype of training, its sums in float32",
        source=QUANTIZED_HEAD,
        fix="one of the two",
    ),
    Rule(
        flag="quantize_head",
        when=lambda run: bool(run.flags.quantize_head and run.model) and not run.has_head,
        found="1 for a model without an output layer of its own",
        reason="its weight is the word embedding's, or not [hidden, vocabulary]",
        source=QUANTIZED_HEAD,
        fix="--quantize_head 0",
    ),
    Rule(
        flag="offload_embedding",
        when=lambda run: bool(run.flags.offload_embedding) and not (run.flags.lora or run.flags.prefix_tuning),
        found="1 without an adapter",
        reason="a word embedding that is trained is on the card",
        source=HOST_EMBEDDING,
        fix="--lora 1, or --offload_embedding 0",
    ),
    Rule(
        flag="offload_embedding",
        when=lambda run: (
            bool(run.flags.offload_embedding)
            and (max(run.tensor, run.pipeline) > 1 or run.has_word("sharding", "offload"))
        ),
        found="1 with a model that is divided, or with --sharding {run.flags.sharding}",
        reason="the whole table is kept by one process",
        source=HOST_EMBEDDING,
        fix="--tensor_parallel_degree 1, --pipeline_parallel_degree 1 and no offload, or --offload_embedding 0",
    ),
    Rule(
        flag="offload_embedding",
        when=lambda run: (
            bool(run.flags.offload_embedding and run.model) and not (run.has_head and run.teacher_has_head)
        ),
        found="1 for a model without an output layer of its own",
        reason="the output layer reads the whole table",
        source=HOST_EMBEDDING,
        fix="--offload_embedding 0",
    ),
    Rule(
        flag="eval_with_do_generation",
        when=lambda run: bool(run.flags.eval_with_do_generation) and run.pipeline > 1,
        found="1 with --pipeline_parallel_degree {run.pipeline}",
        reason="a pipeline does not generate",
        source="paddlenlp/trainer/trainer.py, Trainer.prediction_pipeline_step: loss only",
        fix="--eval_with_do_generation 0",
    ),
    Rule(
        flag="eval_with_do_generation",
        when=lambda run: bool(run.flags.eval_with_do_generation and run.flags.sequence_parallel),
        found="1 with --sequence_parallel 1",
        reason="a sequence that grows by one token cannot be divided",
        source="paddlenlp/transformers/llama/modeling.py, ScatterOp of the embeddings' output",
        fix="--sequence_parallel 0, or --eval_with_do_generation 0",
    ),
)
