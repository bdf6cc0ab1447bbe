"""The tokenizer of a model directory of ours as transformers loads it, with the same ids: tokenizer.py backwards."""

import json
import shutil
from pathlib import Path

from data_tools.formats.dialogues.chat_template import JINJA_FILE, JSON_FILE, directory_template
from data_tools.formats.json_files import read_object
from launch.families.registry import Family
from launch.weights.tokenizer import (
    ADDED,
    CONFIG,
    FAST,
    GLM_FILES,
    JSON,
    MERGES,
    SENTENCEPIECE,
    SPECIAL,
    VOCABULARY,
    copy,
)

# The classes that go with a sentencepiece model; all but LLaMA's come as code beside the original weights.
CLASSES = {
    "llama": "LlamaTokenizer",
    "baichuan": "BaichuanTokenizer",
    "chatglm": "ChatGLMTokenizer",
    "chatglm_v2": "ChatGLMTokenizer",
}
# What both sides know in tokenizer_config.json.
KEPT = (
    *("bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens", "added_tokens_decoder"),
    *("add_bos_token", "add_eos_token", "add_prefix_space", "clean_up_tokenization_spaces", "legacy"),
    *("model_max_length", "padding_side", "chat_template", "do_lower_case"),
)


def export_tokenizer(source: Path, target: Path, family: Family) -> str:
    """Write the tokenizer of `source` into `target`; one line that says what it is, or that there is none."""
    config = read_object(source / CONFIG)
    theirs, ours = SENTENCEPIECE.get(family.name, ("", ""))
    values = {key: config[key] for key in KEPT if config.get(key) is not None}
    if any((source / name).is_file() for name in (JINJA_FILE, JSON_FILE)):
        values["chat_template"] = directory_template(source).source
    if (source / JSON).is_file():
        shutil.copyfile(source / JSON, target / JSON)
        kind, line = {"tokenizer_class": FAST.replace("Pretrained", "PreTrained")}, JSON
    elif ours and (source / ours).is_file():
        shutil.copyfile(source / ours, target / theirs)
        kind, line = _sentencepiece_class(family), f"{theirs} (sentencepiece)"
    elif family.name == "glm" and config:
        for name in GLM_FILES:
            copy(source, target, name)
        kind, line = {"tokenizer_class": config["tokenizer_class"]}, config["tokenizer_class"]
    elif (source / VOCABULARY).is_file() and (source / MERGES).is_file():
        for name in (VOCABULARY, MERGES):
            copy(source, target, name)
        name = "Qwen2Tokenizer" if family.name == "qwen2" else "GPT2Tokenizer"
        kind, line = {"tokenizer_class": name}, f"{VOCABULARY} and {MERGES}"
    else:
        return "tokenizer: no files of one"
    for name in (SPECIAL, ADDED, JINJA_FILE):
        copy(source, target, name)
    text = json.dumps(values | kind, indent=2, ensure_ascii=False)
    (target / CONFIG).write_text(text + "\n", encoding="utf-8")
    return f"tokenizer: {line}, for {kind['tokenizer_class']}"


def _sentencepiece_class(family: Family) -> dict:
    name = CLASSES[family.name]
    if family.name == "llama":
        return {"tokenizer_class": name}
    module = f"tokenization_{family.name.removesuffix('_v2')}"
    return {"tokenizer_class": name, "auto_map": {"AutoTokenizer": [f"{module}.{name}", None]}}
