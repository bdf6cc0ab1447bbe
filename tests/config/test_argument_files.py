"""PaddleNLP's files of arguments: what they become, and what is refused with file, line and key."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config.aliases import DROPPED, REFUSED, RENAMED
from launch.config.argument_files import METHODS, read_arguments
from launch.config.flag_values import load_schema
from launch.config.recipe_file import SCRIPTS, Recipe
from launch.config.run_config import RunConfig
from launch.config.variables import apply_variables
from launch.errors import UserError
from launch.preflight.flags import check_flags
from tests.fuzzing import cases, damaged, dumped, texts, values

ROOT = Path(__file__).resolve().parents[2]
FINETUNE = "finetune_generation"
UNKNOWN = "no argument of PaddleNLP that is known here. Did you mean"
OTHER = "launch/run_pretrain.py, not launch/finetune_generation.py. Give it to that module, or to a recipe of it."


def written(folder: Path, content, name: str = "arguments.json") -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return str(file)


def test_keys_are_flags_and_what_has_no_effect_is_told(tmp_path):
    file = written(
        tmp_path,
        {
            "dataset_name_or_path": "./data",
            "learning_rate": 3e-05,
            "max_grad_norm": "1e-1",
            "warmup_steps": 30.0,
            "bf16": True,
            "recompute": 0,
            "pipeline_parallel_config": ["disable_p2p_cache_shape", "disable_batch_p2p_comm"],
            "chat_template": None,
            "lora_target_modules": ["q_proj", "v_proj"],
            "task_name_or_path": "./data",
            "virtual_pp_degree": 1,
            "lazy": True,
        },
    )
    flags, lines = read_arguments(file, FINETUNE)
    assert flags == {
        "dataset_name_or_path": ["./data"],
        "learning_rate": ["3e-05"],
        "max_grad_norm": ["1e-1"],
        "warmup_steps": ["30"],
        "bf16": ["1"],
        "recompute": ["0"],
        "pipeline_parallel_config": ["disable_p2p_cache_shape disable_batch_p2p_comm"],
        "lora_target_modules": ["q_proj", "v_proj"],
    }
    assert lines == [
        f"{file}: 12 keys read, 8 flags made of them",
        "--task_name_or_path is --dataset_name_or_path today",
        "--virtual_pp_degree is left out: the interleaved pipeline is not supported here",
        "--lazy is left out: how rows are read is the same for all data, and changes no result",
    ]


def test_yaml_says_the_same(tmp_path):
    lines = [
        "# of a run",
        "learning_rate: 3e-5  # text in YAML 1.1",
        "bf16: true",
        "max_steps: 100",
        "run_name: 2024-01-02",
    ]
    lines += ["lora_target_modules: [q_proj, v_proj]", "chat_template: null", 'sharding: "stage2"']
    flags, _ = read_arguments(written(tmp_path, "\n".join(lines), "arguments.yaml"), FINETUNE)
    assert flags == {
        "learning_rate": ["3e-5"],
        "bf16": ["1"],
        "max_steps": ["100"],
        "run_name": ["2024-01-02"],
        "lora_target_modules": ["q_proj", "v_proj"],
        "sharding": ["stage2"],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"max_steps": 1,\n "max_stepz": 2,\n "lazyy": 1}',
            f"{{file}}:2: max_stepz: {UNKNOWN} max_steps?\n{{file}}:3: lazyy: {UNKNOWN} lazy?",
        ),
        ('{"max_steps": "ten"}', '{file}:1: max_steps: found "ten"; allowed: a whole number, at least -1 and '),
        ('{"max_steps": true}', "{file}:1: max_steps: found true; allowed: a whole number"),
        ('{"max_steps": 1.5}', "{file}:1: max_steps: found 1.5; allowed: a whole number"),
        ('{"learning_rate": NaN}', "{file}:1: learning_rate: found NaN; allowed: a number"),
        ('{"lora": 2}', "{file}:1: lora: found 2; allowed: 1 or 0 (true, false)"),
        ('{"save_strategy": "never"}', '{file}:1: save_strategy: found "never"; allowed: no, steps, epoch'),
        ('{"sharding": "stage2 stage9"}', '{file}:1: sharding: found "stage2 stage9"; allowed: stage1'),
        ('{"output_dir": ["a", "b"]}', '{file}:1: output_dir: found ["a", "b"]; allowed: one value'),
        ('{"lora": {}}', "{file}:1: lora: found {{}}; allowed: one value"),
        ('{"lora": true,\n}', "{file}:2: no JSON at column 1: "),
        ('{"lora": true,\n "lora": true}', "{file}:2: lora: stated in line 1, too. Keep one."),
        ("[1]", "{file}:1: found list; expected an object"),
        ("[" * 100_000, "{file}: lists or objects are nested too deeply."),
        ('{"virtual_pp_degree": 2}', "{file}:1: virtual_pp_degree: the interleaved pipeline is not supported here"),
        ('{"lora": true,\n "lokr": true}', "{file}:2: lokr: adapters here are LoRA "),
        ('{"tgt_length": "long"}', "{file}:1: tgt_length: it is a whole number, and --src_length, too"),
        ('{"input_dir": "./data"}', f"{{file}}:1: input_dir: this is a file for pretraining, {OTHER}"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path, content, message):
    file = written(tmp_path, content)
    with pytest.raises(UserError) as error:
        read_arguments(file, FINETUNE)
    assert str(error.value).startswith(message.format(file=file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lora: true\nlora: false", "{file}:2: lora: stated in line 1, too. Keep one."),
        ("lora: true\nmodel: {a: 1}", "{file}:2: found something nested; expected key: value"),
        ("a: &x [1]\nb: *x\nlora: [[1]]", "{file}:3: found something nested"),
        ("lora: true\n- 1", "{file}:2: no YAML at column 1: "),
        ("lora: !!python/object:os.system a", '{file}:1: lora: found "a"; allowed: 1 or 0'),
        ("", "{file}:1: found no mapping; expected lines of key: value"),
        ("\0", "{file}: no YAML: special characters are not allowed"),
        ("lora: !!bool a", '{file}:1: lora: found "a"; allowed: 1 or 0'),
    ],
)
def test_what_is_wrong_in_yaml(tmp_path, content, message):
    file = written(tmp_path, content, "arguments.yml")
    with pytest.raises(UserError) as error:
        read_arguments(file, FINETUNE)
    assert str(error.value).startswith(message.format(file=file))


def test_a_file_at_home_and_one_that_is_not_there(tmp_path, monkeypatch):
    """A shell leaves the tilde of CONFIG=~/arguments.json as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, {"lora": True})
    assert read_arguments("~/arguments.json", FINETUNE)[0] == {"lora": ["1"]}
    with pytest.raises(UserError, match=r"none.json: cannot be read: No such file or directory"):
        RunConfig.from_words(FINETUNE, [str(tmp_path / "none.json"), "--lora", "1"])


# What tells the files of PaddleNLP's other scripts: dpo, simpo, kto, rm, prm, ptq, gptq, awq, ppo, grpo, emb.
@pytest.mark.parametrize(
    ("keys", "title"),
    [
        (
            {"max_length": 512, "normalizer_type": "RunningMeanStd", "loss_type": "sequence-wise"},
            "a reward model of PPO",
        ),
        ({"train_dataset_path": "a", "process_reward": True}, "a process reward model"),
        ({"dataset_name_or_path": "a", "do_ptq": True, "smooth": True}, "quantization after training"),
        ({"dataset_name_or_path": "a", "do_gptq": True}, "quantization after training"),
        ({"dataset_name_or_path": "a", "do_awq": True}, "quantization after training"),
        ({"actor_model_name_or_path": "a", "max_length": 2048}, "PPO or GRPO"),
        ({"dataset_name_or_path": "a", "max_query_len": 512}, "embeddings"),
    ],
)
def test_files_of_other_methods_are_refused_by_their_name(tmp_path, keys, title):
    with pytest.raises(UserError) as error:
        read_arguments(written(tmp_path, {"output_dir": "out"} | keys), FINETUNE)
    assert f": this is a file for {title}, which has no module here." in str(error.value)
    assert str(error.value).endswith("Files for DPO, KTO, a reward model, fine-tuning and pretraining can be used.")


def test_a_file_of_dpo_is_read_but_for_its_data(tmp_path):
    keys = {"max_seq_len": 4096, "max_prompt_len": 2048, "beta": 0.1, "loss_type": "sigmoid", "label_smoothing": 0.1}
    flags, _ = read_arguments(written(tmp_path, keys), "run_dpo")
    assert flags["max_length"] == ["4096"] and flags["src_length"] == ["2048"] and flags["label_smoothing"] == ["0.1"]
    with pytest.raises(UserError, match="train_dataset_path: data are a folder with train.json and dev.json"):
        read_arguments(written(tmp_path, keys | {"train_dataset_path": "a"}), "run_dpo")
    with pytest.raises(UserError, match="this is a file for DPO, launch/run_dpo.py, not launch/finetune_generation.py"):
        read_arguments(written(tmp_path, keys), FINETUNE)


def test_a_file_of_a_reward_model_is_read_but_for_its_data(tmp_path):
    keys = {"max_seq_len": 8192, "flash_mask": True, "per_device_train_batch_size": 1}
    flags, lines = read_arguments(written(tmp_path, keys | {"dataset_name_or_path": "a"}), "run_reward")
    assert flags["max_length"] == ["8192"] and flags["dataset_name_or_path"] == ["a"]
    assert any(line.startswith("--flash_mask is left out") for line in lines)
    with pytest.raises(UserError, match="train_dataset_path: data are a folder with train.json and dev.json"):
        read_arguments(written(tmp_path, keys | {"train_dataset_path": "a"}), "run_reward")


def test_a_file_of_kto_says_which_loss_by_being_one(tmp_path):
    keys = {"max_prompt_len": 1024, "beta": 0.2, "desirable_weight": 1.33}
    flags, _ = read_arguments(written(tmp_path, keys), "run_dpo")
    expected = {"loss_type": ["kto"], "src_length": ["1024"], "beta": ["0.2"], "desirable_weight": ["1.33"]}
    assert flags == expected
    run, _ = RunConfig.from_words("run_dpo", [str(tmp_path / "arguments.json"), "--beta", "0.3"])
    assert (run.flags.loss_type, run.flags.beta) == ("kto", 0.3)


def test_every_module_has_its_method():
    assert {method.script for method in METHODS if method.script} == set(SCRIPTS)
    for method in METHODS:
        if method.script:
            assert method.keys <= load_schema(method.script).keys() | RENAMED.keys()


def test_the_accuracy_of_pretraining_is_left_out(tmp_path):
    stated = {"input_dir": "data", "metric_for_best_model": "accuracy"}
    flags, lines = read_arguments(written(tmp_path, stated), "run_pretrain")
    assert flags == {"input_dir": ["data"]}
    assert lines[1:] == [
        "--metric_for_best_model accuracy is left out: an evaluation of pretraining has the loss alone"
    ]
    flags, lines = read_arguments(written(tmp_path, stated | {"metric_for_best_model": "loss"}), "run_pretrain")
    assert flags["metric_for_best_model"] == ["loss"] and len(lines) == 1


def test_flags_behind_the_file_win(tmp_path):
    file = written(tmp_path, {"max_steps": 10, "bf16": True, "seed": 1})
    run, lines = RunConfig.from_words(FINETUNE, [file, "--seed", "2", "--precision", "fp16", "--r", "4"])
    assert run.words == {"max_steps": ["10"], "seed": ["2"], "precision": ["fp16"], "lora_rank": ["4"]}
    assert lines == [f"{file}: 3 keys read, 3 flags made of them", "--r is --lora_rank today"]
    with pytest.raises(UserError, match="is not a flag"):
        RunConfig.from_words(FINETUNE, [file, file])


def test_a_recipe_takes_the_file_between_its_flags_and_the_users(tmp_path):
    """And the micro batch of the file counts for each card, whatever their number."""
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "finetune.sh")
    stated = {
        "bf16": True,
        "output_dir": "of file",
        "max_length": 99,
        "tensor_parallel_degree": 1,
        "sharding": "stage2",
    }
    stated |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    file = written(tmp_path, stated)
    run, lines = apply_variables(recipe, {"CONFIG": file, "MODEL": "m", "GPUS": "2", "ARGS": "--max_length 77"})
    words = {name: run.words.get(name) for name in ("bf16", "precision", "output_dir", "max_length", "src_length")}
    assert words == {
        "bf16": ["1"], "precision": None, "output_dir": ["of file"], "max_length": ["77"], "src_length": ["128"],
    }  # fmt: skip
    assert run.words["model_name_or_path"] == ["m"] and run.own == {"max_length": ["77"]}
    assert (run.processes, run.global_batch, run.stated) == (2, 2 * 2 * 3, None)
    told, staying = lines
    assert told == f"{file}: 7 keys read, 7 flags made of them"
    assert staying.startswith("of the recipe's own flags stay: --model_name_or_path --zero_padding ")
    assert " --dataset_name_or_path --src_length " in staying
    assert "--precision" not in staying and "--max_length" not in staying


def test_without_a_batch_in_the_file_the_samples_of_a_step_stay(tmp_path):
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "finetune-stage2.sh")
    run, lines = apply_variables(recipe, {"CONFIG": written(tmp_path, {"seed": 7}), "GPUS": "2"})
    assert run.global_batch == 4 * 16 * 2 and run.words["seed"] == ["7"]
    assert lines[2].startswith("GPUS: 2 instead of 4, ")


def test_another_layout_of_the_file_keeps_the_samples_of_a_step(tmp_path):
    """4 data ranks in the place of tensor parallel; a number of cards that does not divide is refused as before."""
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "finetune.sh")
    before, _ = apply_variables(recipe, {})
    file = written(tmp_path, {"sharding": "stage2"})
    run, lines = apply_variables(recipe, {"CONFIG": file})
    assert (before.layout.data_ranks, run.layout.data_ranks) == (1, 4)
    assert before.global_batch == run.global_batch == 128 and run.stated == before.layout
    assert lines[2].startswith("4 data ranks instead of 1, --gradient_accumulation_steps ")
    assert lines[2].endswith(": as many samples a step")
    run, _ = apply_variables(recipe, {"CONFIG": file, "ARGS": "--gradient_accumulation_steps 8"})
    assert run.global_batch == 8 * before.flags.per_device_train_batch_size  # it counts for the recipe's layout
    run, lines = apply_variables(recipe, {"CONFIG": written(tmp_path, {"tensor_parallel_degree": 4}, "same.json")})
    assert run.global_batch == 128 and run.stated is None and len(lines) == 2


def test_a_micro_batch_of_the_file_takes_the_recipes_accumulation_away(tmp_path):
    recipe = Recipe.load(ROOT / "recipes" / "qwen2.5-7b" / "lora.sh")
    run, _ = apply_variables(recipe, {"CONFIG": written(tmp_path, {"per_device_train_batch_size": 4})})
    assert "gradient_accumulation_steps" in recipe.flags and run.global_batch == 4


def test_a_config_that_is_no_file_is_named_with_its_variable():
    """Other tools have a variable of that name: CONFIG=Release."""
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "finetune.sh")
    with pytest.raises(UserError, match="^CONFIG: found 'Release', as a variable of the command line or the environ"):
        apply_variables(recipe, {"CONFIG": "Release"})


def test_what_belongs_together_comes_from_the_file_alone(tmp_path):
    """A degree that the file leaves out is 1, not the recipe's; with its save_steps goes the recipe's eval_steps."""
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "finetune.sh")
    stated = {"sharding": "stage1", "save_steps": 7, "max_steps": 9, "warmup_ratio": 0.1, "prefix_tuning": True}
    run, lines = apply_variables(recipe, {"CONFIG": written(tmp_path, stated)})
    assert run.words["save_steps"] == ["7"]
    gone = {"tensor_parallel_degree", "eval_steps", "evaluation_strategy", "num_train_epochs", "warmup_steps"}
    assert gone <= recipe.flags.keys() and gone.isdisjoint(run.words)
    assert not any(f"--{name}" in lines[1] for name in gone)
    recipe = Recipe.load(ROOT / "recipes" / "llama-7b" / "pretrain.sh")
    run, _ = apply_variables(recipe, {"CONFIG": written(tmp_path, {"learning_rate": 1e-7}, "rate.json")})
    gone = {"min_learning_rate", "lr_scheduler_type"}  # the recipe's floor is above the file's rate
    assert run.words["learning_rate"] == ["1e-07"] and gone <= recipe.flags.keys() and gone.isdisjoint(run.words)
    run, _ = apply_variables(recipe, {"CONFIG": written(tmp_path, {"model_name_or_path": "qwen2-7b"}, "model.json")})
    assert "loss_first" in recipe.flags and "loss_first" not in run.words  # it is of LLaMA-7B


def stated_keys() -> st.SearchStrategy:
    """Objects with keys of the files and others, and values that fit or do not."""
    known = sorted({*load_schema(FINETUNE), *RENAMED, *DROPPED, *REFUSED})
    plain = st.sampled_from([True, False, 0, 1, 8, 3e-5, "stage2", "1e-4", "O2", "no"])
    return st.dictionaries(st.sampled_from(known) | texts(), plain | values(), max_size=6)


@cases(50)
@given(stated_keys().map(dumped) | st.binary(max_size=40) | stated_keys().map(dumped).flatmap(damaged))
def test_any_file_is_read_or_refused_by_its_name(content):
    """What is read passes the check of flags."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("arguments.json", "arguments.yaml"):
            file = Path(folder) / name
            file.write_bytes(content)
            try:
                flags, _ = read_arguments(str(file), FINETUNE)
            except UserError as error:
                assert str(error).startswith(str(file))
            else:
                assert [one.found for one in check_flags(FINETUNE, flags) if not one.ok] == []
