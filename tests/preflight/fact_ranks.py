"""What a rank does for tests/preflight/test_upstream_facts.py."""

import sys
from pathlib import Path


def facts(directory: str) -> dict:
    """What upstream makes of flags, without a word; and ours, where SCRIPT.args lies beside the script."""
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    from launch.config.run_config import RunConfig
    from launch.training.arguments import pretraining_arguments

    words = "--output_dir unused --device cpu --sharding stage3 --tensor_parallel_degree 4 --pipeline_parallel_degree 2"
    [args] = PdArgumentParser([TrainingArguments]).parse_args_into_dataclasses(words.split(), look_for_args_file=False)
    options = "enable_all_options remove_master_weight"
    unified = TrainingArguments(output_dir="unused", unified_checkpoint=True, unified_checkpoint_config=options)
    script = Path(directory) / "run_pretrain.py"
    script.with_suffix(".args").write_text("--max_steps 7 --seed 9")
    sys.argv = [str(script)]
    argv = f"--model_name_or_path llama-tiny --input_dir d --output_dir {directory} --device cpu --report_to none"
    *_, training = pretraining_arguments(RunConfig.from_words("run_pretrain", argv.split())[0])
    return {
        "layout of stage3, tensor 4, pipeline 2 on one process": [
            args.sharding,
            args.tensor_parallel_degree,
            args.pipeline_parallel_degree,
        ],
        options: unified.unified_checkpoint_config,
        "max_steps and seed beside an args file": [training.max_steps, training.seed],
    }
