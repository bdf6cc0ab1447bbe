"""The log-probabilities of pairs in padded and in packed batches, for test_preference_batches.py; runs of run_dpo."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle

from data_tools.dialogues.encoding import IGNORED
from data_tools.preferences.samples import EncodedPreference, PackedPairs, PairDataset, PreferenceCuts
from launch.training.preference_data import collate_pairs
from tests.families.family_ranks import VOCABULARY, build, tiny

SIZES, ROOM = ((4, 3, 5), (2, 6, 1), (5, 2, 2), (3, 7, 4), (2, 1, 3)), 14


def packed_and_padded(names: list[str]) -> dict[str, tuple[list[float], list[float]]]:
    """For each family: the log-probabilities of all chosen and rejected responses, in the order of the packed pairs."""
    return {name: _both(name) for name in names}


def _both(name: str) -> tuple[list[float], list[float]]:
    model = build(name, tiny(name, seq_length=ROOM))
    model.eval()
    random = np.random.default_rng(0)
    samples = [[random.integers(3, VOCABULARY, size).tolist() for size in sizes] for sizes in SIZES]
    whole = [
        EncodedPreference(prompt, responses, True, tuple(sizes))
        for (prompt, *responses), sizes in zip(samples, SIZES, strict=True)
    ]
    dataset = PairDataset(whole, PreferenceCuts(0, 0))
    packed = PackedPairs(dataset, ROOM)
    rows = [packed[number] for number in range(len(packed))]
    together = _sums(model, collate_pairs(rows, pad=0, packed=True))
    alone = collate_pairs([pair for row in rows for pair in row], pad=0)
    numbers = np.tile(np.arange(len(SIZES)), 2)[:, None]
    own = (alone["labels"] != IGNORED)[..., None] & (numbers[..., None] == np.arange(numbers.max() + 1))
    return together, _sums(model, alone | {"pairs": own})


@paddle.no_grad()
def _sums(model, batch: dict) -> list[float]:
    """Of each pair: of its chosen response, then of its rejected one."""
    labels, pairs = batch.pop("labels"), batch.pop("pairs")
    logits = model(**{key: paddle.to_tensor(value) for key, value in batch.items()}, return_dict=True).logits
    entropy = paddle.nn.CrossEntropyLoss(reduction="none", ignore_index=IGNORED)
    losses = entropy(logits, paddle.to_tensor(labels).unsqueeze(-1)).squeeze(-1).numpy()
    half = len(labels) // 2
    sides = ((losses[:half], pairs[:half]), (losses[half:], pairs[half:]))
    return [float(-loss[own[..., pair]].sum()) for loss, own in sides for pair in range(len(SIZES))]


@paddle.no_grad()
def differences_by_dropout(names: list[str]) -> dict[str, list[float]]:
    """For each family, in training: how much two forward passes differ with dropout everywhere, and without it."""
    from launch.training.preference_tuning import end_dropout

    keys = ("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout", "attention_dropout")
    found = {}
    for name in names:
        config = tiny(name)
        for key in keys:
            if hasattr(config, key):
                setattr(config, key, 0.5)
        model = build(name, config)
        model.train()
        ids = paddle.arange(3, 15).unsqueeze(0)
        found[name] = []
        for had in (True, False):
            outputs = [model(input_ids=ids) for _ in range(2)]
            one, other = (output[0] if isinstance(output, tuple) else output for output in outputs)
            found[name].append(float((one - other).abs().max()))
            assert end_dropout(model) == had
    return found


# ---- for test_run_dpo.py


def ended_while_computing(argv: list[str], parts: int, name: str) -> list[int]:
    """Run run_dpo.py with a write of the reference after each batch; it gets the signal of that name after so many of
    them, 0: never. Returns the samples of each part that it has written."""
    from launch.train import train_method
    from launch.training import precomputed
    from launch.training.stored_losses import StoredLosses

    append, written = StoredLosses.append, []

    def appended(store, losses):
        append(store, losses)
        written.append(len(losses))
        if len(written) == parts:
            os.kill(os.getpid(), getattr(signal, name))

    precomputed.SECONDS_A_PART = 0.0
    StoredLosses.append = appended
    train_method("run_dpo", argv)
    return written


def losses_of(cases: list) -> list[list[float]]:
    """Of each (arguments, scores [chosen and rejected, pairs], those of the reference): its pair_losses."""
    from launch.training.preference_losses import pair_losses

    found = []
    for args, scores, before in cases:
        policy, reference = (paddle.to_tensor(np.ravel(each), dtype="float32") for each in (scores, before))
        found.append(pair_losses(SimpleNamespace(**args), policy, reference if np.any(before) else None).tolist())
    return found


def by_hand(model: str, data: str, output: str) -> dict:
    """[sum of ln p, tokens] of each response, by the model from before the run and by that which the run has left, one
    sequence at a time; which pairs are in the first step."""
    rows = _rows(data)
    pairs = [(row["prompt"], row[name]) for row in rows for name in ("chosen", "rejected")]
    before, after = (np.reshape(found, [len(rows), 2, 2]).tolist() for found in _before_and_after(model, output, pairs))
    return {"before": before, "after": after, "first_step": _of_step(len(rows), 0)}


def kto_by_hand(model: str, data: str, output: str) -> dict:
    """The same of the single responses that pairs make: of each, and of the unrelated one behind its prompt; which of
    them are in the second step."""
    rows = _rows(data)
    prompts = [row["prompt"] for row in rows for _ in range(2)]
    responses = [row[name] for row in rows for name in ("chosen", "rejected")]
    others = responses[len(rows) :] + responses[: len(rows)]
    texts = [*zip(prompts, responses, strict=True), *zip(prompts, others, strict=True)]
    before, after = (np.reshape(found, [2, len(prompts), 2]) for found in _before_and_after(model, output, texts))
    judged, unrelated = (after - before)[..., 0]
    logps, tokens = after[0].T
    named = {"ratios": judged, "unrelated": unrelated, "logps": logps, "tokens": tokens}
    return {name: array.tolist() for name, array in named.items()} | {"second_step": _of_step(len(prompts), 1)}


def kto_losses_of(cases: list) -> list[list[float]]:
    """Of each (arguments, ratios, which are desired, z0): its kto_losses."""
    from launch.training.kto_loss import kto_losses

    found = []
    for args, ratios, desired, distance in cases:
        each = paddle.to_tensor(ratios, dtype="float32"), paddle.to_tensor(desired), paddle.to_tensor(distance)
        found.append(kto_losses(SimpleNamespace(**args), *each).tolist())
    return found


def _rows(data: str) -> list[dict]:
    return [json.loads(line) for line in Path(data, "train.json").read_text().splitlines()]


def _of_step(samples: int, step: int) -> list[int]:
    from launch.checkpoint.data_ledger import shuffled

    return [int(number) for number in shuffled(samples, 42, 0)[8 * step : 8 * step + 8]]


@paddle.no_grad()
def _before_and_after(base: str, output: str, texts: list[tuple[str, str]]) -> tuple[list, list]:
    from paddlenlp.transformers import AutoTokenizer, LlamaForCausalLM

    from launch.adapters.adapter_files import load_adapter

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = LlamaForCausalLM.from_pretrained(base, dtype="float32")
    model.eval()
    before = [_of(model, tokenizer, *text) for text in texts]
    if Path(output, "lora_config.json").exists() or list(Path(output).glob("peft_model*")):
        trained = load_adapter(model, output)
    else:
        trained = LlamaForCausalLM.from_pretrained(output, dtype="float32")
    trained.eval()
    return before, [_of(trained, tokenizer, *text) for text in texts]


def ids_of(model: str, data: str) -> list:
    """[prompt, chosen, rejected] of each pair."""
    from paddlenlp.transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    pairs = []
    for row in _rows(data):
        both = [_ids(tokenizer, row["prompt"], row[name]) for name in ("chosen", "rejected")]
        pairs.append([both[0][0], both[0][1], both[1][1]])
    return pairs


def _ids(tokenizer, prompt: str, response: str) -> tuple[list[int], list[int]]:
    """Cut as --src_length 48 --max_length 128 cuts: all of these are short enough."""
    before = tokenizer(prompt)["input_ids"]
    after = [*tokenizer(response, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    assert len(before) + len(after) <= 128
    return before, after


def _of(model, tokenizer, prompt: str, response: str) -> list[float]:
    before, after = _ids(tokenizer, prompt, response)
    outputs = model(input_ids=paddle.to_tensor([[*before, *after]]))
    logits = (outputs[0] if isinstance(outputs, tuple) else outputs)[0].numpy().astype(np.float64)
    told = logits[len(before) - 1 : -1]
    top = told.max(-1, keepdims=True)
    logarithms = told - top - np.log(np.exp(told - top).sum(-1, keepdims=True))
    return [float(logarithms[np.arange(len(after)), after].sum()), len(after)]
