"""The checked-in flags, and argument objects made of them: those that the pinned paddlenlp and our own classes have."""

from pathlib import Path

from launch.config.flag_values import flag_arguments
from launch.config.recipe_file import load_recipes
from launch.methods.registry import METHODS, method_of
from tests.store import ROOT

FLAGS = ROOT / "launch" / "config" / "flags.py"
RANKS = "tests.training.run_ranks"
# Forms that no recipe has, each with what pretraining needs.
FORMS = [
    "--use_flash_attention --bf16 --use_fused_rms_norm ON --cpu_fast 0",
    "--recompute --do_train true --fp16 n --no_logging_first_step --no_loss_watch",
    "--skip_data_intervals 3 7 --resume_changed batch data --report_to visualdl wandb",
    "--disable_tqdm 1 --greater_is_better 0 --label_names a b --lora_target_modules q_proj v_proj --lora_alpha 16",
    "--evaluation_strategy steps --save_strategy no --lr_scheduler_type cosine --optim adamw --weight_decay=0.1",
    "--continue_training 1 --no_continue_training --no_loss_watch --loss_watch 1",
    "--bf16 required --precision auto --data_cache cache --sharding stage2 --max_seq_length 128 --input_dir=a",
    "--tensor_parallel_config=enable_mp_skip_c_identity,enable_mp_async_allreduce --hang_seconds 5 --num_cycles 0.5",
]
NEEDED = ["--model_name_or_path", "llama-tiny", "--output_dir", "out", "--input_dir", "0.7", "a", "0.3", "b"]


def test_the_generated_flags_are_current(ranks):
    [rendered] = ranks(1, f"{RANKS}:flag_schema")
    assert FLAGS.read_text(encoding="utf-8") == rendered, "run: python -m launch.training.flag_schema"


def test_argument_objects_are_those_of_paddlenlps_parser(ranks):
    recipes = load_recipes(ROOT)
    assert len(recipes) >= 14
    runs = [(Path(recipe.script).stem, flag_arguments(recipe.flags)) for recipe in recipes]
    runs = [(script, _with_data(script, words)) for script, words in runs]
    runs += [("run_pretrain", [*NEEDED, *form.split()]) for form in FORMS]
    assert ranks(1, f"{RANKS}:arguments_of_both", runs) == [[]]


def test_the_better_metric_is_the_larger_or_the_smaller_by_its_name(ranks):
    lower = {"loss", "perplexity", "rewards_rejected", "kl"}
    names = sorted({name for method in METHODS for name in method.metrics})
    assert lower < set(names)
    expected = [[name not in lower, name not in lower, False, True] for name in names]
    assert ranks(1, f"{RANKS}:greater_is_better", names) == [expected]


def _with_data(script: str, words: list[str]) -> list[str]:
    """Recipes leave to the user what has no default."""
    needed = ("--model_name_or_path", "--output_dir", f"--{method_of(script).data_flag}")
    stated = [f"{flag}=x" for flag in needed if flag not in words]
    return [*stated, *words]
