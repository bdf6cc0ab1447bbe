"""What the ranks of the tests of finetune_generation do."""

import contextlib
import io

import numpy as np


def finetune(argv: list[str]) -> dict:
    """Run launch/finetune_generation.py's main as its script does: its exit code and what it said."""
    from launch.finetune_generation import main
    from launch.guard import guarded

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(main, argv)
    return {"exit_code": exit_code, "stdout": out.getvalue(), "stderr": " ".join(err.getvalue().split())}


def train(argv: list[str], optimizer: str) -> dict:
    """Fine-tune; the size of the world that this rank saw. optimizer: "sgd" is plain, so that no factor is hidden."""
    import os

    from launch.finetune_generation import main
    from tests.distributed.training_ranks import train_with_plain_sgd

    if optimizer == "sgd":
        train_with_plain_sgd()
    main(argv)
    return {"world": int(os.environ["PADDLE_TRAINERS_NUM"])}


def finetune_and_look(argv: list[str], prompts: list[str], new_tokens: int) -> dict:
    """Fine-tune, and look at the model before and after.

    Returns {"trainable": elements, "changed", "unchanged": names of tensors, "adapter": whether an adapter that was
    read back from the output directory gives the trained logits to the bit, "texts": the greedy answers}.
    """
    import paddle

    from launch.adapters.adapter_files import ADAPTERS, load_adapter
    from launch.finetune_generation import main
    from launch.training.trainer import Trainer

    seen = {}
    stock_train = Trainer.train

    def train(trainer, *args, **kwargs):
        before = weights(trainer.model)
        seen["trainable"] = sum(int(np.prod(one.shape)) for one in trainer.model.parameters() if not one.stop_gradient)
        stock_train(trainer, *args, **kwargs)
        after = weights(trainer.model)
        same = {name: np.array_equal(before[name], after[name]) for name in before}
        seen["unchanged"] = sorted(name for name in same if same[name])
        seen["changed"] = sorted(name for name in same if not same[name])
        seen["trainer"] = trainer

    Trainer.train = train
    main(argv)
    trainer = seen.pop("trainer")
    model = trainer.model
    ids = paddle.to_tensor([list(range(3, 30))])
    trained = logits(model, ids)
    seen["texts"] = [answer(model, trainer.tokenizer, prompt, new_tokens) for prompt in prompts]
    if isinstance(model, ADAPTERS):
        base = type(model.model).from_pretrained(flag(argv, "model_name_or_path"), dtype="float32")
        read = load_adapter(base, flag(argv, "output_dir"))
        seen["adapter"] = np.array_equal(logits(read, ids), trained)
    return seen


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


def logits(model, ids) -> np.ndarray:
    model.eval()
    outputs = model(input_ids=ids)
    return (outputs[0] if isinstance(outputs, tuple) else outputs).numpy()


def weights(model) -> dict[str, np.ndarray]:
    """Of the model under its own names, of a prefix under those of its file."""
    from launch.adapters.adapter_files import ADAPTERS
    from launch.adapters.add import PrefixModel

    tensors = dict((model.model if isinstance(model, ADAPTERS) else model).state_dict())
    if isinstance(model, PrefixModel):
        tensors |= model.prefix_encoder.state_dict()
    return {name: tensor.numpy().copy() for name, tensor in tensors.items()}


def answer(model, tokenizer, prompt: str, new_tokens: int) -> str:
    """What the model says to a bare question, greedily."""
    import paddle

    ids = paddle.to_tensor([tokenizer(prompt)["input_ids"]])
    new, _ = model.generate(
        input_ids=ids,
        attention_mask=paddle.ones_like(ids),
        max_new_tokens=new_tokens,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    return tokenizer.decode(new[0].tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def flag(argv: list[str], name: str) -> str:
    return argv[argv.index(f"--{name}") + 1]


def first_loss_by_hand(directory: str) -> tuple[float, float]:
    """(the mean of -ln p of the tokens of answers and their ends, one dialogue at a time; what a first step logs)."""
    import json
    import tempfile
    from pathlib import Path

    import paddle
    from paddlenlp.transformers import AutoTokenizer, LlamaForCausalLM

    from launch.finetune_generation import main
    from launch.reporting.records import read_summary
    from tests.training.finetune_material import argv, write_first

    root = Path(directory)
    with tempfile.TemporaryDirectory() as aside:
        data = write_first(root / "pairs", Path(aside) / "data", 8)
        main(argv(root, Path(aside) / "out", dataset_name_or_path=data, max_steps=1))
        logged = read_summary(Path(aside) / "out")["first_loss"]
        rows = [json.loads(line) for line in (data / "train.json").read_text().splitlines()]
    model = LlamaForCausalLM.from_pretrained(str(root / "model"), dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(str(root / "model"))
    model.eval()
    losses = []
    for row in rows:
        asked = tokenizer(row["src"])["input_ids"]
        ids = asked + tokenizer.encode(row["tgt"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        chances = paddle.nn.functional.log_softmax(paddle.to_tensor(logits(model, paddle.to_tensor([ids]))[0]))
        losses += [-float(chances[place - 1, ids[place]]) for place in range(len(asked), len(ids))]
    return float(np.mean(losses)), logged
