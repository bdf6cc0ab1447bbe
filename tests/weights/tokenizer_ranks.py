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


def open_all(directories: list[str]) -> dict[str, str]:
    """By directory "read", or the class and text of what its tokenizer raises."""
    from launch.training.model import open_tokenizer
    from launch.upstream import correct

    correct(["chat_templates_compiled"])
    outcomes = {}
    for directory in directories:
        try:
            open_tokenizer("model_name_or_path", directory).encode("a b")
            outcomes[directory] = "read"
        except Exception as error:
            outcomes[directory] = f"{type(error).__name__}: {error}"
    return outcomes
