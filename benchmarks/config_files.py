"""Counts which configuration files of another project reach a plan here.

    python benchmarks/config_files.py stage CHECKOUT/examples CHECKOUT/tests

Each .yaml and .json file below the folders that is of the kind is read as `make config-from` does, and planned on as
many cards as its degrees need. `stage`: training files of PaddleFormers and ERNIEKit, told by the key of that name.
Nothing of them is copied. Printed are the refused files with their reason, those whose family or stage is none here,
and the counts that docs/recipes.md states.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from launch.commands import config_from
from launch.config.argument_files import SUFFIXES, read_arguments
from launch.config.key_files import read_source
from launch.errors import UserError
from launch.families.named_configs import load_config, named_size
from launch.guard import guarded
from launch.recipe import planned

GPU_MEMORY_GB = 80
PLANNED, REFUSED, NO_FAMILY, NO_STAGE = "planned", "refused", "no family", "no stage"


def stated_files(folders: list[str]) -> Iterator[Path]:
    """Yield the files with a key `stage`."""
    for folder in folders:
        for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in SUFFIXES):
            try:
                keys = {entry.key: entry.value for entry in read_source(path)}
            except UserError:  # of another program
                continue
            if "stage" in keys and "finetuning_type" not in keys:  # which LLaMA-Factory's have
                yield path


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
        planned(replace(run, words=run.words | {"model_name_or_path": [model]}, gpu_memory_gb=GPU_MEMORY_GB), "json")
    except UserError as error:
        return REFUSED, str(error)
    return PLANNED, ""


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("stage",))
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args(argv)
    counts: dict[str, int] = dict.fromkeys((PLANNED, REFUSED, NO_FAMILY, NO_STAGE), 0)
    for path in stated_files(args.folders):
        outcome, why = of_stage(path)
        counts[outcome] += 1
        print(f"{path}: {outcome}" + (f": {why}" if why else ""))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
