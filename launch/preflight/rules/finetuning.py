"""Adapters and quantised bases: what they cannot be combined with."""

from launch.preflight.rules.rule import Rule

QUANTISED_LORA = "paddlenlp/peft/lora/lora_quantization_layers.py"

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
        when=lambda run: run.flags.weight_quantize_algo == "llm.int8" and bool(run.flags.lora),
        found="llm.int8 with --lora 1",
        reason="upstream has no adapters for it (NotImplementedError)",
        source=f"{QUANTISED_LORA}, QuantizationLoRABaseLinear.__init__",
        fix="weight_only_int8, weight_only_int4, nf4 or fp4",
    ),
    Rule(
        flag="weight_quantize_algo",
        when=lambda run: run.flags.weight_quantize_algo in ("nf4", "fp4") and run.tensor > 1,
        found="{run.flags.weight_quantize_algo} with --tensor_parallel_degree {run.tensor}",
        reason="the sliced layers know whole-byte formats only",
        source="paddlenlp/quantization/quantization_linear.py, ColumnParallelQuantizationLinear.forward",
        fix="weight_only_int8 or weight_only_int4, or --tensor_parallel_degree 1",
    ),
    Rule(
        flag="weight_quantize_algo",
        when=lambda run: bool(run.flags.weight_quantize_algo) and not (run.flags.lora or run.flags.prefix_tuning),
        found="{run.flags.weight_quantize_algo} without an adapter",
        reason="quantised weights are not trained",
        source="paddlenlp/quantization/quantization_linear.py: stop_gradient",
        fix="--lora 1",
    ),
    Rule(
        flag="eval_with_do_generation",
        when=lambda run: bool(run.flags.eval_with_do_generation) and run.pipeline > 1,
        found="1 with --pipeline_parallel_degree {run.pipeline}",
        reason="a pipeline does not generate",
        source="paddlenlp/trainer/trainer.py, Trainer.prediction_pipeline_step: loss only",
        fix="--eval_with_do_generation 0",
    ),
)
