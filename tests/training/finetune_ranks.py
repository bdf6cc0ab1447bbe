"""What the ranks of the tests of finetune_generation do."""

import numpy as np

from tests.runs_ranks import train


def finetune(argv: list[str]) -> dict:
    """Run launch/finetune_generation.py's main as its script does: its exit code and what it said."""
    return train("finetune_generation", argv, [])


def look():
    """Return what gives the facts of a fine-tuning of one process: "trainable": elements, "changed", "unchanged": names
    of tensors."""
    import os

    from launch.training.trainer import Trainer

    if int(os.environ["PADDLE_TRAINERS_NUM"]) > 1:
        return None
    seen = {}
    stock_train = Trainer.train

    def train_and_look(trainer, *args, **kwargs):
        before = weights(trainer.model)
        seen["trainable"] = sum(int(np.prod(one.shape)) for one in trainer.model.parameters() if not one.stop_gradient)
        stock_train(trainer, *args, **kwargs)
        after = weights(trainer.model)
        same = {name: np.array_equal(before[name], after[name]) for name in before}
        seen["unchanged"] = sorted(name for name in same if same[name])
        seen["changed"] = sorted(name for name in same if not same[name])

    Trainer.train = train_and_look
    return lambda: seen


def load_into_a_wider_model(directory: str, adapters: list[str]) -> list[str]:
    """What is said when adapters of directory/model are loaded into a model of twice its width."""
    from paddlenlp.transformers import LlamaForCausalLM

    from launch.adapters.adapter_files import load_adapter
    from launch.errors import UserError
    from launch.families.named_configs import load_config
    from launch.training.model import family_config

    values = load_config(f"{directory}/model")
    said = []
    for adapter in adapters:
        model = LlamaForCausalLM(family_config(values | {"hidden_size": 2 * values["hidden_size"]}))
        try:
            load_adapter(model, adapter)
        except UserError as error:
            said.append(str(error))
    return said


def weights(model) -> dict[str, np.ndarray]:
    """Of the model under its own names, of a prefix under those of its file."""
    from launch.adapters.adapter_files import ADAPTERS
    from launch.adapters.add import PrefixModel

    tensors = dict((model.model if isinstance(model, ADAPTERS) else model).state_dict())
    if isinstance(model, PrefixModel):
        tensors |= model.prefix_encoder.state_dict()
    return {name: tensor.numpy().copy() for name, tensor in tensors.items()}


def loss_by_hand(model: str, data: str) -> float:
    """The mean of -ln p of the tokens of answers and their ends, one dialogue at a time."""
    import json
    from pathlib import Path

    import paddle
    from paddlenlp.transformers import AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(model)
    trained = LlamaForCausalLM.from_pretrained(model, dtype="float32")
    trained.eval()
    losses = []
    for row in map(json.loads, Path(data, "train.json").read_text().splitlines()):
        asked = tokenizer(row["src"])["input_ids"]
        ids = asked + tokenizer.encode(row["tgt"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        outputs = trained(input_ids=paddle.to_tensor([ids]))
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        chances = paddle.nn.functional.log_softmax(logits[0])
        losses += [-float(chances[place - 1, ids[place]]) for place in range(len(asked), len(ids))]
    return float(np.mean(losses))
