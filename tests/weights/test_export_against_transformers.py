"""transformers and PEFT run what was exported as we run it. Needs `make test-long`'s packages."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.families.registry import FAMILIES
from launch.weights.model_directories import export_directory, import_directory
from launch.weights.peft import export_adapter
from launch.weights.tokenizer import export_tokenizer
from tests.families import published as models
from tests.families.published import EXPORTED_WITH_ADAPTER as WITH_ADAPTER
from tests.weights.test_tokenizer import CORPUS

pytestmark = pytest.mark.long

NEW_TOKENS = 8
TEXTS = ["def total(numbers):\n    return sum", "Grüße, fox", "  two  spaces", "\u4f60\u597d"]
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
LORA = [f"{name}-lora" for name in WITH_ADAPTER]


@pytest.fixture(scope="module")
def exported(ranks, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("export")
    np.save(root / "ids.npy", np.random.default_rng(2).integers(4, models.VOCABULARY, size=(2, 12)))
    for name, make in models.EXPORTED.items():
        import_directory(models.save(root / "hf" / name, *make()), root / "ours" / name, None, 10**9)
    adapters = [[str(root / "ours" / name), str(root / "ours" / f"{name}-lora")] for name in WITH_ADAPTER]
    ranks(
        1,
        "tests.weights.export_ranks:run",
        [str(root / "ours" / name) for name in models.EXPORTED],
        adapters,
        str(root / "ids.npy"),
        NEW_TOKENS,
    )
    for name in models.EXPORTED:
        export_directory(root / "ours" / name, root / "out" / name, None, 30_000)
    for base, adapter in adapters:
        export_adapter(Path(adapter), Path(base), root / "out" / Path(adapter).name)
    save_tokenizer(root / "ours" / "llama", train_tokenizer(CORPUS, 330))
    export_tokenizer(root / "ours" / "llama", root / "out" / "llama", FAMILIES["llama"])
    job = {
        "ids": str(root / "ids.npy"),
        "new_tokens": NEW_TOKENS,
        "models": [str(root / "out" / name) for name in models.EXPORTED],
        "adapters": [[str(root / "out" / name), str(root / "out" / f"{name}-lora")] for name in WITH_ADAPTER],
        "texts": TEXTS,
        "tokenizers": [str(root / "out" / "llama")],
    }
    (root / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-W", "ignore", "-m", "tests.weights.exported_in_transformers", str(root / "job.json")]
    subprocess.run(command, cwd=ROOT, check=True)
    return root


@pytest.mark.parametrize("name", [*models.EXPORTED, *LORA])
def test_logits_and_greedy_continuations(exported, name):
    ours, theirs = np.load(exported / "ours" / f"{name}.ours.npy"), np.load(exported / "out" / f"{name}.theirs.npy")
    assert ours.std() > 0.1
    assert np.abs(ours - theirs).max() <= TOLERANCE * max(1.0, np.abs(ours).max())
    greedy = np.load(exported / "ours" / f"{name}.ours_greedy.npy")
    assert np.array_equal(greedy, np.load(exported / "out" / f"{name}.greedy.npy"))


@pytest.mark.parametrize("name", WITH_ADAPTER)
def test_the_adapter_changes_what_the_model_says(exported, name):
    base, adapted = (np.load(exported / "out" / f"{one}.theirs.npy") for one in (name, f"{name}-lora"))
    assert np.abs(base - adapted).max() > 0.05


def test_a_sentencepiece_tokenizer_gives_its_ids(exported):
    model = str(exported / "out" / "llama" / "tokenizer.model")
    expected = [sentencepiece.SentencePieceProcessor(model_file=model).encode(text) for text in TEXTS]
    assert json.loads((exported / "out" / "llama.ids.json").read_text()) == expected
