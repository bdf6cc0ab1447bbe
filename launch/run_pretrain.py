"""Pretrain a causal language model with PaddleNLP: build, train, evaluate.

    python -m paddle.distributed.launch --gpus 0,1,2,3,4,5,6,7 launch/run_pretrain.py \
        --model_name_or_path facebook/llama-7b --input_dir ./data --output_dir ./checkpoints/llama-7b \
        --sharding stage2 --fp16 1 --fp16_opt_level O2 --max_steps 10000 --do_train 1 --do_eval 1

One card or a CPU: the same without `-m paddle.distributed.launch --gpus ...`; several processes on a CPU:
`-m paddle.distributed.launch --nproc_per_node 2 --backend gloo`. Every flag: --help. Ready recipes: recipes/.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not launch/

from launch.train import start

if __name__ == "__main__":
    sys.exit(start("run_pretrain"))
