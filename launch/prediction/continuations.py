"""How a trained model continues a text: the most likely tokens."""

from pathlib import Path

from launch.generation.generate import Decoding
from launch.prediction.predictor import load_predictor


def continuations(model_directory: Path, prompts: list[str], max_new_tokens: int) -> list[str]:
    """The text that follows each prompt."""
    predictor = load_predictor(str(model_directory), None, "float32")
    ids = [predictor.tokenizer(prompt)["input_ids"] for prompt in prompts]
    answers = dict(answer for [answer] in predictor.answer(ids, Decoding(max_new_tokens), batch_size=1))
    return [answers[number] for number in range(len(prompts))]
