"""transformers and PEFT run what was exported as we run it, and what they save is imported again. Needs `make
test-long`'s packages."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.registry import FAMILIES, their_name
from launch.weights.model_directories import export_directory, import_directory
from launch.weights.peft import export_adapter
from launch.weights.tokenizer import export_tokenizer
from tests.families import published as models
from tests.store import ROOT
from tests.weights.test_tokenizer import CORPUS

NEW_TOKENS = 8
TEXTS = ["def total(numbers):\n    return sum", "Grüße, fox", "  two  spaces", "\u4f60\u597d"]
TOLERANCE = 1e-5
CORE = ["llama", "qwen2-moe", "bloom", "opt"]  # those that reference.py lacks, and LLaMA; the others every night
OTHERS = [name for name in models.IN_TRANSFORMERS if name not in CORE]
groups = pytest.mark.parametrize(
    "group",
    [
        pytest.param(CORE, id="core", marks=pytest.mark.long),
        pytest.param(OTHERS, id="others", marks=pytest.mark.nightly),
    ],
    scope="module",
)


@pytest.fixture(scope="module")
def exported(ranks, tmp_path_factory, group) -> Path:
    """A folder with each model as published in hf, as imported in ours, as exported in out; beside these what we and
    they find (export_ranks.py, exported_in_transformers.py); what transformers saves is out/NAME-saved."""
    root = tmp_path_factory.mktemp("export")
    np.save(root / "ids.npy", np.random.default_rng(2).integers(4, models.VOCABULARY, size=(2, 12)))
    for name in group:
        import_directory(
            models.save(root / "hf" / name, *models.IN_TRANSFORMERS[name]()), root / "ours" / name, None, 10**9
        )
    job = {
        "ids": str(root / "ids.npy"),
        "new_tokens": NEW_TOKENS,
        "models": list(group),
        "adapters": [name for name in group if name in models.WITH_ADAPTER],
        "trained": [name for name in group if name in models.WITH_GRADIENTS],
        "bin": [name for name in group if name in models.SAVED_AS_BIN],
        "texts": TEXTS,
        "tokenizers": ["llama"] if "llama" in group else [],
    }
    ranks(1, "tests.weights.export_ranks:run", job, str(root / "ours"))
    for name in group:
        export_directory(root / "ours" / name, root / "out" / name, None, 30_000)
    for name in job["adapters"]:
        export_adapter(root / "ours" / f"{name}-lora", root / "ours" / name, root / "out" / f"{name}-lora")
    for name in job["tokenizers"]:
        save_tokenizer(root / "ours" / name, train_tokenizer(CORPUS, 330))
        export_tokenizer(root / "ours" / name, root / "out" / name, FAMILIES[name])
    (root / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-W", "ignore", "-m", "tests.weights.exported_in_transformers", str(root)]
    subprocess.run(command, cwd=ROOT, check=True)
    return root


@groups
def test_logits_and_greedy_continuations(exported, group):
    with_adapter = [name for name in group if name in models.WITH_ADAPTER]
    for name in [*group, *(f"{name}-lora" for name in with_adapter)]:
        ours, theirs = np.load(exported / f"ours/{name}.logits.npy"), np.load(exported / f"out/{name}.logits.npy")
        assert ours.std() > 0.1, name
        assert np.abs(ours - theirs).max() <= TOLERANCE * max(1.0, np.abs(ours).max()), name
        greedy = [np.load(exported / f"{side}/{name}.greedy.npy") for side in ("ours", "out")]
        assert np.array_equal(*greedy), name
    for name in with_adapter:
        base, adapted = (np.load(exported / "out" / f"{one}.logits.npy") for one in (name, f"{name}-lora"))
        assert np.abs(base - adapted).max() > 0.05, name


@groups
def test_what_transformers_saves_is_imported_as_the_same_model(exported, group, tmp_path):
    """In parts, and some by torch.save."""
    for name in group:
        import_directory(exported / "out" / f"{name}-saved", tmp_path / name, None, 10**9)
        ours, again = (load_file(folder / name / "model.safetensors") for folder in (exported / "ours", tmp_path))
        assert ours.keys() == again.keys(), name
        assert all(ours[one].tobytes() == again[one].tobytes() for one in ours), name


@groups
def test_training_with_the_auxiliary_loss(exported, group):
    """The loss, of mixtures of experts with theirs, and the norm of each gradient."""
    trained = [name for name in group if name in models.WITH_GRADIENTS]
    assert trained
    for name in trained:
        ours, theirs = (json.loads((exported / side / f"{name}.training.json").read_text()) for side in ("ours", "out"))
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=TOLERANCE), name
        assert theirs["auxiliary"] > 1.9 or name not in models.MIXTURES, name
        found = {their_name(one, ours["family"]): norm for one, norm in ours["gradients"].items()}
        assert found.keys() == theirs["gradients"].keys(), name
        for tensor, norm in theirs["gradients"].items():
            assert found[tensor] == pytest.approx(norm, rel=1e-4, abs=1e-6), (name, tensor)


@pytest.mark.long
@pytest.mark.parametrize("group", [CORE], ids=["core"], scope="module")
def test_a_sentencepiece_tokenizer_gives_its_ids_and_comes_back(ranks, exported, group, tmp_path):
    model = str(exported / "out" / "llama" / "tokenizer.model")
    expected = [sentencepiece.SentencePieceProcessor(model_file=model).encode(text) for text in TEXTS]
    assert json.loads((exported / "out" / "llama.ids.json").read_text()) == expected
    again = str(tmp_path / "again")
    import_directory(exported / "out" / "llama-saved", Path(again), None, 10**9)
    [found] = ranks(1, "tests.weights.tokenizer_ranks:encode", [again], TEXTS)
    assert [ids[-len(one) :] for ids, one in zip(found[again]["ids"], expected, strict=True)] == expected
