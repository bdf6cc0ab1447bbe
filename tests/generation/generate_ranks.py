"""What ranks generate, for test_generate.py."""

import numpy as np
import paddle

from launch.families.registry import FAMILIES
from launch.generation.generate import Decoding, generate
from tests.families import family_ranks
from tests.families.family_ranks import ANSWER_TOKEN, MASK_TOKEN, VOCABULARY, start_fleet

LENGTHS, NEW_TOKENS = (9, 4, 12), 6
NEVER = (VOCABULARY + 1,)  # an end that no answer has


def prompts(name: str) -> list[list[int]]:
    draw = np.random.default_rng(0)
    ends = [MASK_TOKEN, ANSWER_TOKEN] if FAMILIES[name].attention == "prefix" else []
    return [draw.integers(3, VOCABULARY, length).tolist() + ends for length in LENGTHS]


def load(name: str, directory: str, tensor_parallel: int = 1):
    model = family_ranks.load(name, f"{directory}/{name}", tensor_parallel)
    model.eval()
    return model


def greedy(directory: str, names: list[str], causal: list[str], tensor_parallel: int) -> list[dict]:
    """Return what the two functions below find of the families in names, and of the causal ones."""
    start_fleet(mp_degree=tensor_parallel)
    return [together_and_alone(directory, names), by_heart(directory, causal, tensor_parallel)]


def together_and_alone(directory: str, names: list[str]) -> dict[str, tuple[list, list]]:
    """Greedy answers of each family to prompts in one batch, and to each alone."""
    decoding, answers = Decoding(NEW_TOKENS), {}
    for name in names:
        family, model = FAMILIES[name], load(name, directory)
        together = generate(model, family, prompts(name), decoding, NEVER)
        alone = [generate(model, family, [prompt], decoding, NEVER)[0] for prompt in prompts(name)]
        answers[name] = (together, alone)
    return answers


def by_heart(directory: str, names: list[str], tensor_parallel: int) -> dict[str, tuple[list, list]]:
    """Greedy answers to prompts in one batch, and what forward passes without a cache or padding make most likely in
    the answers' places. Families whose tokens see what is before them alone."""
    found = {}
    for name in names:
        model = load(name, directory, tensor_parallel)
        answers = generate(model, FAMILIES[name], prompts(name), Decoding(NEW_TOKENS), NEVER)
        model.config.tensor_parallel_output = False
        found[name] = (answers, [likely(model, *both) for both in zip(prompts(name), answers, strict=True)])
    return found


def likely(model, prompt: list[int], answer: list[int]) -> list[int]:
    """What a forward pass without a cache makes most likely in the places of an answer's tokens."""
    with paddle.no_grad():
        outputs = model(input_ids=paddle.to_tensor([prompt + answer]))
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    return logits[0, len(prompt) - 1 : -1].argmax(axis=-1).tolist()


def drawn(directory: str, flags: list[dict], tensor_parallel: int) -> list[list[list[int]]]:
    """Answers of a LLaMA for each of several ways to draw, after the same seed."""
    start_fleet(mp_degree=tensor_parallel)
    model, answers = load("llama", directory, tensor_parallel), []
    for one in flags:
        paddle.seed(7)
        answers.append(generate(model, FAMILIES["llama"], prompts("llama"), Decoding(NEW_TOKENS, **one), NEVER))
    return answers


def ends(directory: str) -> dict:
    """A LLaMA's answer to one prompt, that with its third token as the end, and what a stream shows of the latter."""
    import contextlib
    import io

    from launch.generation.text import TextStream

    start_fleet()
    model, family, prompt = load("llama", directory), FAMILIES["llama"], prompts("llama")[0]
    [whole] = generate(model, family, [prompt], Decoding(NEW_TOKENS), NEVER)
    shown, ends = io.StringIO(), (*NEVER, whole[2])
    with contextlib.redirect_stdout(shown):
        stream = TextStream(Numbers(), ends)
        [cut] = generate(model, family, [prompt], Decoding(NEW_TOKENS), ends, streamer=stream)
    model.generation_config.max_length = 1  # as a model's generation_config.json may have it; 20 is paddlenlp's default
    [long] = generate(model, family, [prompt], Decoding(20), NEVER)
    return {"whole": whole, "cut": cut, "shown": shown.getvalue(), "long": len(long)}


class Numbers:
    """A tokenizer whose text of ids is their numbers."""

    def decode(self, ids: list[int], **_) -> str:
        return " ".join(map(str, ids))


def beyond_the_tokenizer(directory: str, known: int) -> dict:
    """The largest id of greedy and drawn answers of a LLaMA that would rather say ids from `known` on."""
    model = load("llama", directory)
    head = model.lm_head.weight
    with paddle.no_grad():
        head[:, known:] = 30 * head[:, known:]
    largest = {}
    for name, limit in (("all", None), ("known", known)):
        for how in ({}, {"temperature": 1.0}):
            paddle.seed(1)
            answers = generate(model, FAMILIES["llama"], prompts("llama"), Decoding(NEW_TOKENS, **how), NEVER, limit)
            largest[f"{name} {'drawn' if how else 'greedy'}"] = max(map(max, answers))
    return largest


def no_numbers(directory: str, broken: str) -> dict:
    """What is said to a model with one NaN: when it generates, when it is evaluated, and when it is read from a
    file."""
    import paddlenlp.transformers as transformers
    from safetensors.numpy import load_file, save_file

    from launch.checkpoint.model_loader import load_model
    from launch.errors import UserError
    from launch.training.watches import require_finite

    model = load("llama", directory)
    with paddle.no_grad():
        model.llama.norm.weight[3] = float("nan")
    tensors = load_file(f"{directory}/llama/model.safetensors")
    tensors["llama.layers.1.mlp.down_proj.weight"][2, 1] = np.inf
    save_file(tensors, f"{broken}/model.safetensors", {"format": "np"})
    asks = {
        "generate": lambda: generate(model, FAMILIES["llama"], prompts("llama"), Decoding(2), NEVER),
        "evaluate": lambda: require_finite(model),
        "read": lambda: load_model(transformers.LlamaForCausalLM, family_ranks.tiny("llama"), "float32", broken),
    }
    said = {}
    for name, ask in asks.items():
        try:
            ask()
        except UserError as error:
            said[name] = str(error)
    return said
