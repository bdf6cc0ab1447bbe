"""Adapters and quantised bases: what they cannot be combined with."""

from launch.preflight.rules.rule import ANNOUNCE, Rule

QUANTIZATION = "launch/adapters/quantization.py"
BLOCKWISE = ("nf4", "fp4")

RULES = (
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
        flag="weight_quantize_algo",
        when=lambda run: run.flags.weight_quantize_algo == "llm.int8",
        found="llm.int8",
        reason="it rounds activations, too, which passes no gradient on; upstream has no adapters for it either "
        "(NotImplementedError)",
        source="paddlenlp/peft/lora/lora_quantization_layers.py, QuantizationLoRALinear.__init__",
        fix="weight_only_int8, which has the same weights, or weight_only_int4, nf4, fp4",
    ),
    Rule(
        flag="weight_quantize_algo",
        when=lambda run: bool(run.flags.weight_quantize_algo) and not (run.flags.lora or run.flags.prefix_tuning),
        found="{run.flags.weight_quantize_algo} without an adapter",
        reason="quantised weights are not trained",
        source="launch/adapters/quantized_base.py",
        fix="--lora 1, or --prefix_tuning 1",
    ),
    Rule(
        flag="weight_double_quant",
        when=lambda run: bool(run.flags.weight_double_quant) and run.flags.weight_quantize_algo not in BLOCKWISE,
        found="1 does nothing with --weight_quantize_algo {run.flags.weight_quantize_algo}",
        reason="it is for the scales of blocks, which nf4 and fp4 have",
        source=QUANTIZATION,
        action=ANNOUNCE,
    ),
    *(
        Rule(
            flag=flag,
            when=lambda run, flag=flag: getattr(run.flags, flag) is not None and getattr(run.flags, flag) < 1,
            found=f"{{run.flags.{flag}}}",
            reason="a block has at least one number",
            source=QUANTIZATION,
            fix=f"--{flag} {default}",
        )
        for flag, default in (("weight_blocksize", 64), ("weight_double_quant_block_size", 256))
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
