"""What a rank does for tests/preflight/test_upstream_facts.py."""

import sys
from pathlib import Path


def parse_beside_an_args_file(directory: str) -> dict:
    """--max_steps and --seed of a command line without them, where SCRIPT.args lies beside the script."""
    from launch.config.run_config import RunConfig
    from launch.training.arguments import pretraining_arguments

    script = Path(directory) / "run_pretrain.py"
    script.with_suffix(".args").write_text("--max_steps 7 --seed 9")
    sys.argv = [str(script)]
    argv = f"--model_name_or_path llama-tiny --input_dir d --output_dir {directory} --device cpu --report_to none"
    *_, training = pretraining_arguments(RunConfig.from_words("run_pretrain", argv.split())[0])
    return {"max_steps": training.max_steps, "seed": training.seed}


def layout_on_one_process(argv: list) -> dict:
    """What upstream makes of parallel flags on one process, without a word."""
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    words = ["--output_dir", "unused", "--device", "cpu", *argv]
    [args] = PdArgumentParser([TrainingArguments]).parse_args_into_dataclasses(words, look_for_args_file=False)
    return {"sharding": args.sharding, "tensor": args.tensor_parallel_degree, "pipeline": args.pipeline_parallel_degree}


def unified_options(config: str) -> list:
    """What upstream makes of --unified_checkpoint_config."""
    from paddlenlp.trainer import TrainingArguments

    args = TrainingArguments(output_dir="unused", unified_checkpoint=True, unified_checkpoint_config=config)
    return args.unified_checkpoint_config
