"""How often special ids are looked up, for test_special_ids_of_every_token.py."""

from pathlib import Path

IDS = [1, 300, 301, 2, 302, 260, 2]


def looked_up(directory: str, corrected: bool) -> dict:
    """Lookups of the special tokens while some ids are decoded, the text, and the ids that are special once another
    token is."""
    from itertools import islice

    from paddlenlp.transformers.tokenizer_utils import PretrainedTokenizer

    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.generation.text import decode
    from launch.rehearsal.materials import documents
    from launch.training.model import open_tokenizer
    from launch.upstream import correct

    save_tokenizer(Path(directory), train_tokenizer(islice(documents(), 50), 384))
    tokenizer = open_tokenizer("model_name_or_path", directory)
    if corrected:
        correct(["special_ids_of_every_token"])
        correct(["special_ids_of_every_token"])
    stock, calls = PretrainedTokenizer.convert_tokens_to_ids, []

    def counted(self, tokens):
        calls.append(tokens)
        return stock(self, tokens)

    PretrainedTokenizer.convert_tokens_to_ids = counted
    found = {"text": decode(tokenizer, IDS), "again": decode(tokenizer, IDS), "calls": len(calls)}
    before = tokenizer.all_special_ids
    before.append(-1)  # the caller's own list
    found["before"] = tokenizer.all_special_ids
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra>"]})
    found["after"] = tokenizer.all_special_ids
    tokenizer.pad_token = "<other>"
    found["changed"] = len(tokenizer.all_special_ids)
    return found
