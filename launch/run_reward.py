"""Train a reward model on pairs of responses, a chosen and a rejected one: build, train, evaluate.

    python -m paddle.distributed.launch --gpus 0,1,2,3 launch/run_reward.py \
        --model_name_or_path ./models/llama-7b-sft --dataset_name_or_path ./pairs --output_dir ./checkpoints/reward \
        --tensor_parallel_degree 4 --precision auto --fp16_opt_level O2 \
        --num_train_epochs 1 --do_train 1 --do_eval 1

With `--lora 1` one card is enough: `python launch/run_reward.py ...`. On a CPU: `--device cpu`, several processes by
`-m paddle.distributed.launch --nproc_per_node 2 --backend gloo`. Every flag: --help. Ready recipes: recipes/. Data:
docs/align.md.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from launch.train import start

if __name__ == "__main__":
    sys.exit(start("run_reward"))
