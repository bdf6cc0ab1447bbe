"""Continue a few prompts with a trained model, greedily."""

from pathlib import Path

import paddle
from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer


def continuations(model_directory: Path | str, prompts: list[str], max_new_tokens: int) -> list[str]:
    """The text that follows each prompt. The attention mask must be given: llama's generate() fails without one."""
    tokenizer = AutoTokenizer.from_pretrained(str(model_directory))
    model = AutoModelForCausalLM.from_pretrained(str(model_directory), dtype="float32")
    model.eval()
    texts = []
    for prompt in prompts:
        input_ids = paddle.to_tensor([tokenizer(prompt)["input_ids"]])
        ids, _ = model.generate(
            input_ids,
            attention_mask=paddle.ones_like(input_ids),
            max_new_tokens=max_new_tokens,
            decode_strategy="greedy_search",
        )
        texts.append(
            # without clean_up "a . b" would be shown as "a. b"
            tokenizer.decode(ids[0].tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
    return texts
