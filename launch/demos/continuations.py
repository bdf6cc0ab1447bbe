"""How a trained model continues a text: the most likely tokens."""

from pathlib import Path

from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer

from launch.generation.generate import Decoding, generate
from launch.generation.stream import decode
from launch.models.families import FAMILIES


def continuations(model_directory: Path, prompts: list[str], max_new_tokens: int) -> list[str]:
    """The text that follows each prompt, by a LLaMA."""
    tokenizer = AutoTokenizer.from_pretrained(str(model_directory))
    model = AutoModelForCausalLM.from_pretrained(str(model_directory), dtype="float32")
    model.eval()
    decoding, eos = Decoding(max_new_tokens), tokenizer.eos_token_id
    ids = [generate(model, FAMILIES["llama"], [tokenizer(prompt)["input_ids"]], decoding, eos)[0] for prompt in prompts]
    return [decode(tokenizer, one) for one in ids]
