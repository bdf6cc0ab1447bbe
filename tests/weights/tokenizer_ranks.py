"""Imported tokenizers loaded by PaddleNLP, for test_tokenizer.py."""


def encode(directories: list[str], texts: list[str]) -> dict[str, dict]:
    """By directory: class, ids of each text and their decoding, ids of special tokens."""
    from paddlenlp.transformers import AutoTokenizer

    results = {}
    for directory in directories:
        tokenizer = AutoTokenizer.from_pretrained(directory)
        ids = [tokenizer(text)["input_ids"] for text in texts]
        results[directory] = {
            "class": type(tokenizer).__name__,
            "ids": ids,
            "texts": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
            "eos": tokenizer.eos_token_id,
            "bos": tokenizer.bos_token_id,
        }
    return results


def chat(directory: str, question: str) -> str:
    from paddlenlp.transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory).apply_chat_template(question, tokenize=False)
