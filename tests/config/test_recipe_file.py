"""What the reader of recipe files reads, and what it refuses with file and line."""

from pathlib import Path

import pytest

from launch.config.recipe_file import Recipe, load_recipes, recipe_paths
from launch.config.variables import apply_variables
from launch.errors import UserError
from tests.store import ROOT

FORM = """\
#!/usr/bin/env bash
# LLaMA-7B pretraining
# on eight cards.
# Target     another-name
# Alias      older-name
# Memory of  each card
#            80 GB
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

# comments are read over
run launch/run_pretrain.py \\
    --fp16 1 --scale_loss 1024 \\
    --sharding "stage2 offload" \\
    --split='949,50,1' --do_train \\
    --lora_target_modules '.*q_proj.*' a"b c"d \\
    "$@"
"""


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "llama-7b" / "pretrain.sh"


def load(path: Path, text: str) -> Recipe:
    path.parent.mkdir()
    path.write_text(text)
    return Recipe.load(path)


def test_a_recipe_is_read(path):
    recipe = load(path, FORM)
    assert recipe.summary == "LLaMA-7B pretraining on eight cards"
    assert (recipe.target, recipe.alias) == ("another-name", "older-name")
    assert recipe.header["Memory of"] == "each card 80 GB" and recipe.name == "llama-7b/pretrain"
    assert (recipe.gpus, recipe.gpu_memory_gb, recipe.processes, recipe.ranks) == (8, 80, 1, 8)
    flags = {"fp16": ["1"], "scale_loss": ["1024"], "sharding": ["stage2 offload"], "split": ["949,50,1"]}
    flags |= {"do_train": [], "lora_target_modules": [".*q_proj.*", "ab cd"]}
    assert (recipe.script, recipe.flags) == ("launch/run_pretrain.py", flags)


def test_a_recipe_may_name_a_method(path):
    text = FORM.replace("run launch/run_pretrain.py", "run launch/train.py rewards")
    recipe = load(path, text)
    assert recipe.script == "rewards" and "fp16" in recipe.flags
    path.write_text(text.replace("rewards", "reward"))
    with pytest.raises(UserError, match="found run launch/train.py reward. Allowed in a recipe: run "):
        Recipe.load(path)


@pytest.mark.parametrize("between", [" ", "\t", "      "])
def test_names_may_stand_anywhere_in_the_header(path, between):
    recipe = load(path, FORM.replace("# LLaMA-7B", f"# Target{between}mine\n#Alias{between}yours\n# LLaMA-7B", 1))
    assert recipe.summary == "LLaMA-7B pretraining on eight cards"
    assert (recipe.target, recipe.alias) == ("another-name", "older-name")  # the later ones
    other = path.with_name("other.sh")
    other.write_text(FORM.replace("# Target     another-name", f"# Target{between}mine"))
    assert Recipe.load(other).target == "mine"


@pytest.mark.parametrize(
    ("old", "new", "line", "found"),
    [
        ("GPUS=8", "GPU=8", 9, "found 'GPU=8'"),
        ("GPUS=8", "GPUS=$N", 9, "found 'GPUS=$N'"),
        ("# comments are read over", "export NCCL_DEBUG=INFO", 11, "found 'export'"),
        ("launch/run_pretrain.py", "launch/train.py", 17, "found run launch/train.py"),
        ("--fp16 1", "--fp16 $HALF", 13, "found '$HALF --scale_loss 1024'"),
        ("--fp16 1", "--fp16 `half`", 13, "found '`half`"),
        ("'.*q_proj.*'", "*.txt", 16, "found '*.txt"),
        ('"stage2 offload"', '"stage2 $OFFLOAD"', 14, """found '"stage2 $OFFLOAD"'"""),
        ('"stage2 offload"', '"stage2 offload', 14, """found '"stage2 offload'"""),
        ("--fp16 1", "--fp16 1 # half", 13, "found '# half"),
        ("--fp16 1", "--fp16 1;", 13, "which a shell would read as more than a word"),
        ("--fp16 1", "fp16", 17, "'fp16' is not a flag"),
        ("1024 \\", "1024 \\ ", 13, "found a blank behind the backslash"),
        ("1024 \\", "1024", 13, "found the end of `run` without the user's flags"),
        ('    "$@"\n', "", 16, "found the end of the file behind a backslash"),
        ('    "$@"\n', '    "$@" \\\n', 17, "found the end of the file behind a backslash"),
        ("GPUS=8 GPU_MEMORY_GB=80", "PROCESSES=0", 9, "found 'PROCESSES=0'"),
        ("another-name", "another name", 4, "found Target 'another name'"),
        ("older-name", "older-name   # until May", 5, "found Alias 'older-name   # until May'"),
        ("older-name", "-older", 5, "found Alias '-older'"),
        ('"$@"\n', '"$@"\necho done\n', 18, "found something behind `run`"),
        ("run launch", "# run launch", 13, "found '--fp16'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(path, old, new, line, found):
    assert old in FORM
    with pytest.raises(UserError) as refused:
        load(path, FORM.replace(old, new, 1))
    assert str(refused.value).startswith(f"{path}, line {line}: ") and found in str(refused.value)


METHOD = """\
# LoRA on dialogues.
#
# What every recipe of it has.
# Data       ./data
# Lengths    4096
run launch/run_pretrain.py \\
    --max_seq_length 4096 \\
    --bf16 1 --device gpu \\
    "$@"
"""
THIN = """\
#!/usr/bin/env bash
# Qwen3-8B LoRA.
# Target     lora-qwen3-8b
# Lengths    2048
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run {method} \\
    --model_name_or_path qwen3-8b \\
    --max_seq_length 2048 \\
    "$@"
"""


@pytest.fixture
def method(tmp_path) -> Path:
    path = tmp_path / "methods" / "lora.sh"
    path.parent.mkdir()
    path.write_text(METHOD)
    return path


def test_a_recipe_has_what_the_file_of_its_method_has_and_its_own_wins(path, method):
    """Its own flags come first."""
    recipe = load(path, THIN.format(method=method))
    assert recipe.header == {"Target": "lora-qwen3-8b", "Lengths": "2048", "Data": "./data"}
    assert (recipe.summary, recipe.method, recipe.gpus) == ("Qwen3-8B LoRA", method, 1)
    assert (recipe.script, list(recipe.flags.items())) == (
        "launch/run_pretrain.py",
        [("model_name_or_path", ["qwen3-8b"]), ("max_seq_length", ["2048"]), ("bf16", ["1"]), ("device", ["gpu"])],
    )


@pytest.mark.parametrize(
    ("common", "own", "flags", "renamed"),
    [
        ("--lora_rank 16", "--r 4", {"lora_rank": ["4"]}, ("--r is --lora_rank today",)),
        ("--r 16", "--lora_rank 4", {"lora_rank": ["4"]}, ("--r is --lora_rank today",)),
        ("--precision auto", "--bf16 1", {"bf16": ["1"]}, ()),
        ("--fp16 1", "--precision bf16", {"precision": ["bf16"]}, ()),
    ],
)
def test_a_recipes_own_flag_wins_under_any_name(path, method, common, own, flags, renamed):
    method.write_text(METHOD.replace("--max_seq_length 4096", common).replace("--bf16 1 --device gpu", "--seed 1"))
    recipe = load(path, THIN.format(method=method).replace("--max_seq_length 2048", own))
    assert recipe.flags == {"model_name_or_path": ["qwen3-8b"], "seed": ["1"]} | flags
    assert recipe.renamed == renamed and apply_variables(recipe, {})[1] == list(renamed)


@pytest.mark.parametrize(
    ("old", "new", "line", "found"),
    [
        ("# What every", "# Target     mine\n#", 3, "found Target 'mine'. Allowed in the file of a method: entries of"),
        ("# Data", "# Alias      mine\n# Data", 4, "found Alias 'mine'"),
        ("run launch", "GPUS=1\nrun launch", 6, "found 'GPUS=1'. Allowed in the file of a method: comments"),
        ("run launch", "source ../launch/recipe.sh\nrun launch", 6, "found 'source'"),
        ("launch/run_pretrain.py", "recipes/methods/lora.sh", 9, "found run recipes/methods/lora.sh. Allowed in the"),
        ("--bf16 1", "--bf16 $HALF", 8, "found '$HALF --device gpu'"),
        ('"$@"\n', '"$@"\necho done\n', 10, "found something behind `run`"),
    ],
)
def test_what_is_wrong_in_the_file_of_a_method_is_refused_with_its_line(path, method, old, new, line, found):
    assert old in METHOD
    method.write_text(METHOD.replace(old, new, 1))
    with pytest.raises(UserError) as refused:
        load(path, THIN.format(method=method))
    assert str(refused.value).startswith(f"{method}, line {line}: ") and found in str(refused.value)


def test_a_method_that_is_not_there_is_refused_by_the_recipe(path):
    with pytest.raises(UserError) as refused:
        load(path, THIN.format(method="recipes/methods/lola.sh"))
    assert str(refused.value).startswith(f"{path}, line 11: found run recipes/methods/lola.sh. Allowed in a recipe: ")
    assert "run recipes/methods/lora.sh" in str(refused.value)


def test_the_file_of_a_method_is_no_recipe():
    """Neither a target of make nor a program."""
    files = sorted((ROOT / "recipes" / "methods").iterdir())
    used = {recipe.method for recipe in load_recipes(ROOT)} - {None}
    assert files and set(files) == used and not used & set(recipe_paths(ROOT))
    assert not any(file.stat().st_mode & 0o111 or "recipe.sh" in file.read_text() for file in files)


def test_a_file_without_a_recipe_is_refused(tmp_path):
    path = tmp_path / "x.sh"
    for content, message in [
        (None, "x.sh: this recipe cannot be read: "),
        (b"\xff\xfe", "x.sh: this recipe cannot be read: "),
        (b"# Nothing.\n", "line 1: found no `run`"),
        (b"", "line 1: found no `run`"),
    ]:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            Recipe.load(path)
