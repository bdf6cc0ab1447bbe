"""Training a reward model (launch/run_reward.py): what it cannot do."""

from launch.families.registry import FAMILIES
from launch.preflight.rules.rule import ANNOUNCE, Rule

MODEL = "launch/models/reward_model.py"
POSSIBLE = "; ".join(family.title for family in FAMILIES.values() if family.reward_models)

RULES = (
    Rule(
        flag="model_name_or_path",
        when=lambda run: run.run.method.reward_model and bool(run.family and not run.family.reward_models),
        found="a {run.family.title}",
        reason="a reward model is made of a decoder that transformers opens with a score, which is tried for "
        f"{POSSIBLE}",
        source=MODEL,
        fix="--model_name_or_path names a model of these families",
    ),
    Rule(
        flag="pipeline_parallel_degree",
        when=lambda run: run.run.method.reward_model and run.pipeline > 1,
        found="{run.pipeline} for a reward model",
        reason="the last stage of paddlenlp's pipelines has an output layer of the vocabulary, no score",
        source="paddlenlp/transformers/llama/modeling_pp.py, LlamaForCausalLMPipe.__init__",
        fix="--pipeline_parallel_degree 1 with --tensor_parallel_degree or --sharding",
    ),
    Rule(
        flag="prefix_tuning",
        when=lambda run: run.run.method.reward_model and bool(run.flags.prefix_tuning),
        found="1 for a reward model",
        reason="the files of a prefix have no place for the score that is trained with it",
        source="launch/adapters/adapter_files.py",
        fix="--lora 1, or --prefix_tuning 0",
    ),
    Rule(
        flag="pissa",
        when=lambda run: run.run.method.reward_model and bool(run.flags.pissa),
        found="1 for a reward model",
        reason="the adapter is written anew as a plain LoRA at the end, and the score is no part of that",
        source="launch/adapters/pissa.py",
        fix="--pissa 0",
    ),
    Rule(
        flag="loss_chunk_tokens",
        when=lambda run: run.run.method.reward_model and run.flags.given("loss_chunk_tokens"),
        found="{run.flags.loss_chunk_tokens} does nothing for a reward model",
        reason="there are no logits",
        source=MODEL,
        action=ANNOUNCE,
    ),
)
