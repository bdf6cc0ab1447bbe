"""Every command of docs/finetune.md, in its order, in a folder that looks like the repository."""

import json
import re
import shutil
from itertools import islice

import pytest

from data_tools.tokenizer import MODEL_NAME, save_tokenizer, train_tokenizer
from launch.rehearsal.materials import documents
from tests.families import published as models
from tests.repository_folder import ROOT, bash, link_repository

PAGE = (ROOT / "docs" / "finetune.md").read_text(encoding="utf-8")
RUN = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
ON_CARDS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
SIZES = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = link_repository(tmp_path_factory.mktemp("repository"))
    theirs = models.save(folder / "my-hf-model", *models.llama(**SIZES, max_position_embeddings=256))
    letters = ["What is the capital of How many legs has colour? Paris. Tokyo. White. Eight."] * 3
    save_tokenizer(theirs, train_tokenizer([*islice(documents(), 50), *letters], SIZES["vocab_size"]))
    (theirs / MODEL_NAME).rename(theirs / "tokenizer.model")
    return folder


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_page_from_top_to_bottom(folder):
    said = [bash(block, folder) for block in RUN]
    assert len(said) == 6
    data, imported, trained, asked, _, merged = said
    assert "LLaMA 1, 2, 3; Baichuan-7B" in imported
    assert re.search(r"eval at step 80 .* BLEU .* ROUGE-L 100\.0 ", trained)
    answers = asked.splitlines()
    assert answers[0] == "Paris." and answers[-1] == "Tokyo."
    rows = [json.loads(line) for line in (folder / "answers.json").read_text().splitlines()]
    assert len(rows) == 4 and all(row["prediction"] == row["tgt"] for row in rows)
    assert merged.count("largest difference of logits") == 3
    assert "Eight." in merged.splitlines()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_commands_for_cards_name_recipes_that_take_these_variables(folder):
    (folder / "mydata").mkdir(exist_ok=True)
    lines = [line for block in ON_CARDS for line in block.splitlines() if line.startswith("make ")]
    assert len(lines) == 6
    for line in lines:
        printed = bash(line.replace("make ", "make print-", 1), folder)
        for value in ("models/mine", "mydata", re.search(r"OUTPUT=(\S+)", line)[1]):
            assert value in printed, line
