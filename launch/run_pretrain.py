"""Pretrain a causal language model with PaddleNLP: build, train, evaluate.

    python -m paddle.distributed.launch --gpus 0,1,2,3,4,5,6,7 launch/run_pretrain.py \
        --model_name_or_path facebook/llama-7b --input_dir ./data --output_dir ./checkpoints/llama-7b \
        --sharding stage2 --fp16 1 --fp16_opt_level O2 --max_steps 10000 --do_train 1 --do_eval 1

One card or a CPU: the same without `-m paddle.distributed.launch --gpus ...`; several processes on a CPU:
`-m paddle.distributed.launch --nproc_per_node 2 --backend gloo`. Every flag: --help. Ready recipes: recipes/.
"""

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from launch.entry import prepare_process
from launch.guard import guarded


def main(argv: list[str]) -> None:
    started = time.time()
    run, process_lines = prepare_process("run_pretrain", argv)  # before Paddle is imported

    from launch.adapters.add import add_adapter, base_format
    from launch.checkpoint.ranks import check_world
    from launch.reporting.announce import announce
    from launch.training.arguments import parse_pretrain
    from launch.training.data import open_data
    from launch.training.decisions import decide
    from launch.training.device import measure_network, set_device
    from launch.training.finish import PlannedMemory, finish
    from launch.training.model import (
        build_config,
        build_model,
        load_tokenizer,
        speed_up,
        vocabulary_lines,
        widen,
    )
    from launch.training.pretraining import build_trainer
    from launch.training.resuming import identify_model, open_ledger, open_output, require_same_model
    from launch.watch.memory_watch import BUILDING, Phase, out_of_memory_explained

    # Build
    model_args, adapter_args, data_args, training_args = parse_pretrain(run)
    check_world()
    set_device(training_args.device, training_args.deterministic)
    process_lines += measure_network()
    choice = open_output(training_args)
    checkpoint = choice.checkpoint
    decisions = decide(model_args, adapter_args, training_args)
    config = build_config(model_args, data_args.max_seq_length, training_args, decisions, checkpoint)
    tokenizer = load_tokenizer(model_args)
    data = open_data(data_args, training_args, config.vocab_size)
    ledger = open_ledger(checkpoint, data.train, training_args) if training_args.do_train else None
    with out_of_memory_explained(Phase(BUILDING), training_args):
        model = build_model(config, model_args, training_args, base_format(adapter_args))
    process_lines += vocabulary_lines(config, model_args)
    process_lines += [*speed_up(model, training_args), *widen(model, model_args, training_args)]
    model, adapter_lines = add_adapter(model, model_args, adapter_args, training_args.seed)
    identity = identify_model(model, model_args, adapter_args, training_args.seed)
    require_same_model(checkpoint, identity, training_args)
    trainer = build_trainer(model, tokenizer, data, ledger, model_args, data_args, training_args)
    trainer.model_identity = identity
    trainer.add_callback(PlannedMemory(run))
    announce([*process_lines, *adapter_lines], decisions, trainer)

    # Train
    if training_args.do_train:
        trainer.train(checkpoint, choice.damaged)
        if trainer.stopped_by:
            return trainer.tell_how_to_continue()
        trainer.save_result()

    # Evaluate
    evaluation = trainer.final_evaluation() if training_args.do_eval else None
    finish([model_args, adapter_args, data_args, training_args], trainer, evaluation, started)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
