"""Each fault of Paddle and paddlenlp is still there, and its correction is right: two processes see the same functions
of tests/upstream/faults_ranks.py, one with all corrections and one with none.

A test is named after the file of launch/upstream. Those of the other files are named in test_needed.py.
"""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.encoding import find_template
from launch.models.rotary_scaling import rotary_rows
from launch.rehearsal.materials import documents
from tests.families.published import YARN_WITH_ALL
from tests.families.reference import scaled
from tests.store import ROOT

RANKS = "tests.upstream.faults_ranks"
TEMPLATES = {
    "loop control": "{% for m in messages %}{% break %}{% endfor %}",
    "list": [{"name": "default", "template": "x"}],
    "files": None,  # two, beside tokenizer_config.json
}
LLAMAS_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}
HEAD_SIZE, FLOAT32 = 16, 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Tokenizers with chat templates, and GLM-515M's."""
    root = tmp_path_factory.mktemp("faults")
    save_tokenizer(root / "plain", train_tokenizer(list(documents())[:50], 384))
    for name, template in TEMPLATES.items():
        shutil.copytree(root / "plain", root / name)
        file = root / name / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    (root / "files" / "chat_template.jinja").write_text("{{ messages[0].content }}\n")
    (root / "files" / "chat_template.json").write_text(json.dumps({"conversation": ["Q{{user}}", "A{{bot}}"]}))
    (root / "glm").mkdir()
    (root / "glm" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]))
    (root / "glm" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GLMBertTokenizer"}))
    return root


@pytest.fixture(scope="module")
def seen(ranks, directory) -> SimpleNamespace:
    [corrected] = ranks(1, f"{RANKS}:observe", True, str(directory))
    [stock] = ranks(1, f"{RANKS}:observe", False, str(directory))
    return SimpleNamespace(stock=stock, corrected=corrected)


@pytest.fixture(scope="module")
def sharded(ranks) -> SimpleNamespace:
    corrected, stock = (ranks(2, f"{RANKS}:observe_sharding", corrected) for corrected in (True, False))
    return SimpleNamespace(stock=stock, corrected=corrected)


def test_chat_templates_compiled(seen, directory):
    for name in ("loop control", "list"):
        assert seen.corrected["chat_templates_compiled"][name] == [str(directory / name), TEMPLATES[name]]
        found = seen.stock["chat_templates_compiled"][name]
        assert "TemplateSyntaxError" in found or "Receive error chat_template data" in found


def test_files_of_chat_templates_are_saved_but_for_another_template(seen, directory):
    saved, trained = map(Path, seen.corrected["chat template files"].values())
    source, llama = directory / "files", {"model_type": "llama"}
    for name in ("chat_template.jinja", "chat_template.json"):
        assert (saved / name).read_bytes() == (source / name).read_bytes()
        assert find_template(None, saved, llama).source == find_template(None, source, llama).source
        (saved / name).unlink(), (source / name).unlink()
    assert list(trained.glob("chat_template*")) == []
    assert find_template(None, trained, llama).source == "T"
    lost = Path(seen.stock["chat template files"][""])
    assert not (lost / "chat_template.jinja").exists() and (lost / "tokenizer_config.json").exists()


def test_glm_tokenizers_unknown(seen):
    assert seen.corrected["glm_tokenizers_unknown"] == seen.stock["glm of a recipe"] == "GLMBertTokenizer"
    assert "Tokenizer class GLMBertTokenizer does not exist" in seen.stock["glm_tokenizers_unknown"]


def test_logits_processor_list(seen):
    assert seen.corrected["logits_processor_list"] == ["MinLengthLogitsProcessor", "OwnChoice"]
    assert "'LogitsProcessorList' object is not iterable" in seen.stock["logits_processor_list"]


def test_mixtral_experts(seen):
    found = seen.corrected["mixtral_experts"]
    assert found["difference"] <= 1e-6
    assert (found["logits"], found["one token"]) == ([10, 4], [1, 1, 16])
    first, *others = found["gradients"]
    assert first == [0.0] * 3, "no token was sent to the first expert, which has gradients all the same"
    assert all(sum(one) > 0 for one in others)
    assert "ValueError" in seen.stock["mixtral_experts"]


def test_qwen2_moe_experts(seen):
    assert seen.corrected["qwen2_moe_experts"] == [True] * 6  # a new router sends tokens to all
    assert "x: int64, y: int32" in seen.stock["qwen2_moe losses"]


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe"])
def test_the_auxiliary_loss_is_part_of_training_alone(seen, name):
    found = seen.corrected[f"{name} losses"]
    assert found["balanced"] - found["plain"] == pytest.approx(0.5 * found["auxiliary"], abs=1e-6)
    assert found["auxiliary"] > 1.9  # 2 where all experts have equally many tokens
    assert found["evaluated"] == found["plain"]
    assert found["first"][:2] == [2, 40]  # logits


def test_opt_bfloat16_mask(seen):
    assert max(seen.corrected["opt_bfloat16_mask"].values()) < -3e38
    assert "'NoneType' object has no attribute 'min'" in seen.stock["opt_bfloat16_mask"]


def test_pipeline_gradient_shapes(seen):
    """The gradient is of the oldest micro batch."""
    assert seen.corrected["pipeline_gradient_shapes"] == [[1, length, 2] for length in (5, 3, 4)]
    assert seen.stock["pipeline_gradient_shapes"] == [[1, length, 2] for length in (3, 4, 9)]


def test_newer_models_unknown(seen):
    assert seen.corrected["newer_models_unknown"] == ["Qwen3Config", "Qwen3Model", "Qwen3ForCausalLM"]
    assert "Unable to parse 'architectures'" in seen.stock["newer_models_unknown"]
    shapes = {"q_proj": [64, 64], "k_proj": [64, 32], "o_proj": [64, 64], "q_norm": [16]}
    assert seen.corrected["qwen3 shapes"] == shapes


def test_rotary_tables_of_every_layer(seen):
    frequencies = 3 * 8 * FLOAT32
    found, stock = (one["rotary_tables_of_every_layer"] for one in (seen.corrected, seen.stock))
    assert found == pytest.approx(2 * 1024 * HEAD_SIZE * FLOAT32 + frequencies, abs=1024)
    assert stock == pytest.approx(3 * 2 * 131072 * HEAD_SIZE * FLOAT32, rel=0.001)


def test_shared_rotary_tables_are_upstreams_to_the_bit(seen):
    """Also those of a layer that is cast once it is made, of one beside it, and of one made before the correction."""
    for name, stock in seen.stock["rotary tables"].items():
        found = seen.corrected["rotary tables"][name]
        for dtype in ("float32", "bfloat16"):
            assert found[dtype] == stock[dtype], (name, dtype)
        assert found["cast"] == stock["cast"] and found["cast back"] == [stock["cast"][0]] * 2, name
        assert seen.corrected["made before"][name] == seen.stock["made before"][name]
    rows = [1024, 2048, 2048, 2048]  # of 7, 1,030, 5 and 2,048 positions
    assert seen.corrected["rotary rows"] == dict.fromkeys(seen.stock["rotary tables"], [True, rows])


def test_rotary_tables_end_where_upstreams_end(seen):
    """They are computed once all the same."""
    ends = {"llama": [[1, 2048, 1, HEAD_SIZE], 1], "qwen2": [[1, 2049, 1, HEAD_SIZE], 1]}
    assert seen.corrected["rotary beyond the end"] == ends


def test_rotary_rows_are_rounded_up_within_the_model():
    assert [rotary_rows(length, 4096) for length in (1, 1024, 1025, 4096, 5000)] == [1024, 1024, 2048, 4096, 4096]
    assert rotary_rows(40, 128) == 128


def positions(block: dict, size: int, theta: float, length: int) -> np.ndarray:
    """[2, length, size]: cosines and sines."""
    frequencies, factor = scaled({"rope_scaling": block}, size, theta, length)
    angles = np.tile(np.arange(length)[:, None] * frequencies, 2)
    return factor * np.stack([np.cos(angles), np.sin(angles)])


def test_scaled_positions_ignored(seen):
    """A model that is rounded to bfloat16 once it is made computes them as exactly."""
    assert seen.corrected["scaled_positions_ignored"].keys() == {"llama", "qwen2", "qwen3"}
    for name, found in seen.corrected["scaled_positions_ignored"].items():
        expected = positions(YARN_WITH_ALL, found["size"], found["theta"], 30)
        for when in ("tables", "after a cast"):
            assert np.abs(np.array(found[when]) - expected).max() <= 1e-6, (name, when)
        assert found["shared"] and found["rows"] == 64 and found["buffers"] == [], name
    for name, found in seen.stock["scaled_positions_ignored"].items():
        plain = positions({}, found["size"], found["theta"], 30)
        assert np.abs(np.array(found["tables"]) - plain).max() <= 1e-5, name
    for length, tables in seen.corrected["dynamic positions"]:  # one layer follows each length, and goes back
        assert np.abs(np.array(tables) - positions(LLAMAS_DYNAMIC, 16, 10000.0, length)).max() <= 1e-6


def test_scaled_positions_hold_in_packed_rows_and_answers(seen):
    found = seen.corrected["scaled packed"]
    assert found["apart"] <= 2e-6
    assert (found["changed"] > 1e-4, found["leaked"]) == (True, 0)
    # A row whose length scales its positions has one request. Answers with dynamic ones need not be those without a
    # cache: keys stay as they were turned when they came, as in transformers.
    assert seen.corrected["scaled prefixes"] == [True, False]
    for name, (answers, without_cache) in seen.corrected["scaled answers"].items():
        assert answers == without_cache, name


def test_special_ids_of_every_token(seen):
    """Upstream looks them up for every token: seven, of which three are special and so decoded no further."""
    found, stock = (one["special_ids_of_every_token"] for one in (seen.corrected, seen.stock))
    assert found["text"] == found["again"] and (found["calls"], stock["calls"]) == (1, 2 * (7 + 4))
    assert -1 not in found["before"] and len(found["after"]) == len(found["before"]) + 1
    assert found["changed"] == len(found["after"]) + 1
    assert stock | {"calls": 1} == found


def test_stage1_frozen_parameters(sharded):
    """They have no gradient beside adapters; upstream makes zeros. 1.5 is the mean of 1 and 2."""
    found, stock = ([one["stage1_frozen_parameters"] for one in both] for both in (sharded.corrected, sharded.stock))
    assert [frozen for frozen, _ in found] == [None, None]
    assert 1.5 in [trained for _, trained in found], "on the rank that updates the weight"
    assert [frozen for frozen, _ in stock] == [0.0, 0.0]


def test_stage3_weight_decay(sharded):
    """1 - 0.5 x 0.2 where the sliced weight decays; the bias, which is not said to decay, stays."""
    for both, weight in ((sharded.corrected, 0.9), (sharded.stock, 1.0)):
        for found in (one["stage3_weight_decay"] for one in both):
            assert (found["sliced"], found["bias"]) == ([True, False], [1.0] * 4)
            assert np.ravel(found["weight"]) == pytest.approx([weight] * 16, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("corrections", "exit_code"), [([], -signal.SIGABRT), (["store_aborts_at_exit"], 0)])
def test_store_aborts_at_exit(corrections, exit_code):
    """Where another rank leaves after this one's destructors."""
    command = [sys.executable, "-m", "tests.upstream.exiting_store", *corrections]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n" and done.returncode == exit_code, done.stderr[-2000:]
