"""PaddleNLP's files of arguments: what they become, and what is refused with file, line and key."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config.aliases import DROPPED, REFUSED, RENAMED
from launch.config.argument_files import OURS, read_arguments
from launch.config.flag_values import known_flags, parse_flags
from launch.config.paddleformers import NAMES, REASONS, TRANSLATED, WORDS
from launch.config.paddleformers import REFUSED as FORMERS_REFUSED
from launch.config.recipe_file import Recipe
from launch.config.run_config import RunConfig
from launch.config.variables import apply_variables
from launch.errors import UserError
from launch.preflight.flag_check import check_flags
from tests.fuzzing import FEW_AND_MANY, cases, damaged, dumped, texts, values
from tests.store import ROOT

FINETUNE = "finetune_generation"
UNKNOWN = "no argument of PaddleNLP that is known here. Did you mean"
OTHER = "launch/run_pretrain.py, not launch/finetune_generation.py. Give it to that module, or to a recipe of it."


def written(folder: Path, content, name: str = "arguments.json") -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return str(file)


def test_keys_are_flags_and_what_has_no_effect_is_told(tmp_path):
    content = {"dataset_name_or_path": "./data", "learning_rate": 3e-05, "max_grad_norm": "1e-1", "warmup_steps": 30.0}
    content |= {"bf16": True, "recompute": 0, "chat_template": None, "lora_target_modules": ["q_proj", "v_proj"]}
    content |= {"pipeline_parallel_config": ["disable_p2p_cache_shape", "disable_batch_p2p_comm"], "lazy": True}
    file = written(tmp_path, content | {"task_name_or_path": "./data", "virtual_pp_degree": 1})
    flags, lines = read_arguments(file, FINETUNE)
    words = "--dataset_name_or_path ./data --learning_rate 3e-05 --max_grad_norm 1e-1 --warmup_steps 30 --bf16 1"
    words += " --recompute 0 --lora_target_modules q_proj v_proj --pipeline_parallel_config"
    assert flags == parse_flags([*words.split(), "disable_p2p_cache_shape disable_batch_p2p_comm"])
    assert (lines[0], sorted(lines[1:])) == (
        f"{file}: 12 keys read, 8 flags made of them",
        [
            "--lazy is left out: how rows are read is the same for all data, and changes no result",
            "--task_name_or_path is --dataset_name_or_path today",
            "--virtual_pp_degree is left out: the interleaved pipeline is not supported here",
        ],
    )


YAML = """\
# of a run
learning_rate: 3e-5  # text in YAML 1.1
bf16: true
max_steps: 100
run_name: 2024-01-02
lora_target_modules: [q_proj, v_proj]
chat_template: null
sharding: "stage2"
"""


def test_yaml_says_the_same(tmp_path):
    flags, _ = read_arguments(written(tmp_path, YAML, "arguments.yaml"), FINETUNE)
    words = "--learning_rate 3e-5 --bf16 1 --max_steps 100 --run_name 2024-01-02 --sharding stage2"
    assert flags == parse_flags(f"{words} --lora_target_modules q_proj v_proj".split())


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
        ('{"lora": true,\n "lora": true}', "{file}:2: lora: also in line 1. Keep one."),
        ("[1]", "{file}:1: found list; expected an object"),
        ("[" * 100_000, "{file}: lists or objects are nested too deeply."),
        ('{"seed": ' + "9" * 5000 + "}", "{file}: no JSON that Python reads: Exceeds the limit"),
        ("seed: " + "9" * 6000, '{file}:1: seed: found "' + "9" * 199 + " ...; allowed: a whole number"),
        ('{"virtual_pp_degree": 2}', "{file}:1: virtual_pp_degree: the interleaved pipeline is not supported here"),
        ('{"lora": true,\n "lokr": true}', "{file}:2: lokr: adapters here are LoRA "),
        ('{"tgt_length": "long"}', "{file}:1: tgt_length: it is a whole number, and --src_length, too"),
        ('{"input_dir": "./data"}', f"{{file}}:1: input_dir: this is a file for pretraining, {OTHER}"),
        ("lora: true\nlora: false", "{file}:2: lora: also in line 1. Keep one."),
        ("lora: true\nmodel: {a: 1}", f"{{file}}:2: model.a: {UNKNOWN} model_path?"),
        ("a: &x [1]\nb: *x\nlora: [[1]]", "{file}:3: found something nested"),
        ("a: &x {b: *x}", "{file}:1: a.b: found an alias of a mapping; expected its keys"),
        ("lora: true\n- 1", "{file}:2: no YAML at column 1: "),
        ("lora: !!python/object:os.system a", '{file}:1: lora: found "a"; allowed: 1 or 0'),
        ("", "{file}:1: found no mapping; expected lines of key: value"),
        ("\0", "{file}: no YAML: special characters are not allowed"),
        ("lora: !!bool a", '{file}:1: lora: found "a"; allowed: 1 or 0'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, content, message):
    file = written(tmp_path, content, "arguments.json" if content[:1] in ("{", "[") else "arguments.yml")
    with pytest.raises(UserError) as error:
        read_arguments(file, FINETUNE)
    assert str(error.value).startswith(message.format(file=file))


def test_a_file_at_home_and_one_that_is_not_there(tmp_path, monkeypatch):
    """A shell leaves the tilde of CONFIG=~/arguments.json as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, {"lora": True})
    assert read_arguments("~/arguments.json", FINETUNE)[0] == {"lora": ["1"]}
    with pytest.raises(UserError, match=r"none.json: cannot be read: No such file or directory"):
        RunConfig.from_arguments(FINETUNE, [str(tmp_path / "none.json"), "--lora", "1"])


# What tells the files of PaddleNLP's other scripts: dpo, simpo, kto, rm, prm, ptq, gptq, awq, ppo, grpo, emb.
@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ({"normalizer_type": "RunningMeanStd", "loss_type": "sequence-wise"}, "a reward model of PPO"),
        ({"train_dataset_path": "a", "process_reward": True}, "a process reward model"),
        *(({"dataset_name_or_path": "a", key: True}, "quantization after training") for key in ("do_ptq", "do_gptq")),
        ({"dataset_name_or_path": "a", "do_awq": True}, "quantization after training"),
        ({"actor_model_name_or_path": "a", "max_length": 2048}, "PaddleNLP's PPO or GRPO"),
        ({"dataset_name_or_path": "a", "max_query_len": 512}, "embeddings"),
    ],
)
def test_files_of_other_methods_are_refused_by_their_name(tmp_path, keys, title):
    with pytest.raises(UserError) as error:
        read_arguments(written(tmp_path, {"output_dir": "out"} | keys), FINETUNE)
    assert f": this is a file for {title}, which has no module here." in str(error.value)
    assert str(error.value).endswith("Files for DPO, KTO, a reward model, fine-tuning and pretraining can be used.")


def test_a_file_of_a_megabyte_is_none_of_arguments(tmp_path):
    (tmp_path / "args.json").write_text("{" + " " * (1 << 20) + "}")
    with pytest.raises(UserError, match="found 1,048,578 bytes, allowed in a file of arguments: 1,048,576"):
        read_arguments(str(tmp_path / "args.json"), FINETUNE)


def test_files_of_preferences_are_read(tmp_path):
    keys = {"max_seq_len": 4096, "max_prompt_len": 2048, "beta": 0.1, "loss_type": "sigmoid", "label_smoothing": 0.1}
    flags, _ = read_arguments(written(tmp_path, keys), "run_dpo")
    assert [flags[name] for name in ("max_length", "src_length", "label_smoothing")] == [["4096"], ["2048"], ["0.1"]]
    with pytest.raises(UserError, match="this is a file for DPO, launch/run_dpo.py, not launch/finetune_generation.py"):
        read_arguments(written(tmp_path, keys), FINETUNE)
    data = {"train_dataset_path": "./data/train.jsonl", "dev_dataset_path": "./data/dev.jsonl"}
    flags, lines = read_arguments(written(tmp_path, keys | data), "run_dpo")
    assert flags["dataset_name_or_path"] == ["./data/train.jsonl"] and "dev_dataset_path" not in flags
    assert lines[-1].startswith(
        "--dev_dataset_path is left out: the file beside the training data is evaluated on: dev"
    )
    keys = {"max_seq_len": 8192, "flash_mask": True, "per_device_train_batch_size": 1}
    flags, lines = read_arguments(written(tmp_path, keys | {"dataset_name_or_path": "a"}), "run_reward")
    assert flags["max_length"] == ["8192"] and flags["dataset_name_or_path"] == ["a"]
    assert any(line.startswith("--flash_mask is left out") for line in lines)
    file = written(tmp_path, {"max_prompt_len": 1024, "beta": 0.2, "desirable_weight": 1.33})  # of KTO, by being one
    words = "--loss_type kto --src_length 1024 --beta 0.2 --desirable_weight 1.33"
    assert read_arguments(file, "run_dpo")[0] == parse_flags(words.split())
    run, _ = RunConfig.from_arguments("run_dpo", [file, "--beta", "0.3"])
    assert (run.flags.loss_type, run.flags.beta) == ("kto", 0.3)


def test_each_key_that_tells_a_file_is_a_flag_of_its_method():
    assert {method.name for _, method in OURS} >= {"pretraining", "finetuning", "preferences", "rewards"}
    for kind, method in OURS:
        assert kind.keys <= known_flags(method.name).keys() | RENAMED.keys()


def test_the_accuracy_of_pretraining_is_left_out(tmp_path):
    stated = {"input_dir": "data", "metric_for_best_model": "accuracy"}
    flags, lines = read_arguments(written(tmp_path, stated), "run_pretrain")
    assert flags == {"input_dir": ["data"]}
    told = "--metric_for_best_model accuracy is left out: an evaluation of pretraining has the loss alone"
    assert lines[1:] == [told]
    flags, lines = read_arguments(written(tmp_path, stated | {"metric_for_best_model": "loss"}), "run_pretrain")
    assert flags["metric_for_best_model"] == ["loss"] and len(lines) == 1


def test_flags_behind_the_file_win(tmp_path):
    file = written(tmp_path, {"max_steps": 10, "bf16": True, "seed": 1})
    run, lines = RunConfig.from_arguments(FINETUNE, [file, "--seed", "2", "--precision", "fp16", "--r", "4"])
    assert run.explicit == {"max_steps": ["10"], "seed": ["2"], "precision": ["fp16"], "lora_rank": ["4"]}
    assert lines == [f"{file}: 3 keys read, 3 flags made of them", "--r is --lora_rank today"]
    with pytest.raises(UserError, match="is not a flag"):
        RunConfig.from_arguments(FINETUNE, [file, file])


def recipe(name: str) -> Recipe:
    return Recipe.load(ROOT / "recipes" / f"{name}.sh")


def test_a_recipe_takes_the_file_between_its_flags_and_the_users(tmp_path):
    """And the micro batch of the file counts for each card, whatever their number; without one the samples of a step
    stay."""
    stated = {"bf16": True, "output_dir": "of file", "max_length": 99, "tensor_parallel_degree": 1}
    stated |= {"sharding": "stage2", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    file = written(tmp_path, stated)
    variables = {"CONFIG": file, "MODEL": "m", "GPUS": "2", "ARGS": "--max_length 77"}
    run, lines = apply_variables(recipe("llama-7b/finetune"), variables)
    words = {name: run.explicit.get(name) for name in ("bf16", "precision", "output_dir", "max_length", "src_length")}
    assert words == {
        "bf16": ["1"], "precision": None, "output_dir": ["of file"], "max_length": ["77"], "src_length": ["128"],
    }  # fmt: skip
    assert run.explicit["model_name_or_path"] == ["m"] and run.own == {"max_length": ["77"]}
    assert (run.processes, run.global_batch, run.recipe_layout) == (2, 2 * 2 * 3, None)
    told, staying = lines
    assert told == f"{file}: 7 keys read, 7 flags made of them"
    assert staying.startswith("of the recipe's own flags stay: --model_name_or_path --zero_padding ")
    assert " --dataset_name_or_path --src_length " in staying
    assert "--precision" not in staying and "--max_length" not in staying
    seed = {"CONFIG": written(tmp_path, {"seed": 7}), "GPUS": "2"}
    run, lines = apply_variables(recipe("llama-7b/finetune-stage2"), seed)
    assert run.global_batch == 4 * 16 * 2 and run.explicit["seed"] == ["7"]
    assert lines[2].startswith("GPUS: 2 instead of 4, ")
    lora = recipe("qwen2.5-7b/lora")  # whose accumulation a micro batch of the file takes away
    run, _ = apply_variables(lora, {"CONFIG": written(tmp_path, {"per_device_train_batch_size": 4})})
    assert "gradient_accumulation_steps" in lora.flags and run.global_batch == 4


def test_another_layout_of_the_file_keeps_the_samples_of_a_step(tmp_path):
    """4 data ranks in the place of tensor parallel; a number of cards that does not divide is refused as before."""
    finetune = recipe("llama-7b/finetune")
    before, _ = apply_variables(finetune, {})
    file = written(tmp_path, {"sharding": "stage2"})
    run, lines = apply_variables(finetune, {"CONFIG": file})
    assert (before.layout.data_ranks, run.layout.data_ranks) == (1, 4)
    assert before.global_batch == run.global_batch == 128 and run.recipe_layout == before.layout
    assert lines[2].startswith("4 data ranks instead of 1, --gradient_accumulation_steps ")
    assert lines[2].endswith(": as many samples a step")
    run, _ = apply_variables(finetune, {"CONFIG": file, "ARGS": "--gradient_accumulation_steps 8"})
    assert run.global_batch == 8 * before.flags.per_device_train_batch_size  # it counts for the recipe's layout
    run, lines = apply_variables(finetune, {"CONFIG": written(tmp_path, {"tensor_parallel_degree": 4}, "same.json")})
    assert run.global_batch == 128 and run.recipe_layout is None and len(lines) == 2
    shared = {"CONFIG": written(tmp_path, {"sep_parallel_degree": 2}, "shared.json")}
    run, _ = apply_variables(recipe("llama-7b/finetune-stage2"), shared)
    assert (run.layout.data_ranks, run.global_batch) == (2, 128)


def test_a_config_that_is_no_file_is_named_with_its_variable():
    """Other tools have a variable of that name: CONFIG=Release."""
    with pytest.raises(UserError, match="^CONFIG: found 'Release', as a variable of the command line or the environ"):
        apply_variables(recipe("llama-7b/finetune"), {"CONFIG": "Release"})


def test_what_belongs_together_comes_from_the_file_alone(tmp_path):
    """A degree that the file leaves out is 1, not the recipe's; with its save_steps goes the recipe's eval_steps."""
    several = {"sharding": "stage1", "save_steps": 7, "max_steps": 9, "warmup_ratio": 0.1, "prefix_tuning": True}
    for name, stated, gone in [
        ("finetune", several, "tensor_parallel_degree eval_steps evaluation_strategy num_train_epochs warmup_steps"),
        ("pretrain", {"learning_rate": 1e-7}, "min_learning_rate lr_scheduler_type"),  # its floor is above the rate
        ("pretrain", {"model_name_or_path": "qwen2-7b"}, "loss_first"),  # it is of LLaMA-7B
    ]:
        before = recipe(f"llama-7b/{name}")
        run, lines = apply_variables(before, {"CONFIG": written(tmp_path, stated)})
        assert set(gone.split()) <= before.flags.keys() and set(gone.split()).isdisjoint(run.explicit)
        assert not any(f"--{name}" in lines[1] for name in gone.split())
        key, value = list(stated.items())[len(stated) > 1]
        assert run.explicit[key] == [str(value)]


def stated_keys() -> st.SearchStrategy:
    """Objects with keys of the files and others, and values that fit or do not."""
    known = sorted({*known_flags(FINETUNE), *RENAMED, *DROPPED, *REFUSED})
    formers = sorted({*NAMES, *WORDS, *REASONS, *FORMERS_REFUSED, *TRANSLATED, *known})
    plain = st.sampled_from([True, False, 0, 1, 8, 3e-5, "stage2", "1e-4", "O2", "no"])
    told = st.dictionaries(st.sampled_from(formers), plain | values(), max_size=6).map(
        lambda one: {"stage": "SFT"} | one
    )
    return st.dictionaries(st.sampled_from(known) | texts(), plain | values(), max_size=6) | told


@FEW_AND_MANY
def test_any_file_is_read_or_refused_by_its_name(tmp_path, count):
    """What is read passes the check of flags."""

    @cases(count)
    @given(stated_keys().map(dumped) | st.binary(max_size=40) | stated_keys().map(dumped).flatmap(damaged))
    def read(content):
        for name in ("arguments.json", "arguments.yaml"):
            file = tmp_path / name
            file.write_bytes(content)
            try:
                flags, _ = read_arguments(str(file), FINETUNE)
            except UserError as error:
                assert str(error).startswith(str(file))
            else:
                assert [one.found for one in check_flags(FINETUNE, flags) if not one.ok] == []

    read()
