"""Tiny Hugging Face directories of ChatGLM-6B, GLM and OPT with tokenizers in the published form, for
test_imported_families.py."""

import json
import math
from itertools import islice
from pathlib import Path

from data_tools.tokenizer import train_tokenizer
from launch.rehearsal.materials import documents
from tests.families import published as models
from tests.weights.test_tokenizer import make_byte_level

PIECES = 320
CHATGLM_SYMBOLS = ("<n>", "<pad>", "[MASK]", "[gMASK]", "<sop>", "<eop>")  # pieces of ice_text.model, from id 4 on
GLM_ADDED = (  # in the order in which added_tokens.json of glm-10b-chinese has them behind the pieces
    *("<|endoftext|>", "[SEP]", "[CLS]", "[MASK]", "[UNUSED1]", "[UNUSED2]"),
    *("<|startofpiece|>", "<|endofpiece|>", "[sMASK]", "[gMASK]"),
)
LENGTH = 256
WITHOUT_DROPOUT = dict.fromkeys(("embedding_dropout_prob", "attention_dropout_prob", "output_dropout_prob"), 0.0)


def make(root: Path) -> dict[str, Path]:
    """By family: root/chatglm, root/glm, root/opt."""
    return {"chatglm": _chatglm(root / "chatglm"), "glm": _glm(root / "glm"), "opt": _opt(root / "opt")}


def _chatglm(directory: Path) -> Path:
    ids = {name: 4 + CHATGLM_SYMBOLS.index(token) for name, token in [("bos", "<sop>"), ("eos", "<eop>")]}
    tokens = {f"{name}_token_id": number for name, number in ids.items()}
    tokens |= {"gmask_token_id": 7, "mask_token_id": 6, "pad_token_id": 5}
    models.save(directory, *models.chatglm(vocab_size=PIECES, max_sequence_length=LENGTH, **tokens))
    pieces = train_tokenizer(islice(documents(), 50), PIECES, symbols=CHATGLM_SYMBOLS)
    (directory / "ice_text.model").write_bytes(pieces)
    return _configured(
        directory,
        tokenizer_class="ChatGLMTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_chatglm.ChatGLMTokenizer", None]},
        bos_token="<sop>",
        eos_token="<eop>",
        end_token="</s>",
        gmask_token="[gMASK]",
        mask_token="[MASK]",
        pad_token="<pad>",
        unk_token="<unk>",
        num_image_tokens=0,
    )


def _glm(directory: Path) -> Path:
    size = PIECES + len(GLM_ADDED)
    models.save(directory, *models.glm(vocab_size=size, max_sequence_length=LENGTH, **WITHOUT_DROPOUT))
    (directory / "cog-pretrain.model").write_bytes(train_tokenizer(islice(documents(), 50), PIECES))
    added = {token: PIECES + number for number, token in enumerate(GLM_ADDED)}
    (directory / "added_tokens.json").write_text(json.dumps(added))
    return _configured(
        directory,
        tokenizer_class="GLMChineseTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_glm.GLMChineseTokenizer", None]},
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        cls_token="[CLS]",
        mask_token="[MASK]",
        unk_token="[UNK]",
        additional_special_tokens=["<|startofpiece|>", "<|endofpiece|>", "[gMASK]", "[sMASK]"],
    )


def _opt(directory: Path) -> Path:
    """Its tokenizer puts <s>, id 0, before each text; </s> is 1."""
    tokenizer, tokens = make_byte_level(), {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
    size = 2 * math.ceil(tokenizer.get_vocab_size() / 2)  # for two ranks
    models.save(directory, *models.opt(vocab_size=size, max_position_embeddings=LENGTH, dropout=0.0, **tokens))
    tokenizer.save(str(directory / "tokenizer.json"))
    return _configured(directory, tokenizer_class="GPT2Tokenizer", bos_token="<s>", eos_token="</s>")


def _configured(directory: Path, **values) -> Path:
    (directory / "tokenizer_config.json").write_text(json.dumps(values))
    return directory
