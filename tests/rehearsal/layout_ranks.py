"""A tiny LLaMA trained by paddlenlp's Trainer in any layout, for test_layouts.py."""

import numpy as np
import paddle

GLOBAL_BATCH = 8


class RandomIds(paddle.io.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = np.random.RandomState(index).randint(0, 256, 33)
        return {"input_ids": ids[:-1], "labels": ids[1:]}


def _config():
    from paddlenlp.transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        seq_length=32,
        use_fused_rms_norm=False,
        dtype="float32",
    )


def save_model(directory: str) -> None:
    from paddlenlp.transformers import LlamaForCausalLM

    paddle.seed(1)
    LlamaForCausalLM._from_config(_config(), dtype="float32").save_pretrained(directory)


def losses(model_directory: str, output: str, flags: dict, data_ranks: int = 1) -> list[float]:
    """The losses of five steps, as logged on this rank."""
    from paddlenlp.trainer import PdArgumentParser, Trainer, TrainingArguments
    from paddlenlp.transformers import LlamaForCausalLM, LlamaForCausalLMPipe

    from launch.rehearsal import collectives, sharding

    if paddle.distributed.get_world_size() > 1:
        collectives.install()
    sharding.set_stage3_segment_size(1000)
    (args,) = PdArgumentParser((TrainingArguments,)).parse_dict(
        {
            "output_dir": output,
            "device": "cpu",
            "max_steps": 5,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": GLOBAL_BATCH // data_ranks // 2,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        | flags
    )
    paddle.set_device("cpu")
    config = _config()
    config.tensor_parallel_degree = args.tensor_parallel_degree
    config.tensor_parallel_rank = args.tensor_parallel_rank
    config.tensor_parallel_output = True
    config.sequence_parallel = args.sequence_parallel
    config.virtual_pp_degree = 1
    model_class = LlamaForCausalLMPipe if args.pipeline_parallel_degree > 1 else LlamaForCausalLM
    model = model_class.from_pretrained(model_directory, config=config, dtype="float32")
    logged = []

    class InOrder(Trainer):
        def _get_train_sampler(self):
            return paddle.io.DistributedBatchSampler(
                self.train_dataset,
                self.args.per_device_train_batch_size,
                num_replicas=self.args.dataset_world_size,
                rank=self.args.dataset_rank,
            )

        def log(self, logs, **kwargs):
            logged.append(logs.get("loss"))

    InOrder(model=model, args=args, train_dataset=RandomIds()).train()
    return logged[:5]
