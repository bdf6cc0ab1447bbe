"""An imported tokenizer gives, in PaddleNLP, the ids of the library that it comes from, special tokens included."""

import io
import json
import random
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from data_tools.text.encoders import SentencePieceEncoder, load_encoder
from data_tools.tokenizer import train_tokenizer
from launch.errors import UserError
from launch.families.registry import FAMILIES
from launch.rehearsal.materials import documents
from launch.weights.sentencepiece_json import probes, write_json
from launch.weights.tokenizer import export_tokenizer, import_tokenizer

CORPUS = ["def total(numbers):\n    return sum(numbers)", "Ein Satz, dann noch einer.", "the quick brown fox"] * 30
TEXTS = ["def fox(numbers):\n    return total", "Grüße:<|user|>brown fox<|end|>one", "  two  spaces", "soppy people"]
SPECIAL = ["<s>", "</s>", "<|user|>", "<|end|>"]


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    return make_byte_level()


def make_byte_level() -> Tokenizer:
    """As LLaMA-3, Qwen2 and Bloom have it, with bos put before each text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[bos])
    return tokenizer


@pytest.fixture(scope="module")
def pieces() -> bytes:
    return train_tokenizer(CORPUS, 330)


def config(tokenizer_class: str, added: dict[str, int], **more) -> dict:
    """A tokenizer_config.json as transformers writes it."""
    decoder = {str(number): {"content": token, "special": True} for token, number in added.items()}
    return {"tokenizer_class": tokenizer_class, "added_tokens_decoder": decoder, **more}


@pytest.fixture(scope="module")
def sources(tmp_path_factory, byte_level, pieces) -> dict[str, tuple[Path, str]]:
    """name: (directory, family)"""
    root = tmp_path_factory.mktemp("tokenizers")
    added = {token: byte_level.token_to_id(token) for token in SPECIAL}
    for name in ("llama3", "qwen2", "bloom"):
        (root / name).mkdir()
        byte_level.save(str(root / name / "tokenizer.json"))
        values = config("PreTrainedTokenizerFast", added, bos_token="<s>", eos_token="</s>")
        (root / name / "tokenizer_config.json").write_text(json.dumps(values))
    (root / "opt").mkdir()
    byte_level.model.save(str(root / "opt"))
    named = {"bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "</s>", "unk_token": "<|end|>"}
    values = named | {"pad_token": "<|user|>", "add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"}
    (root / "opt" / "tokenizer_config.json").write_text(json.dumps(values))
    for name, file in (("llama", "tokenizer.model"), ("chatglm2", "tokenizer.model")):
        (root / name).mkdir()
        (root / name / file).write_bytes(pieces)
    added = {"<unk>": 0, "<s>": 1, "</s>": 2, "<|user|>": 330, "<|end|>": 331}
    values = config("LlamaTokenizerFast", added, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    (root / "llama" / "tokenizer_config.json").write_text(json.dumps(values))
    values = {"tokenizer_class": "ChatGLMTokenizer", "auto_map": {"AutoTokenizer": ["somewhere.Else", None]}}
    (root / "chatglm2" / "tokenizer_config.json").write_text(json.dumps(values))
    families = {"llama3": "llama", "chatglm2": "chatglm_v2"}
    names = ("llama3", "qwen2", "bloom", "opt", "llama", "chatglm2")
    return {name: (root / name, families.get(name, name)) for name in names}


@pytest.fixture(scope="module")
def targets(sources, tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("ours")
    for name, (source, family) in sources.items():
        (root / name).mkdir()
        import_tokenizer(source, root / name, FAMILIES[family])
    return {name: root / name for name in sources}


@pytest.fixture(scope="module")
def found(ranks, targets) -> dict[str, dict]:
    (results,) = ranks(1, "tests.weights.tokenizer_ranks:encode", [str(target) for target in targets.values()], TEXTS)
    return {name: results[str(target)] for name, target in targets.items()}


@pytest.mark.parametrize("name", ["llama3", "qwen2", "bloom", "opt"])
def test_byte_level_tokenizers(found, byte_level, name):
    expected = [byte_level.encode(text).ids for text in TEXTS]
    assert found[name]["class"] == "PretrainedTokenizerFast"
    assert found[name]["ids"] == expected
    assert (found[name]["bos"], found[name]["eos"]) == (0, 1)
    assert found[name]["texts"] == [byte_level.decode(ids) for ids in expected]


def test_sentencepiece_with_added_tokens(found, pieces):
    model = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    first, middle, last = (model.encode(part) for part in re.split(r"<\|user\|>|<\|end\|>", TEXTS[1]))
    assert found["llama"]["class"] == "LlamaTokenizer"
    assert found["llama"]["ids"] == [
        [1, *model.encode(TEXTS[0])],
        [1, *first, 330, *middle, 331, *last],
        *([1, *model.encode(text)] for text in TEXTS[2:]),
    ]
    assert found["llama"]["eos"] == 2


@pytest.mark.parametrize("legacy", [None, True, False])
def test_an_exported_sentencepiece_model_has_a_tokenizer_json_of_the_same_ids(targets, pieces, tmp_path, legacy):
    source, target = shutil.copytree(targets["llama"], tmp_path / "ours"), tmp_path / "theirs"
    target.mkdir()
    values = json.loads((source / "tokenizer_config.json").read_text()) | {"legacy": legacy}
    (source / "tokenizer_config.json").write_text(json.dumps(values))
    line = export_tokenizer(source, target, FAMILIES["llama"])
    assert line == "tokenizer: tokenizer.model (sentencepiece) and tokenizer.json, for LlamaTokenizer"
    model, fast = (
        sentencepiece.SentencePieceProcessor(model_proto=pieces),
        Tokenizer.from_file(f"{target}/tokenizer.json"),
    )
    draw = random.Random(legacy)
    letters = [*"abcdefghijklmnop    \n\t.,_", *(chr(draw.randrange(32, 0xD7FF)) for _ in range(50)), "\U0001f99c"]
    for _ in range(1000):
        text = "".join(draw.choices(letters, k=draw.randrange(1, 60)))
        assert fast.encode(text, add_special_tokens=False).ids == model.encode(text), text
        assert fast.decode(model.encode(text)) == text
    encoder = load_encoder(source)
    for text in TEXTS:
        assert fast.encode(text, add_special_tokens=False).ids == encoder.encode_chat(text), text


def test_numbers_of_qwen_are_split_by_digits_where_its_files_are_vocabulary_and_merges(byte_level, tmp_path):
    byte_level.model.save(str(tmp_path))
    end = len(json.loads((tmp_path / "vocab.json").read_text()))
    values = config("Qwen2Tokenizer", {"<|im_end|>": end}, eos_token="<|im_end|>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    for family in ("qwen2", "qwen3", "llama"):
        (tmp_path / family).mkdir()
        import_tokenizer(tmp_path, tmp_path / family, FAMILIES[family])
        made = Tokenizer.from_file(f"{tmp_path}/{family}/tokenizer.json")
        words = [text for text, _ in made.pre_tokenizer.pre_tokenize_str("in 2024\n\n")]
        assert words == (["in", "Ġ2024", "ĊĊ"] if family == "llama" else ["in", "Ġ", *"2024", "ĊĊ"])
        assert made.encode("e\u0301<|im_end|>").ids[-1] == end
    values = config("Qwen2Tokenizer", {"<|im_end|>": end + 1}, eos_token="<|im_end|>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=f"found {end + 1} for '<.im_end.>', expected {end}, the next id behind"):
        import_tokenizer(tmp_path, tmp_path / "qwen2", FAMILIES["qwen2"])


TRANSFORMERS_ALONE = """
import json, sys
sys.modules |= {"sentencepiece": None, "google.protobuf": None}  # as where they are not installed
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([tokenizer(text, add_special_tokens=False)["input_ids"] for text in json.loads(sys.argv[2])]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_transformers_loads_it_without_sentencepiece(targets, tmp_path, kind):
    source = shutil.copytree(targets["llama"], tmp_path / "ours")
    if kind == "unigram":
        (source / "added_tokens.json").unlink()
        (source / "tokenizer_config.json").write_text(json.dumps({"unk_token": "<unk>"}))
        (source / "sentencepiece.bpe.model").write_bytes(made(model_type="unigram"))
    (tmp_path := tmp_path / "theirs").mkdir()
    export_tokenizer(source, tmp_path, FAMILIES["llama"])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    texts = [*TEXTS, *probes(sentencepiece.SentencePieceProcessor(f"{tmp_path}/tokenizer.model"))]
    command = [sys.executable, "-c", TRANSFORMERS_ALONE, str(tmp_path), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    encoder = load_encoder(source)
    assert json.loads(done.stdout) == [encoder.encode_chat(text) for text in texts]


def made(**flags) -> bytes:
    """A sentencepiece model of 350 pieces, or fewer."""
    model = io.BytesIO()
    flags |= {"vocab_size": 350, "hard_vocab_limit": False, "minloglevel": 9}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=islice(documents(), 200), model_writer=model, **flags)
    return model.getvalue()


@pytest.mark.parametrize(
    "flags",
    [
        {"model_type": "unigram"},  # normalized by nmt_nfkc, spaces removed: sentencepiece's own choice
        {"model_type": "unigram", "normalization_rule_name": "nfkc", "byte_fallback": True},
        {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False},
        {
            "model_type": "bpe",
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "legacy": False,
        },
    ],
    ids=lambda flags: "-".join(map(str, flags.values())),
)
def test_unigrams_and_normalized_texts_have_the_same_ids_in_a_tokenizer_json(tmp_path, flags):
    """On 1,000 texts that the check of the export has not seen."""
    legacy = flags.get("legacy", True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy}))
    path = tmp_path / "tokenizer.model"
    path.write_bytes(made(**{key: value for key, value in flags.items() if key != "legacy"}))
    assert write_json(path, tmp_path / "tokenizer.json", {}, each_begins=legacy)
    encoder = SentencePieceEncoder(path)
    fast, draw = Tokenizer.from_file(f"{tmp_path}/tokenizer.json"), random.Random(7)
    words = " ".join(islice(documents(), 20)).split(" ")
    words += [
        *" \t\r\n",
        "\r\n",
        "\uff26",
        "\ufb01",
        "\u00e9",
        "e\u0301",
        "\u2163",
        "\u6c49\u5b57",
        "\U0001f99c",
        "\u2460",
        "A\u0301",
        "\u304b\u3099",
        "\uff8a\uff9f",
        "\u1112\u1161\u11ab",
        "\u3000",
    ]
    for _ in range(1000):
        text = draw.choice(("", " ")).join(draw.choices(words, k=draw.randrange(1, 30)))
        assert fast.encode(text, add_special_tokens=False).ids == encoder.encode_chat(text), text
    assert fast.encode("\x01", add_special_tokens=False).ids == encoder.encode_chat("\x01")


def test_a_model_that_tokenizers_cannot_be_has_no_tokenizer_json(tmp_path):
    """Of words or characters."""
    for name, flags in (
        ("words", {"model_type": "word"}),
        ("characters", {"model_type": "char"}),
    ):
        source, target = tmp_path / f"{name}-ours", tmp_path / f"{name}-theirs"
        for folder in (source, target):
            folder.mkdir()
        (source / "sentencepiece.bpe.model").write_bytes(made(**flags))
        assert export_tokenizer(source, target, FAMILIES["llama"]) == (
            "tokenizer: tokenizer.model (sentencepiece); no tokenizer.json, whose ids would differ, for LlamaTokenizer"
        )
        assert not (target / "tokenizer.json").exists()


def test_a_tokenizer_json_is_taken_before_a_sentencepiece_model(sources, tmp_path):
    shutil.copytree(sources["llama"][0], tmp_path / "both")
    shutil.copyfile(sources["llama3"][0] / "tokenizer.json", tmp_path / "both" / "tokenizer.json")
    (tmp_path / "ours").mkdir()
    line = import_tokenizer(tmp_path / "both", tmp_path / "ours", FAMILIES["llama"])
    assert line == "tokenizer: tokenizer.json, for PretrainedTokenizerFast"
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


def test_chatglm2_puts_its_marks_before_the_text(found, pieces):
    model = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    gmask, sop = 331, 333  # [MASK], [gMASK], [sMASK], sop, eop follow the pieces
    assert found["chatglm2"]["class"] == "ChatGLMv2Tokenizer"
    plain = [0, 2, 3]  # one has marks of roles
    assert [found["chatglm2"]["ids"][i] for i in plain] == [[gmask, sop, *model.encode(TEXTS[i])] for i in plain]


def test_a_chat_template_of_its_own_file_comes_along(ranks, sources, tmp_path):
    source, family = sources["llama3"]
    (source / "chat_template.jinja").write_text("{% for m in messages %}Q: {{ m['content'] }} A:{% endfor %}")
    import_tokenizer(source, tmp_path, FAMILIES[family])
    assert ranks(1, "tests.weights.tokenizer_ranks:chat", str(tmp_path), "why?") == ["Q: why? A:"]


def test_a_chat_template_of_transformers_json_comes_along_and_goes_back(sources, tmp_path):
    source = shutil.copytree(sources["llama3"][0], tmp_path / "theirs", ignore=shutil.ignore_patterns("*.jinja"))
    (source / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    for name in ("ours", "again"):
        (tmp_path / name).mkdir()
    import_tokenizer(source, tmp_path / "ours", FAMILIES["llama"])
    assert json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())["chat_template"] == "{{ messages }}"
    export_tokenizer(tmp_path / "ours", tmp_path / "again", FAMILIES["llama"])
    assert json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())["chat_template"] == "{{ messages }}"


def test_no_files_of_a_tokenizer_are_said(tmp_path):
    (tmp_path / "ours").mkdir()
    assert import_tokenizer(tmp_path, tmp_path / "ours", FAMILIES["qwen2"]) == "tokenizer: no files of one"
    assert list((tmp_path / "ours").iterdir()) == []


def test_code_that_a_file_names_is_not_handed_on(targets):
    assert "auto_map" not in json.loads((targets["chatglm2"] / "tokenizer_config.json").read_text())
