"""The README.md of a model that was trained here: how it came about, for those who find it on a hub. No Paddle.

write_card(run, exported)       what `make export` writes beside the weights
trained(run, "qwen3-lora")      its part about the training, which `make card` prints and `make merge` keeps
"""

import json
import re
import shutil
from pathlib import Path
from shlex import join

from launch.checkpoint.data_ledger import Ledger, described
from launch.checkpoint.manifest import RUN, checkpoints, is_ours
from launch.errors import UserError
from launch.hubs.originals import read_record
from launch.reporting.markdown import markdown
from launch.reporting.records import RUN_SUMMARY, arguments_of, read_summary
from launch.weights.model_directories import LICENCE

README, USE = "README.md", "\n## Use\n"
CONFIDENCE = 1.96  # standard errors on each side of a mean: 95 %
# Flags that say how the command was started, not what it trains.
STARTING = ("--local_rank", "--output_dir", "--logging_dir", "--overwrite_output_dir", "--resume_from_checkpoint")


def write_card(source: Path, target: Path) -> bool:
    """Write README.md beside an export, and the base's licences. Return False where nothing is known of a training.

    Args:
        source: The output directory of a run, or a merged model, which has a README.md of its own.
        target: The exported directory.
    """
    if (source / README).is_file():
        text = (source / README).read_text(encoding="utf-8").partition(USE)[0]
    elif (source / RUN_SUMMARY).is_file():
        text = trained(source, target.resolve().name)
        base = Path(arguments_of(read_summary(source)).get("model_name_or_path") or "")
        for path in base.iterdir() if base.is_dir() else ():
            if LICENCE.fullmatch(path.name) and path.is_file() and not (target / path.name).exists():
                shutil.copyfile(path, target / path.name)
    else:
        return False
    (target / README).write_text(f"{text}{USE}\n{_use(target)}\n", encoding="utf-8")
    return True


def trained(run: Path, name: str, evaluation: Path | None = None) -> str:
    """Return the card of a run without the part about its use.

    Args:
        run: Its output directory.
        name: The card's title.
        evaluation: Results of make evaluate; default: evaluations/NAME.json for the name of `run`, if it is there.

    Raises:
        UserError: If no run has ended in the directory, or its summary or the results are damaged.
    """
    if not (run / RUN_SUMMARY).is_file():
        raise UserError(f"{run / RUN_SUMMARY}: no such file. Name the output directory of a run that has ended.")
    try:
        return _card(run, name, evaluation or Path("evaluations") / f"{run.resolve().name}.json")
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{run / RUN_SUMMARY}, or the evaluation: not as this suite writes them: {error!r}.") from None


def _card(run: Path, name: str, results: Path) -> str:
    summary = read_summary(run)
    values, command = arguments_of(summary), summary["command"]
    directory = Path(values.get("model_name_or_path") or "")
    record = read_record(directory)
    base = record.repository if record else directory.name
    adapter = next((kind for kind in ("lora", "prefix_tuning") if values.get(kind)), "")
    head = {
        "base_model": base,
        "pipeline_tag": "text-generation",
        "tags": ["paddle-llm-recipes", *([adapter] * bool(adapter))],
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", ""]
    lines += [f"# {name}", "", f"{base}, trained with paddle-llm-recipes.", "", "## Training", ""]
    lines += [markdown(("", ""), [(key, value) for key, value in _facts(summary, values).items() if value]), ""]
    lines += ["```", *_flags(command), "```", "", "## Data", "", *_data(run, values), ""]
    if results.is_file():
        lines += ["## Evaluation", "", *_evaluated(results), ""]
    lines += [
        "## Licence",
        "",
        f"That of {base}, whose files LICENSE and NOTICE are here if it has them, and that of the data.",
    ]
    return "\n".join(lines) + "\n"


def _facts(summary: dict, values: dict) -> dict[str, str]:
    """Return what the table says of the training: "" where the run does not."""
    layout = {key.removesuffix("_degree").replace("_", " "): size for key, size in summary["topology"].items()}
    evaluation = summary["evaluation"] or {}
    memory = summary["first_step_memory"] or {}
    planned, measured = memory.get("planned_peak_bytes"), memory.get("measured_peak_bytes")
    return {
        "parameters": f"{summary['parameters']:,}"
        + (f", LoRA of rank {values['lora_rank']}" if values.get("lora") else ""),
        "steps": f"{summary['global_step']:,}, {summary['consumed_tokens']:,} tokens",
        "loss": f"{summary['first_loss']:.4g} at first, {summary['last_loss']:.4g} at the end",
        "held-out loss": f"{evaluation['eval_loss']:.4g}" if evaluation.get("eval_loss") is not None else "",
        "hardware": summary.get("hardware", ""),
        "layout": ", ".join(f"{key} {size}" for key, size in layout.items() if size > 1) or "one process",
        "time": f"{summary['seconds'] / 3600:.2f} hours",
        "memory at the first step": f"{measured / 2**30:.2f} GiB, planned {planned / 2**30:.2f}"
        if planned and measured
        else "",
        "versions": ", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
        "revision of the recipes": summary["git_revision"] or "",
    }


def _flags(command: list[str]) -> list[str]:
    """Return the command, a flag a line, with names instead of the paths of that machine."""
    words = [Path(word).name if word.startswith("/") else word for word in command[1:]]
    parts: list[list[str]] = [["python", f"launch/{words[0]}"]]
    for word in words[1:]:
        if re.fullmatch(r"--\w+", word):
            parts.append([])
        parts[-1].append(word)
    parts = [part for part in parts if part[0] not in STARTING]
    return " \\\n    ".join(map(join, parts)).split("\n")


def _data(run: Path, values: dict) -> list[str]:
    """Return what the newest checkpoint's ledger says of the data; without one, its name."""
    for checkpoint in checkpoints(run):
        if is_ours(checkpoint) and (checkpoint / RUN).is_file():
            ledger = Ledger.from_json(json.loads((checkpoint / RUN).read_text(encoding="utf-8"))["ledger"])
            return [f"{ledger.samples:,} samples were read.", "", *(f"- {described(data)}" for data in ledger.data)]
    names = re.findall(r"[^'\[\], ]+", str(values.get("dataset_name_or_path") or values.get("input_dir") or ""))
    return [
        f"{', '.join(Path(name).name for name in names)}. No checkpoint was kept, which would name rows and hashes."
    ]


def _evaluated(path: Path) -> list[str]:
    """Return the results of an evaluation, with intervals of 95 %."""
    report = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for task, values in report["results"].items():
        for key, value in values.items():
            name, _, kind = key.partition(",")
            error = values.get(f"{name}_stderr,{kind}")
            if isinstance(value, float) and not name.endswith("_stderr"):
                interval = f" ± {CONFIDENCE * error:.4f}" if isinstance(error, float) else ""
                rows.append((task, name, f"{value:.4f}{interval}"))
    return [markdown(("task", "measure", "value"), rows, (2,)), "", "By lm-eval; ± is a confidence interval of 95 %."]


def _use(target: Path) -> str:
    """Return how the files of an export are loaded."""
    name = target.resolve().name
    if file := next(target.glob("*.gguf"), None):
        programs = [f"llama-cli -m {file.name}"]
        if (target / "Modelfile").is_file():
            programs += [f"ollama create {name} -f Modelfile && ollama run {name}"]
        return "\n".join(("```", *programs, "```"))
    if (target / "adapter_config.json").is_file():
        lines = (
            "from peft import AutoPeftModelForCausalLM",
            f'model = AutoPeftModelForCausalLM.from_pretrained("{name}")',
        )
    else:
        lines = (
            "from transformers import AutoModelForCausalLM",
            f'model = AutoModelForCausalLM.from_pretrained("{name}")',
        )
    ours = f"make import MODEL={name} OUTPUT=models/{name} && make serve MODEL=models/{name}"
    served = [] if (target / "adapter_config.json").is_file() else ["```", f"vllm serve {name}", ours, "```"]
    return "\n".join(("```python", *lines, "```", *served))
