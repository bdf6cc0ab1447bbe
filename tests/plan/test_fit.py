"""make fit, as a user starts it: from any folder, in about a second, without Paddle."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from launch import preflight
from launch.commands import fit
from launch.config.recipe_file import load_recipes
from launch.config.run_config import Nodes, RunConfig
from launch.methods.preference_flags import ADAPTER_OFF, NONE, PRECOMPUTED
from launch.plan.hardware import CARDS, GIB
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.time_plan import plan_time
from launch.preflight.proposals import describe, fastest_layouts, layouts_on, smallest_layout
from launch.preflight.requested import requested_run
from tests.forked_commands import start_forked
from tests.recipes.machine import ROOT, Machine


def run(tmp_path: Path, *arguments: str, cards: int = 0, kind: str = "A100", **variables: str):
    """How `make fit` ends, in a fork."""
    machine = Machine(tmp_path, cards, kind)
    environment = machine.environment(**variables)
    return start_forked("launch/commands/fit.py", tmp_path, [*arguments], environment, machine.said)


def commands(output: str) -> list[list[str]]:
    """The words of each printed start of a recipe."""
    return [shlex.split(line) for line in output.splitlines() if re.match("make (?!download)", line)]


def meant(words: list[str]) -> RunConfig:
    """The run that a printed command starts."""
    variables = dict(word.split("=", 1) for word in words[2:])
    variables["MODEL"] = variables.get("MODEL", "").replace("models/", "Qwen/")  # before it is downloaded
    recipe = next(recipe for recipe in load_recipes(ROOT) if recipe.target == words[1])
    found, _ = requested_run(recipe, variables, Nodes(int(variables.get("NNODES", 1))), sizes_alone=True)
    return found


def comments(output: str) -> list[str]:
    """Those of the output, each in one line."""
    blocks = re.findall(r"(?:^# .*\n)+", output, flags=re.M)
    return [" ".join(block.replace("#", "").split()) for block in blocks]


def test_several_nodes_are_planned_with_their_network_and_what_crosses_it(tmp_path):
    words = "--model tinyllama-1.1b --gpus 1 --nnodes 2 --gpu_memory_gb 24 --method lora --network eth-10"
    done = run(tmp_path / "named", *words.split())
    title, fastest, *_ = comments(done.stdout)
    assert "2 nodes x 1 x 24 GB" in title and "network eth-10 (1 x 1.25 GB/s, 50 µs); on each node" in title
    assert {"NNODES=2", "NETWORK=eth-10", "MODEL=tinyllama-1.1b"} <= set(commands(done.stdout)[0])
    assert meant(commands(done.stdout)[0]).layout.data_ranks == 2
    assert "2 processes: data parallel 2 (between nodes: data parallel over 2 nodes); " in fastest
    assert (
        "error: NETWORK: found 'ether', known: "
        in run(tmp_path / "unknown", *words.replace("eth-10", "ether").split()).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "card"),
    [
        ("--model facebook/llama-7b --gpus 2 --gpu_memory_gb 24 --method lora", "4090"),
        ("--model Qwen/Qwen3-8B --gpus 1 --gpu_memory_gb 24 --method lora", "4090"),
        ("--model Qwen/Qwen2.5-0.5B --gpus 2 --gpu_memory_gb 16 --method grpo", "V100-16G"),
        *(
            pytest.param(arguments, card, marks=pytest.mark.long)
            for arguments, card in (
                ("--model glm-515m --gpus 1 --gpu_memory_gb 24 --method lora", "4090"),  # which cannot pack
                ("--model facebook/llama-13b --gpus 1 --gpu_memory_gb 24 --method dpo-qlora", "4090"),
                ("--model qwen2.5-7b --gpus 4 --gpu_memory_gb 80 --method dpo", "A100-80G"),
                ("--model Qwen/Qwen3-8B --gpus 2 --gpu_memory_gb 24 --method grpo-qlora", "4090"),
                ("--model facebook/llama-7b --gpus 4 --gpu_memory_gb 80 --method full", "A100-80G"),
                ("--model qwen2-7b --gpus 4 --card V100-32G --method lora", "V100-32G"),
            )
        ),
    ],
)
def test_the_printed_commands_are_legal_and_fit(arguments, card, tmp_path):
    done = run(tmp_path, *arguments.split())
    assert done.returncode == 0, done.stderr
    gpus = int(arguments.split()[3])
    found = commands(done.stdout)
    assert 1 <= len(found) <= 3
    for words, head in zip(found, comments(done.stdout)[-len(found) :], strict=True):
        planned = meant(words)
        assert planned.processes == gpus and [one for one in preflight.run_on_flags(planned) if not one.ok] == []
        memory = plan_memory(Job.from_run(planned, CARDS[card]), CARDS[card])
        assert f": {memory.peak_bytes / GIB:.1f} of " in head and memory.fits and not memory.tight
        assert planned.global_batch == int(re.search(r"(\d+) samples of", comments(done.stdout)[0])[1])


def test_a_published_model_is_planned_by_its_own_recipe_and_downloaded_first(tmp_path):
    done = run(tmp_path, "--model", "Qwen/Qwen3-8B", "--gpu_memory_gb", "24", "--method", "lora")
    assert "16 samples of 3,072 tokens a step" in comments(done.stdout)[0]
    assert "\nmake download MODEL=Qwen/Qwen3-8B\n" in done.stdout
    [words] = commands(done.stdout)
    assert words[:4] == [
        *("make", "lora-qwen3-8b", "MODEL=models/Qwen3-8B", "OUTPUT=./checkpoints/Qwen3-8B-lora"),
    ]


def test_a_tight_layout_is_offered_only_where_no_other_fits():
    recipe, planned, _ = fit.run_of_recipe("lora", "facebook/llama-13b", {})
    card = CARDS["4090"]
    _, ways = layouts_on(planned, card, 2)
    assert recipe.target == "lora-1gpu" and len(ways) == 3 and not any(way.candidate.memory.tight for way in ways)
    smallest = smallest_layout(planned, card, planned.global_batch)
    _, ways = layouts_on(planned, replace(card, memory_bytes=smallest.peak_bytes), 1)
    [tight] = ways
    assert tight.candidate.memory.tight and "GiB (tight)" in describe(tight.candidate)


@pytest.mark.parametrize("model", ["meta-llama/Llama-3-8B", "Qwen/Qwen3-8B"])
def test_the_smallest_qlora_of_an_8b_is_printed_and_takes_8_5_gib(tmp_path, model):
    words = f"--model {model} --gpus 1 --gpu_memory_gb 24 --method qlora"
    done = run(tmp_path / "small", *words.split(), ARGS="--max_length 512 --src_length 384")
    [*_, words] = commands(done.stdout)
    smallest = dict(word.split("=", 1) for word in words[2:])["ARGS"]
    assert "--offload_embedding 1 --quantize_head 1" in smallest and "--max_length 512" in smallest
    said = comments(done.stdout)[-1]
    assert said.startswith("smallest: 1 process; micro batch 1 x accumulation 16, recompute full, optimizer in host ")
    [peak] = re.findall(r"word embedding in host memory, output layer in 4 bits: (\S+) of 23.6 GiB", said)
    assert float(peak) <= 8.5


def test_samples_that_fit_no_card_otherwise_are_computed_in_slices(tmp_path):
    words = "--model Qwen/Qwen3-8B --gpus 1 --gpu_memory_gb 48 --method qlora"
    done = run(tmp_path / "long", *words.split(), ARGS="--max_length 131072 --src_length 65536")
    assert "recompute full, activations in host memory, MLPs and norms in slices: 3" in comments(done.stdout)[-1]
    (command,) = commands(done.stdout)
    assert meant(command).flags.sequence_slices == "auto"
    short = run(tmp_path / "short", *words.split(), ARGS="--max_length 32768 --src_length 16384")
    assert "sequence_slices" not in short.stdout


@pytest.mark.long
def test_ranks_are_offered_to_share_long_samples(tmp_path):
    words = "--model Qwen/Qwen3-8B --gpus 4 --gpu_memory_gb 24 --method qlora"
    done = run(tmp_path / "long", *words.split(), ARGS="--max_length 65536 --src_length 32768")
    assert "4 processes: data parallel 4, 4 share a sample; micro batch 1 x" in " ".join(comments(done.stdout))
    assert meant(commands(done.stdout)[0]).flags.sep_parallel_degree == 4


def test_the_fastest_comes_first_and_says_what_it_is(tmp_path):
    done = run(tmp_path, "--gpus", "2", "--gpu_memory_gb", "80", "--method", "pretrain", ARGS="--max_steps 7")
    title, *heads = comments(done.stdout)
    assert max(len(line) for line in done.stdout.splitlines() if line.startswith("# ")) <= 80
    assert title == (
        "facebook/llama-7b, pretrain, 2 x 80 GB, planned as A100-80G (CARD=... names another kind), "
        "256 samples of 2,048 tokens a step"
    )
    speeds = [float(re.search(r"([\d,]+) tokens/s \(± (?:7|29)%\)$", head)[1].replace(",", "")) for head in heads]
    assert speeds == sorted(speeds, reverse=True) and len(speeds) == 3
    assert all(re.match(r"\d\. 2 processes: .*; micro batch \d+ x accumulation \d+.*: [\d.]+ of 79.1 GiB", head)
               for head in heads)  # fmt: skip
    assert all("--max_steps 7" in " ".join(words) for words in commands(done.stdout))


def test_what_cannot_fit_is_refused_with_what_helps(tmp_path):
    done = run(tmp_path, "--model", "facebook/llama-13b", "--gpus", "1", "--gpu_memory_gb", "16", "--method", "full")
    assert done.returncode == 2 and commands(done.stdout) == []
    assert re.match(r"error: nothing fits. The smallest is 1 process; micro batch 1 .* of 15.8 GiB", done.stderr)
    assert "METHOD=lora, METHOD=qlora, shorter samples" in done.stderr
    done = run(tmp_path / "cards", "--method", "lora", cards=1, kind="A100-40G")
    assert done.stdout.startswith("# facebook/llama-7b, lora, 1 x 40 GB, planned as A100-40G"), "this machine's cards"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--gpus 0", "--gpus: found '0', expected a number of cards, 1 to 1,024"),
        ("--method dora", "invalid choice: 'dora'"),
        ("--model nothing --gpu_memory_gb 24", "'nothing' is no directory"),
        ("--card P100", "CARD: found 'P100', known: A100-80G"),
        ("--card 4090 --gpu_memory_gb 80", "CARD=4090 has 24 GB, not 80: leave one out."),
        ("--gpus 1", "GPU_MEMORY_GB: not given, and there are no cards here"),
    ],
)
def test_mistakes(arguments, message, tmp_path):
    done = run(tmp_path, *arguments.split())
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_all_parameters_of_an_8b_have_two_ways_on_one_card(tmp_path):
    words = "--model llama-3-8b --gpus 1 --gpu_memory_gb 24 --method full-1gpu"
    done = run(tmp_path, *words.split())
    flags = [meant(words).flags for words in commands(done.stdout)]
    assert [(one.optim, bool(one.offload_optim)) for one in flags] == [("adafactor", False), ("adamw_8bit", True)]
    _, factored, paged = comments(done.stdout)
    assert "factored moments" in factored and "moments in 8 bits, moments in host memory" in paged


def test_every_method_has_a_recipe_and_preferences_their_rows_and_reference():
    modules = {"pretrain": "run_pretrain"} | dict.fromkeys(("dpo", "dpo-lora", "dpo-qlora", "kto-lora"), "run_dpo")
    modules |= dict.fromkeys(("grpo", "grpo-lora", "grpo-qlora"), "reinforcement")
    adapted = ("lora", "qlora", "dpo-lora", "dpo-qlora", "kto-lora", "grpo-lora", "grpo-qlora")
    trained = dict.fromkeys(adapted, "lora") | {"prefix": "prefix_tuning"}
    assert {*modules, *trained, "full", "full-1gpu"} == set(fit.FITS)
    for method in fit.FITS:
        _, found, _ = fit.run_of_recipe(method, "opt-6.7b", {"GPUS": "3", "RANK": "1", "ARGS": "--seed 7"})
        switches = {name for name in ("lora", "prefix_tuning") if found.explicit.get(name) == ["1"]}
        assert switches == ({trained[method]} if method in trained else set())
        assert Path(found.script).stem == modules.get(method, "finetune_generation")
        assert found.processes >= 1 and found.flags.seed == 7
        assert ("weight_quantize_algo" in found.explicit) == ("qlora" in method)
        assert "chat_template" not in found.explicit
    methods = {"dpo": ("sigmoid", PRECOMPUTED, 2), "dpo-qlora": ("sigmoid", ADAPTER_OFF, 2)}
    for method, planned in (methods | {"kto-lora": ("kto", ADAPTER_OFF, 1)}).items():
        job = Job.from_run(fit.run_of_recipe(method, "facebook/llama-7b", {})[1])
        assert (job.loss_type, job.reference, job.rows) == planned
    (_, run, _), card = fit.run_of_recipe("dpo", "facebook/llama-7b", {}), CARDS["A100-80G"]
    [way, *_] = fastest_layouts(RunConfig(run.script, run.explicit, processes=4), card, 16)
    assert way.time.step_seconds == plan_time(way.job, card).seconds(1), "with the pass before training"
    given = fit.run_of_recipe("dpo-lora", "opt-6.7b", {"ARGS": "--loss_type simpo --chat_template llama"})[1]
    assert Job.from_run(given).reference == NONE and given.explicit["chat_template"] == ["llama"]
    for model in ("Qwen/qwen2.5-7b", str(ROOT / "launch/families/configs/qwen2.5-7b.json")):
        found = fit.run_of_recipe("lora", model, {})
        assert found[0].target == "lora-qwen2.5-7b" and found[1].explicit["chat_template"] == ["qwen2"]
        assert found[1].explicit["output_dir"] == ["./checkpoints/qwen2.5-7b-lora"]
    assert fit.run_of_recipe("lora", "Qwen/Qwen3-14B", {})[0].target == "lora-qwen3-4b", "one of its family"
