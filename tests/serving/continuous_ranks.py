"""A continuous batch on small models, for test_continuous.py."""

import time
from pathlib import Path
from unittest.mock import patch

from paddlenlp.transformers.llama import modeling as llama

from launch.generation import key_values, packed_texts
from launch.generation.key_values import KeyValues, Text
from launch.generation.packed import PackedModel
from launch.serving import continuous_batch, texts
from launch.serving.continuous_batch import ContinuousBatch
from launch.serving.models import load_models
from launch.serving.request import Likelihood, Options, Row
from launch.serving.texts import Texts

NAMES = ("model", "lora", "prefix")
BLOCK, CHUNK = 4, 8


class Watched(Texts):
    """Small blocks and chunks. seen: of each step the names of its texts and how many tokens of each are computed."""

    def __init__(self, models, tokens: int):
        key_values.BLOCK = packed_texts.BLOCK = texts.BLOCK = BLOCK
        packed_texts.PROMPT_CHUNK = CHUNK
        super().__init__(models, 2**30)
        self.tokens = tokens
        self.clear()
        self.seen: list[list[tuple[str, int]]] = []
        self.most_reserved = self.most_allocated = 0

    def _chosen(self):
        chosen = super()._chosen()
        self.seen.append([(text.owner, count) for _, text, count in chosen])
        self.most_reserved = max(self.most_reserved, self.memory.reserved + len(self.memory.kept) * BLOCK)
        allocated = sum(group.places * group.capacity for group in self.memory.groups)
        self.most_allocated = max(self.most_allocated, allocated + len(self.memory.kept) * BLOCK)
        return chosen


def facts(directory: str) -> dict:
    """Return what each function below finds."""
    found = {each.__name__: each(directory) for each in (in_company, beside_scored, scored, damaged, limits)}
    found |= {each.__name__: each(directory) for each in (asked_for_room, answering_layers, rotary)}
    found |= {"same_beginning": {tokens: same_beginning(directory, tokens) for tokens in (400, 48)}}
    found |= {"lora_of_experts": lora_of_experts(), "sent_and_grown": sent_and_grown()}
    return found | {"kept_and_reserved": kept_and_reserved(), "moved": moved(0)}


def batch_of(models, largest: int, tokens: int) -> tuple[ContinuousBatch, Watched]:
    watched = Watched(models, tokens)
    return ContinuousBatch(models, watched, largest), watched


def batch_for(models, largest: int):
    return continuous_batch.batch_for(models, largest, continuous_batch.texts_for(models, 2**20))


def row(name: str, prompt: list[int], max_tokens: int, **options) -> tuple[Row, list]:
    told = []
    chosen = Options(**{"temperature": 0} | options)
    return Row((name,), list(prompt), chosen, max_tokens, 0, time.monotonic() + 600, told.append), told


def drive(batch, rows: list[Row]) -> int:
    """Until all are answered; how many steps that took."""
    waiting, steps = list(rows), 0
    while waiting or batch.rows:
        taken = batch.take(waiting)
        waiting = [one for one in waiting if one not in taken]
        batch.step()
        steps += 1
    return steps


def served(directory: str):
    root = Path(directory)
    return load_models("model", str(root / "model"), {"lora": root / "lora", "prefix": root / "prefix"})


def prompts(count: int, draw) -> list[list[int]]:
    return [draw.integers(5, 200, draw.integers(1, 30)).tolist() for _ in range(count)]


def in_company(directory: str) -> dict:
    """Rows of a base, a LoRA and a prefix that come and go: what each is told, and alone; the steps, the memory."""
    import numpy as np

    models, draw = served(directory), np.random.default_rng(0)
    asked = [(NAMES[number % 3], prompt) for number, prompt in enumerate(prompts(18, draw))]
    lengths = draw.integers(1, 20, len(asked)).tolist()
    drawn = [{"temperature": 1.0, "seed": 3} if number % 5 == 0 else {} for number in range(len(asked))]
    alone = []
    for (name, prompt), length, options in zip(asked, lengths, drawn, strict=True):
        one, told = row(name, prompt, length, **options)
        models[name].answer([one])
        alone.append(told)
    batch, texts = batch_of(models, 6, 1200)
    made = [row(name, prompt, length, **how) for (name, prompt), length, how in zip(asked, lengths, drawn, strict=True)]
    drive(batch, [one for one, _ in made])
    return {
        "alone": alone,
        "together": [told for _, told in made],
        "mixed": max(len({name for name, _ in step}) for step in texts.seen),
        "rows": [len(step) for step in texts.seen],
        "chunks": max(sum(count for _, count in step if count > 1) for step in texts.seen),
        "beside": any({1, 8} <= {count for _, count in step} for step in texts.seen),
        "reserved": texts.most_reserved,
        "allocated": texts.most_allocated,
        "left": texts.memory.reserved,
        "description": batch.description,
    }


def families_with_adapters(directory: str, adapters: dict[str, list[str]], tensor_parallel: int) -> dict[str, dict]:
    """For each family rows of its base and its adapters in one batch: what each is told, and alone; the largest number
    of models in a step. adapters: kinds by family, as tests/families/adapter_ranks.py has saved them."""
    from tests.families.family_ranks import start_fleet

    start_fleet(mp_degree=tensor_parallel)
    return {name: _with_adapters(name, directory, kinds, tensor_parallel) for name, kinds in adapters.items()}


def _with_adapters(name: str, directory: str, kinds: list[str], tensor_parallel: int) -> dict:
    from launch.adapters.adapter_files import load_adapter
    from launch.serving.models import _twin
    from tests.generation import generate_ranks

    base = generate_ranks.load(name, directory, tensor_parallel)
    base.config.tensor_parallel_output = False
    adapters = {kind: load_adapter(_twin(base), f"{directory}/{name}-{kind}-of-1") for kind in kinds}
    models = _served(name, {"model": base} | adapters)
    asked = [(kind, prompt) for prompt in generate_ranks.prompts(name) for kind in models]
    alone, together = ([row(kind, prompt, 6) for kind, prompt in asked] for _ in range(2))
    for one, _ in alone:
        models[one.group[0]].answer([one])
    batch, texts = batch_of(models, 4, 400)
    drive(batch, [one for one, _ in together])
    return {
        "alone": [told for _, told in alone],
        "together": [told for _, told in together],
        "mixed": max(len({kind for kind, _ in step}) for step in texts.seen),
    }


def _served(family: str, models: dict) -> dict:
    """A base and its adapters, as load_models() gives them, with an end that no answer has."""
    from types import SimpleNamespace

    from launch.families.registry import FAMILIES
    from launch.serving.models import Served
    from tests.generation.generate_ranks import NEVER

    parts = {"family": FAMILIES[family], "ends": NEVER, "known_ids": None, "config": models["model"].config}
    for model in models.values():
        model.eval()
    return {name: Served(name, SimpleNamespace(model=model, **parts), None, "") for name, model in models.items()}


def all_families(directory: str, names: list[str]) -> dict[str, list]:
    """Of each family what rows of one batch are told, its answers by generate() one by one, and the steps."""
    from launch.families.registry import FAMILIES
    from launch.generation.generate import Decoding, generate
    from launch.upstream import correct
    from tests.generation import generate_ranks
    from tests.generation.generate_ranks import NEVER, NEW_TOKENS

    key_values.BLOCK = packed_texts.BLOCK = texts.BLOCK = BLOCK
    packed_texts.PROMPT_CHUNK = CHUNK  # of prompts of up to 12 tokens
    correct(["logits_processor_list"])
    found = {}
    for name in names:
        model, asked = generate_ranks.load(name, directory), generate_ranks.prompts(name)
        alone = [generate(model, FAMILIES[name], [prompt], Decoding(NEW_TOKENS), NEVER)[0] for prompt in asked]
        made = [row("model", prompt, NEW_TOKENS) for prompt in asked]
        steps = drive(batch_for(_served(name, {"model": model}), 2), [one for one, _ in made])
        found[name] = [[told for _, told in made], alone, steps]
    return found


def beside_scored(directory: str) -> list[list]:
    """What a row of a LoRA is told alone, beside a row of the base whose prompt is scored, and with what was kept."""
    models, prompt = served(directory), list(range(20, 38))
    batch, _ = batch_of(models, 2, 400)
    asked = [row("lora", prompt, 6), row("lora", prompt, 6), row("lora", prompt, 6)]
    models["lora"].answer([asked[0][0]])
    drive(batch, [asked[1][0], row("model", prompt[:7], 2, prompt_logprobs=0)[0]])
    drive(batch, [asked[2][0]])
    return [told for _, told in asked]


def scored(directory: str) -> dict:
    """Rows whose prompts are scored, between others that begin alike: what they are told alone, by one pass over the
    prompt, and together, in chunks; how many tokens were computed of prompts."""
    models, prompt = served(directory), list(range(20, 41))
    asked = [
        ("model", prompt, 3, {}),
        ("model", prompt, 3, {"prompt_logprobs": 2}),
        ("lora", prompt[:9], 0, {"echo": True, "logprobs": 1}),
        ("prefix", prompt[:13], 2, {"prompt_logprobs": 0, "logprobs": 0}),
        ("model", [7], 2, {"prompt_logprobs": 1}),
        ("lora", [7], 0, {"prompt_logprobs": 1}),
    ]
    found = {}
    for way in ("alone", "together"):
        made = [row(name, ids, most, **options) for name, ids, most, options in asked]
        if way == "alone":
            for one, _ in made:
                models[one.group[0]].answer([one])
        else:
            batch, texts = batch_of(models, 8, 400)
            drive(batch, [one for one, _ in made])
            found["computed"] = sum(count for step in texts.seen for _, count in step)
            found["longest"] = max(sum(count for _, count in step if count > 1) for step in texts.seen)
        found[way] = [[plain(event) for event in told] for _, told in made]
    return found


def plain(event):
    if isinstance(event, list):
        return [plain(one) for one in event]
    return [event.token, event.value, event.rank, event.top] if isinstance(event, Likelihood) else event


def damaged(directory: str) -> dict:
    """Rows in company, of which one's keys and values become NaN: what all are told, the one that takes its place, and
    the same prompt again; and alone."""
    import paddle

    models, shared = served(directory), [20, 21, 22, 23, 24]
    asked = [[*shared, 30], [40, 41, 42], [50, 51, 52, 53], [*shared, 30]]
    alone, together = ([row("model", prompt, 6) for prompt in asked] for _ in range(2))
    for one, _ in alone:
        models["model"].answer([one])
    batch, texts = batch_of(models, 2, 400)
    batch.take([one for one, _ in together[:2]])
    batch.step()
    batch.step()
    text = texts.texts[0]
    bad = [paddle.full_like(layer, float("nan")) for layer in text.group.read(text, 4, 5)]
    text.group.write(text, 4, 5, bad)
    drive(batch, [one for one, _ in together[2:]])
    return {"alone": [told for _, told in alone], "together": [told for _, told in together]}


def lora_of_experts() -> dict:
    """A Mixtral and a LoRA of its experts: what rows of both are told, alone and together."""
    from types import SimpleNamespace

    import paddle

    from launch.adapters.add import add_lora
    from launch.serving.models import _twin
    from launch.training.arguments import AdapterArguments
    from tests.families.family_ranks import build, tiny

    base = build("mixtral", tiny("mixtral"))
    lora = add_lora(_twin(base), SimpleNamespace(model_name_or_path=""), AdapterArguments(lora_rank=4), seed=1)
    for name, parameter in lora.model.state_dict().items():
        if name.endswith("lora_B"):  # zero at first: it would change nothing
            parameter.set_value(paddle.randn(parameter.shape))
    models = _served("mixtral", {"model": base, "lora": lora})
    asked = [("model", [5, 6, 7]), ("lora", [5, 6, 7]), ("lora", [9, 8])]
    alone = [row(name, prompt, 6) for name, prompt in asked]
    for one, _ in alone:
        models[one.group[0]].answer([one])
    together = [row(name, prompt, 6) for name, prompt in asked]
    batch = batch_for(models, 4)
    drive(batch, [one for one, _ in together])
    return {
        "alone": [told for _, told in alone],
        "together": [told for _, told in together],
        "batch": type(batch).__name__,
        "base": type(batch_for({"model": models["model"]}, 4)).__name__,
    }


def same_beginning(directory: str, tokens: int) -> dict:
    """Rows whose prompts begin alike: tokens computed of prompts, in all, with so much memory; what they are told."""
    models = served(directory)
    system = list(range(20, 36))
    asked = [system + [40 + number, 41, 42] for number in range(5)]
    made = [row("model", prompt, 3) for prompt in asked] + [row("lora", asked[0], 3)]
    batch, texts = batch_of(models, 2, tokens)
    drive(batch, [one for one, _ in made])
    alone = [row("model", prompt, 3) for prompt in asked] + [row("lora", asked[0], 3)]
    for one, _ in alone:
        models[one.group[0]].answer([one])
    return {
        "computed": sum(count for step in texts.seen for _, count in step),
        "same": [told for _, told in made] == [told for _, told in alone],
        "kept": len(texts.memory.kept),
        "reserved": texts.most_reserved,
    }


def rotary(directory: str) -> tuple[list[int], list[bool]]:
    """How often paddlenlp rotates before and after ours takes its place; whether the logits are the same, of a part of
    a prompt and of the next token."""
    predictor = served(directory)["model"].predictor
    packed = PackedModel(predictor.model, predictor.family)

    def logits() -> tuple[list, int]:
        text, memory = Text([5, 9, 2, 7], 6), KeyValues(packed.layout, 64)
        memory.add(text)
        memory.prepare()
        with patch.object(llama, "rotate_half", wraps=llama.rotate_half) as stock:
            return [packed.run([(text, count)]).numpy() for count in (3, 1)], stock.call_count

    stock, before = logits()
    packed.compute_on_cpu()
    ours, after = logits()
    return [before, after], [bool((one == other).all()) for one, other in zip(stock, ours, strict=True)]


def asked_for_room(directory: str) -> list[int]:
    """How often room is asked for, step by step, while a row waits for that of another."""
    models = served(directory)
    batch, texts = batch_of(models, 8, 64)
    stock, calls, found = texts.add, [], []
    texts.add = lambda *arguments: calls.append(arguments[0]) or stock(*arguments)
    waiting = [row("model", [7] * 20, 20)[0], row("model", [8] * 20, 20)[0]]
    while waiting or batch.rows:
        taken = batch.take(waiting)
        waiting = [one for one in waiting if one not in taken]
        found.append(len(calls))
        batch.step()
    return found


def answering_layers(directory: str) -> dict:
    """The largest difference of logits, relative to the largest one, where the layers for answers take the place of
    paddlenlp's; how many they are; whether a layer still computes other dtypes."""
    import paddle

    from launch.cpu.kernels import replace_for_answers

    model = served(directory)["model"].predictor.model
    ids = paddle.to_tensor([[5, 9, 2, 7, 30, 31]])
    with paddle.no_grad():
        stock = model(ids)[0]
        replace_for_answers(model)
        ours = model(ids)[0]
    replaced = [layer for layer in model.sublayers() if "forward" in vars(layer)]
    norm = next(layer for layer in replaced if type(layer).__name__ == "LlamaRMSNorm")
    doubled = norm(paddle.ones([1, norm.weight.shape[0]], "float64"))
    return {
        "difference": float((ours - stock).abs().max() / stock.abs().max()),
        "kinds": sorted({type(layer).__name__ for layer in replaced}),
        "dtype": str(doubled.dtype),
    }


def limits(directory: str) -> dict:
    """Rows beyond the memory: how many are in work at once. One that is cancelled, and one that fails."""
    models = served(directory)
    batch, texts = batch_of(models, 8, 64)
    made = [row("model", [7] * 10, 10) for _ in range(4)]  # 20 tokens each
    drive(batch, [one for one, _ in made])
    leaves, stays = row("model", [9, 8, 7], 12), row("model", [7, 8, 9], 12)
    batch.take([leaves[0], stays[0]])
    batch.step()
    leaves[0].cancel()
    batch.step()
    return {
        "rows": max(len(step) for step in texts.seen[:-2]),
        "told": [told for _, told in made],
        "room": batch.room("model"),
        "prefixed": batch.room("prefix"),
        "after": len(batch.rows),
        "left": leaves[1],
        "stays": len(stays[1]),
    }


def kept_and_reserved() -> dict:
    """How many of 8 kept blocks a text takes over when one is forgotten, and how many are kept where 5 have room; how
    many texts of 128 tokens have room in 8,192 beside one of 4,096."""
    key_values.BLOCK = BLOCK
    layout = key_values.CacheLayout(layers=1, heads=1, size=2, dtype="float32")
    found = {}
    for name, limit in (("reused", 400), ("room", 56)):
        memory, ids = key_values.KeyValues(layout, limit), list(range(8 * BLOCK + 1))
        for turn in range(3):
            text = key_values.Text(list(ids), len(ids))
            memory.add(text)
            memory.prepare()
            memory.reuse(text)
            found[name] = text.computed // BLOCK
            text.computed = len(ids)
            memory.keep(text)
            memory.remove(text)
            memory._forget((len(memory.kept) - 1) * BLOCK if turn == 1 else limit)
    memory, short = key_values.KeyValues(layout, 8192), 0
    memory.add(key_values.Text([1], 4096))
    while memory.has_room(text := key_values.Text([1], 128)):
        memory.add(text)
        memory.prepare()
        short += 1
    return found | {"short": short, "reserved": memory.reserved}


def moved(seed: int) -> int:
    """Texts come and go in groups whose tensors are copied: how many keys were read back, each what was written."""
    import numpy as np
    import paddle

    key_values.BLOCK = BLOCK
    layout = key_values.CacheLayout(layers=2, heads=3, size=2, dtype="float32")
    memory, draw, read = key_values.KeyValues(layout, 10**6), np.random.default_rng(seed), 0
    texts: dict[key_values.Text, float] = {}
    for number in range(120):
        if draw.random() < 0.6:
            text = key_values.Text([1] * int(draw.integers(1, 9)), 60)
            memory.add(text)
            texts[text] = number + 1.0
        elif texts:
            text = list(texts)[draw.integers(len(texts))]
            memory.remove(text)
            del texts[text]
        if draw.random() < 0.1:
            for group in memory.groups:
                group.compact()
        memory.prepare()
        for text, value in texts.items():
            new = len(text.ids) - text.computed
            tensors = [paddle.full([2 * 3 * new, 2], value + layer / 10) for layer in range(2)]
            text.group.write(text, text.computed, text.computed + new, tensors)
            text.computed = len(text.ids)
            for layer, found in enumerate(text.group.read(text, 0, text.computed)):
                assert (found == value + layer / 10).all(), (number, value)
                read += found.shape[0]
            text.ids += [1] * int(draw.integers(0, 4)) if len(text.ids) < 50 else []
    return read


def sent_and_grown() -> dict:
    """The bytes that 8 newest tokens and a chunk of 64, in texts of 1,000 tokens, send to the device; then, of
    a group that grows, the bytes held whenever keys or values of a layer are copied, beyond those before."""
    import numpy as np
    import paddle
    from paddle.base import core

    from launch.generation.row_attention import AttentionHeads, ComposedAttention

    layout = key_values.CacheLayout(layers=4, heads=2, size=64, dtype="float32")
    memory = key_values.KeyValues(layout, 10**6)
    texts = [key_values.Text([1] * 1000, 8000) for _ in range(9)]
    for text in texts:
        memory.add(text)
        text.computed = 936 if text is texts[0] else 999
    memory.prepare()
    counts, sent, stock = [64, *[1] * 8], [], paddle.to_tensor

    def counting(data, *args, **kwargs):
        sent.append(np.asarray(data).nbytes)
        return stock(data, *args, **kwargs)

    starts = np.cumsum([0, *counts[:-1]]).tolist()
    paddle.to_tensor = counting
    members = {texts[0].group: list(zip(texts, starts, counts, strict=True))}
    ComposedAttention(AttentionHeads(2, 3, 64, None), members)
    paddle.to_tensor = stock

    held, release = [], key_values.release_idle_memory
    now = lambda: core.host_memory_stat_current_value("Allocated", 0)  # noqa: E731
    key_values.release_idle_memory = lambda: held.append(now())
    group = texts[0].group
    before, tensor = now(), group.keys[0].size * 4
    texts[0].ids += [1] * 4000
    memory.prepare()
    key_values.release_idle_memory = release
    return {"sent": sum(sent), "held": [bytes - before for bytes in held], "grown": group.keys[0].size * 4 - tensor}
