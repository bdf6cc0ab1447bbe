"""What paddlenlp makes of our files, for test_upstream.py."""

import hashlib
from pathlib import Path


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def reads(prefix: str, folder: str, tokenizer_dir: str, texts: list[str]) -> dict:
    import numpy as np
    from paddlenlp.data.causal_dataset import get_train_valid_test_split_
    from paddlenlp.data.indexed_dataset import make_builder, make_dataset
    from paddlenlp.transformers import AutoTokenizer, LlamaTokenizer

    dataset = make_dataset(prefix, "mmap", skip_warmup=True)
    builder = make_builder(f"{folder}/theirs.bin", "mmap", np.uint16)
    for i in range(len(dataset)):
        builder.add_item(dataset[i])
        builder.end_document()
    builder.finalize(f"{folder}/theirs.idx")
    tokenizer = LlamaTokenizer.from_pretrained(tokenizer_dir)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    return {
        "documents": [dataset[i].tolist() for i in range(len(dataset))],
        "int32": [ids.tolist() for ids in make_dataset(f"{prefix}-int32", "mmap", skip_warmup=True)],
        "boundaries": dataset.doc_idx.tolist(),
        "rewritten": [sha256(f"{folder}/theirs{suffix}") for suffix in (".bin", ".idx")],
        "splits": {
            f"{split} {size}": get_train_valid_test_split_(split, size)
            for split in ("949,50,1", "949/50/1", "8,1,1", "1", "90,10", "1,1,1")
            for size in (1, 2, 3, 10, 452, 99_999)
        },
        "auto": type(AutoTokenizer.from_pretrained(tokenizer_dir)).__name__,
        "special": [tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)],
        "ids": ids,
        "decoded": [tokenizer.decode(i[1:], clean_up_tokenization_spaces=False) for i in ids],
    }
