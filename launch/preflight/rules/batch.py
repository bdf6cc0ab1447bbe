"""Batch, steps and precision: arithmetic of the numbers that a run is given."""

from launch.config.run_config import SENDS_SHAPES
from launch.preflight.rules.rule import ANNOUNCE, WARN, Rule

ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"
WRAP_MODEL = "paddlenlp/trainer/trainer.py, Trainer._wrap_model"

RULES = (
    Rule(
        flag="gradient_accumulation_steps",
        when=lambda run: run.pipeline > run.flags.gradient_accumulation_steps > 0,
        found="{run.flags.gradient_accumulation_steps} for {run.pipeline} pipeline stages",
        reason="{run.bubble:.0%} of the time stages wait for each other (p - 1 of m + p - 1 turns)",
        source="the 1F1B schedule, arXiv 2104.04473, section 2.2",
        action=ANNOUNCE,
    ),
    Rule(
        flag="per_device_eval_batch_size",
        when=lambda run: (
            run.pipeline > 1
            and bool(run.flags.do_eval)
            and run.flags.per_device_eval_batch_size != run.samples_a_data_rank
        ),
        found="{run.flags.per_device_eval_batch_size} becomes {run.samples_a_data_rank}",
        reason="under pipeline parallel upstream evaluates with micro batch x accumulation",
        source=ARGUMENTS,
        action=ANNOUNCE,
    ),
    Rule(
        flag="pipeline_parallel_config",
        when=lambda run: run.run.sends_shapes and not run.has_word("pipeline_parallel_config", SENDS_SHAPES),
        found=f"{SENDS_SHAPES} is added",
        reason="micro batches differ in length, and stages expect the length of the first one",
        source="paddle/distributed/fleet/meta_parallel/pp_utils/p2p_communication.py, P2pHelper",
        action=ANNOUNCE,
    ),
    Rule(
        flag="do_train",
        when=lambda run: run.run.method.reads_rows and not (run.flags.do_train or run.flags.do_eval),
        found="0, and no --do_eval",
        reason="nothing is trained or measured",
        source="launch/training/run.py",
        fix="--do_train 1, --do_eval 1 or both",
    ),
    Rule(
        flag="max_steps",
        when=lambda run: not run.run.method.reads_rows and run.flags.do_train and run.flags.max_steps <= 0,
        found="{run.flags.max_steps}",
        reason="pretraining runs for a number of steps",
        source="launch/training/pretrain.py",
        fix="--max_steps N",
    ),
    Rule(
        flag="num_train_epochs",
        when=lambda run: run.flags.given("num_train_epochs") and (run.flags.max_steps or 0) > 0,
        found="{run.flags.num_train_epochs} does nothing",
        reason="--max_steps {run.flags.max_steps} decides",
        source="paddlenlp/trainer/trainer.py, Trainer.train",
        action=ANNOUNCE,
    ),
    Rule(
        flag="warmup_ratio",
        when=lambda run: (run.flags.warmup_ratio or 0) > 0 and (run.flags.warmup_steps or 0) > 0,
        found="{run.flags.warmup_ratio} does nothing",
        reason="--warmup_steps {run.flags.warmup_steps} decides",
        source=ARGUMENTS,
        action=ANNOUNCE,
    ),
    Rule(
        flag="learning_rate",
        when=lambda run: run.starts_below_its_floor,
        found="{run.flags.learning_rate:g} with --min_learning_rate {run.flags.min_learning_rate:g}",
        reason="--lr_scheduler_type {run.flags.lr_scheduler_type} ends at the latter, so that the rate would rise",
        source="paddlenlp/transformers/optimization.py, CosineAnnealingWithWarmupDecay",
        fix="--min_learning_rate 0, a lower --min_learning_rate, or a higher --learning_rate",
    ),
    Rule(
        flag="learning_rate",
        when=lambda run: run.flags.learning_rate == 0 and bool(run.flags.do_train) and not run.starts_below_its_floor,
        found="0",
        reason="no weight changes",
        source="arithmetic",
        action=ANNOUNCE,
    ),
    Rule(
        flag="learning_rate",
        when=lambda run: bool(run.flags.do_train and run.flags.lora) and run.flags.learning_rate > 1e-2,
        found="{run.flags.learning_rate:g} for a LoRA",
        reason="usual rates are 1e-5 to 1e-3; with far higher ones training diverges",
        source="arXiv 2106.09685, appendix D: 2e-4 to 5e-4; arXiv 2305.14314, table 9: 1e-4 to 2e-4",
        fix="--learning_rate 2e-4",
        action=WARN,
    ),
    Rule(
        flag="learning_rate",
        when=lambda run: (
            bool(run.flags.do_train)
            and not (run.flags.lora or run.flags.prefix_tuning)
            and run.flags.learning_rate > 1e-3
        ),
        found="{run.flags.learning_rate:g} for all parameters",
        reason="usual rates are 1e-6 to 6e-4; with far higher ones training diverges",
        source="arXiv 2005.14165, table 2.1: pretraining of 125M to 175B by 6e-4 to 6e-5; 2307.09288: tuning by 2e-5",
        fix="--learning_rate 3e-4 to train from random weights, 2e-5 to tune",
        action=WARN,
    ),
    Rule(
        flag="warmup_steps",
        when=lambda run: run.flags.max_steps > 0 and run.flags.warmup_steps >= run.flags.max_steps,
        found="{run.flags.warmup_steps} with --max_steps {run.flags.max_steps}",
        reason="the run ends before --learning_rate is reached",
        source="paddlenlp/trainer/training_args.py, TrainingArguments.get_warmup_steps",
        action=ANNOUNCE,
    ),
    Rule(
        flag="max_eval_samples",
        when=lambda run: run.flags.max_eval_samples == 0 and bool(run.flags.do_eval),
        found="0 with --do_eval 1",
        reason="an evaluation needs samples",
        source="launch/training/data.py",
        fix="--do_eval 0, or a number above 0; -1: all of them",
    ),
    Rule(
        flag="fp16",
        when=lambda run: bool(run.flags.fp16) and run.flags.bf16 in ("on", "required"),
        found="1 with --bf16 1",
        reason="one precision at a time",
        source=ARGUMENTS,
        fix="--fp16 0 or --bf16 0",
    ),
    Rule(
        flag="precision",
        when=lambda run: bool(run.flags.precision and (run.flags.fp16 or run.flags.bf16)),
        found="{run.flags.precision} with --bf16 or --fp16",
        reason="it is said instead of them",
        source="launch/switches/precision.py, PRECISIONS",
        fix="--precision auto, bf16, fp16 or fp32 alone",
    ),
    Rule(
        flag="fp16_opt_level",
        when=lambda run: run.run.on_cpu and run.may_use_float16 and run.flags.fp16_opt_level == "O2",
        found="O2 with float16 and --device cpu",
        reason="weights would be float16, for which a CPU has no kernels",
        source="paddle/phi/kernels/cpu; measured: matmul raises NotFound",
        fix="--fp16_opt_level O1: arithmetic in float32, the loss scale as on cards",
    ),
    Rule(
        flag="min_loss_scale",
        when=lambda run: run.flags.min_loss_scale > run.flags.scale_loss,
        found="{run.flags.min_loss_scale:g} with --scale_loss {run.flags.scale_loss:g}",
        reason="the loss scale begins at its minimum or higher",
        source="launch/training/optimizer.py, ScaleRule",
        fix="--min_loss_scale 1",
    ),
    Rule(
        flag="amp_master_grad",
        when=lambda run: bool(run.flags.amp_master_grad) and not run.in_16_bits,
        found="1 does nothing",
        reason="gradients are fp32 already",
        source=ARGUMENTS,
        action=ANNOUNCE,
    ),
    Rule(
        flag="amp_master_grad",
        when=lambda run: (
            bool(run.flags.amp_master_grad)
            and run.stage in ("stage2", "stage3")
            and run.layout.data_parallel_degree > 1
        ),
        found="1 with {run.stage} and data parallel {run.layout.data_parallel_degree}",
        reason="upstream asserts that all data ranks are in one sharding group",
        source=WRAP_MODEL,
        fix="leave --sharding_parallel_degree out, or --amp_master_grad 0",
    ),
)
