"""Counts which configuration files of another project reach a plan here.

    python benchmarks/config_files.py stage CHECKOUT/examples CHECKOUT/tests
    python benchmarks/config_files.py deepspeed CHECKOUT/deepspeed_configs

Nothing of the files is copied. `stage`: training files of PaddleFormers and ERNIEKit, told by the key of that name, are
read as `make config-from` does, and planned on as many cards as their degrees need. `deepspeed`: configurations of
DeepSpeed and accelerate are translated as `make doctor` does, and the flags that come out plan full fine-tuning of
Llama-3-8B on 8 cards. Printed is what becomes of each file, and the counts that docs/recipes.md and
docs/from-deepspeed.md state.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from launch.commands import config_from
from launch.config.argument_files import SUFFIXES, read_arguments
from launch.config.deepspeed import show, translate
from launch.config.flag_values import parse_flags
from launch.config.key_files import read_source
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.families.named_configs import load_config, named_size
from launch.guard import guarded
from launch.recipe import planned

GPU_MEMORY_GB = 80
PLANNED, REFUSED, NO_FAMILY, NO_STAGE = "planned", "refused", "no family", "no stage"


# Keys that tell a file of each kind, and keys of other programs' files that have them, too.
TOLD_BY = {
    "stage": ({"stage"}, {"finetuning_type"}),
    "deepspeed": (
        {"distributed_type", "zero_optimization.stage", "train_batch_size", "train_micro_batch_size_per_gpu"},
        {"base_model", "model_name_or_path", "model"},
    ),
}
TUNING = {
    "model_name_or_path": ["llama-3-8b"],
    "dataset_name_or_path": ["data"],
    "output_dir": ["out"],
    "learning_rate": ["1e-5"],
    "max_steps": ["100"],
    "do_train": ["1"],
}


def files_of(kind: str, folders: list[str]) -> Iterator[Path]:
    """Yield the files of a kind."""
    ours, others = TOLD_BY[kind]
    for folder in folders:
        for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in (*SUFFIXES, ".yml")):
            try:
                keys = {entry.key for entry in read_source(path, lenient=True)}
            except UserError:  # of another program
                continue
            if keys & ours and not keys & others:
                yield path


def of_deepspeed(path: Path) -> tuple[str, str]:
    """Return what becomes of a configuration, and why."""
    try:
        translation = translate(read_source(path, lenient=True))
        if translation.unknown:
            raise UserError("; ".join(translation.unknown))
        flags = parse_flags(shlex.split(show(translation, str(path)).splitlines()[-1]))
        run = RunConfig("finetuning", TUNING | flags, tuple("01234567"), GPU_MEMORY_GB)
        config_from.announced(run := replace(run, processes=len(run.devices)))
        planned(run, "json")
    except UserError as error:
        return REFUSED, str(error)
    return PLANNED, ""


def of_stage(path: Path) -> tuple[str, str]:
    """Return what becomes of a file, and why."""
    keys = {entry.key: entry.value for entry in read_source(path)}
    if keys["stage"] not in ("PT", "SFT", "DPO"):
        return NO_STAGE, str(keys["stage"])
    model = named_size(Path(str(keys.get("model_name_or_path", ""))).name)  # a folder is taken for the model it names
    try:
        load_config(model)
    except UserError:
        return NO_FAMILY, model
    try:
        script = config_from.method_name(str(path))
        flags, _ = read_arguments(str(path), script)
        flags["model_name_or_path"] = [model]
        run, _ = config_from.able_run(script, flags, config_from.cards_of(script, flags))
        config_from.announced(run)
        planned(
            replace(run, explicit=run.explicit | {"model_name_or_path": [model]}, gpu_memory_gb=GPU_MEMORY_GB), "json"
        )
    except UserError as error:
        return REFUSED, str(error)
    return PLANNED, ""


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=TOLD_BY)
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args(argv)
    counts: dict[str, int] = dict.fromkeys((PLANNED, REFUSED, NO_FAMILY, NO_STAGE), 0)
    for path in files_of(args.kind, args.folders):
        outcome, why = {"stage": of_stage, "deepspeed": of_deepspeed}[args.kind](path)
        counts[outcome] += 1
        print(f"{path}: {outcome}" + (f": {why}" if why else ""))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
