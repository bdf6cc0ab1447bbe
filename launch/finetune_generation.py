"""Fine-tune a causal language model on questions and answers, in full or by LoRA: build, train, evaluate.

    python -m paddle.distributed.launch --gpus 0,1,2,3 launch/finetune_generation.py \
        --model_name_or_path facebook/llama-7b --dataset_name_or_path ./data --output_dir ./checkpoints/llama-7b-ft \
        --tensor_parallel_degree 4 --fp16 1 --fp16_opt_level O2 --num_train_epochs 1 --do_train 1 --do_eval 1

With `--lora 1` one card is enough: `python launch/finetune_generation.py ...`. On a CPU: `--device cpu`, several
processes by `-m paddle.distributed.launch --nproc_per_node 2 --backend gloo`. Every flag: --help. Ready recipes:
recipes/. Data: docs/finetune.md.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from launch.train import start

if __name__ == "__main__":
    sys.exit(start("finetune_generation"))
