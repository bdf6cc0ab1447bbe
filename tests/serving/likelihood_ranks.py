"""What rows are told of logits, names of tokens, prompts that are refused, for test_likelihoods.py."""

import numpy as np

EOS = 2


def facts(directory: str, *step) -> dict:
    """Return what each function below finds."""
    found = {"of_a_step": of_a_step(*step), "names": names(directory), "chosen": chosen(), "refused": refused()}
    return found | {"passes": passes()}


def of_a_step(logits: list[list[float]], options: list[dict], known_ids: int, eos: int) -> list[list]:
    """What the rows are told when a step's logits are these; a likelihood as a list."""
    import time

    import paddle

    from launch.serving.models import Chooser
    from launch.serving.request import Finish, Options, Row

    told, late = [[] for _ in logits], time.monotonic() + 60
    rows = [
        Row(("m",), [1], Options(**one), 9, number, late, told[number].append) for number, one in enumerate(options)
    ]
    Chooser((eos,), known_ids)(rows, paddle.to_tensor(logits, dtype="float32"))
    return [[plain(event) if not isinstance(event, (int, Finish)) else event for event in one] for one in told]


def plain(likelihood) -> list:
    return [likelihood.token, likelihood.value, likelihood.rank, [list(one) for one in likelihood.top]]


def of_prompts(directory: str, names: list[str], at_once: int, read: int) -> dict[str, dict]:
    """Of each family in batches of so many tokens to read, its head computing at most so many at once, and from all
    logits of each prompt alone: the largest differences, whether ranks and tops agree, how many tokens the head was
    given, and the batches."""
    from types import SimpleNamespace

    import paddle

    from launch.families.registry import FAMILIES
    from launch.prediction import logits_in_parts
    from launch.serving import likelihoods
    from launch.training.chunked_loss import output_layer
    from tests.families.family_ranks import VOCABULARY
    from tests.generation.generate_ranks import load, prompts

    logits_in_parts.LOGITS, likelihoods.TOKENS = at_once * VOCABULARY + 1, read
    stock, shapes = logits_in_parts.LogitsInParts.read, []

    def counted(self, inputs):
        shapes.append(inputs["input_ids"].shape)
        return stock(self, inputs)

    logits_in_parts.LogitsInParts.read = counted
    found = {}
    for name in names:
        model, family = load(name, directory), FAMILIES[name]
        predictor = SimpleNamespace(model=model, family=family, known_ids=None)
        given = []
        head = output_layer(model, family.head.path, pipeline=False)
        hook = head.register_forward_post_hook(lambda _, __, out, given=given: given.append(out.numel() // VOCABULARY))
        together = list(likelihoods.prompt_likelihoods(predictor, prompts(name), 3))
        hook.remove()
        differences, agree = [0.0], True
        for prompt, (told, last) in zip(prompts(name), together, strict=True):
            with paddle.no_grad():
                outputs = model(input_ids=paddle.to_tensor([prompt]))
            logits = (outputs[0] if isinstance(outputs, tuple) else outputs)[0].numpy().astype(np.float64)
            values = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            differences.append(float(np.abs(logits[-1:] - last.numpy()).max()))
            agree &= told[0].value is None and [one.token for one in told] == prompt
            for place, one in enumerate(told[1:]):
                order = np.argsort(-values[place])
                differences.append(abs(float(one.value - values[place, one.token])))
                agree &= [token for token, _ in one.top] == order[:3].tolist()
                agree &= order[one.rank - 1] == one.token
        found[name] = {
            "difference": max(differences),
            "agree": bool(agree),
            "tokens": max(map(int, given)),
            "batches": shapes[-2:],
        }
    return found


def passes() -> list:
    """How many tokens a prompt may have with 4 heads, and how many prompts are then read together: five of 4 tokens,
    one of 9 and one of 1."""
    from launch.serving import likelihoods

    likelihoods._of_batch = lambda _, prompts, __: [len(prompts)]
    longest = likelihoods.longest_prompt({"num_attention_heads": 4}, 9 * 9 * 64 + 1)
    return [longest, *likelihoods.prompt_likelihoods(None, [[1] * 4] * 5 + [[1] * 9, [1]], 0, longest)]


def names(directory: str) -> list[list]:
    """How pieces of a sentencepiece tokenizer and of one of bytes are called, and their bytes."""
    import json
    from itertools import islice
    from pathlib import Path

    from paddlenlp.transformers.gpt.tokenizer import bytes_to_unicode

    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.rehearsal.materials import documents
    from launch.serving.token_names import TokenNames
    from launch.training.model import open_tokenizer

    pieces, of_bytes = Path(directory) / "pieces", Path(directory) / "bytes"
    for folder in (pieces, of_bytes):
        folder.mkdir()
    save_tokenizer(pieces, train_tokenizer(islice(documents(), 50), 384))
    signs = [*bytes_to_unicode().values(), "\u0120t", "<|endoftext|>"]
    (of_bytes / "vocab.json").write_text(json.dumps({sign: number for number, sign in enumerate(signs)}))
    (of_bytes / "merges.txt").write_text("#version: 0.2\n\u0120 t\n")
    special = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    (of_bytes / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"} | special))
    found = []
    for folder, end in ((pieces, 2), (of_bytes, len(signs) - 1)):
        tokenizer = open_tokenizer("model_name_or_path", str(folder))
        called = TokenNames(tokenizer)
        ids = [*tokenizer.encode("a t\u5b57", add_special_tokens=False)["input_ids"][1:], end]
        found.append([[called(token).text, called(token).bytes and list(called(token).bytes)] for token in ids])
    return found


def chosen() -> dict:
    """What greedy search is left with in three steps, and what the rows were told: the first row is cancelled, the
    second may have one token, the third ends itself, the fourth goes on until its logits are no numbers."""
    import time

    import paddle

    from launch.serving.models import Chooser, ChosenTokens
    from launch.serving.request import Options, Row

    told, late = [[] for _ in range(4)], time.monotonic() + 60
    rows = [
        Row(("m",), [1], Options(temperature=0), 1 if number == 1 else 9, number, late, told[number].append)
        for number in range(4)
    ]
    rows[0].cancel()
    choice = ChosenTokens(rows, Chooser((EOS,), None))
    steps = []
    for step, likely in enumerate(([5, 6, EOS, 7], [5, 6, 5, 4], [5, 6, 5, 4])):
        logits = paddle.nn.functional.one_hot(paddle.to_tensor(likely), 8)
        logits[3, 5] = float("nan") if step == 2 else 0.0
        steps.append(paddle.argmax(choice(None, logits), axis=-1).tolist())
    return {"steps": steps, "told": told}


def refused() -> list:
    """What texts and chats of 51 characters are told that meet 10 positions for tokens of 5 characters, and that the
    tokenizer cannot encode: it has nothing but its vocabulary."""
    from types import SimpleNamespace

    from launch.serving.chats import read_chat
    from launch.serving.models import Prompts
    from launch.serving.request import Refusal

    tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 0, "quick": 1})
    prompts = Prompts(SimpleNamespace(tokenizer=tokenizer, positions=10), None)
    said, answer = [], {"role": "assistant", "content": "y"}
    chats = [[{"role": "user", "content": "x" * 25}, answer, {"role": "user", "content": "z" * 25}]]
    chats.append([{"role": "user", "content": "x"}, answer])
    for ask in (
        lambda: prompts.of_text("x" * 51),
        *(lambda chat=chat: prompts.of_chat(read_chat(chat)) for chat in chats),
    ):
        try:
            ask()
        except Refusal as refusal:
            said.append([refusal.reason.http, refusal.message, refusal.parameter])
    return said
