"""Send an exported model to a hub: Hugging Face, ModelScope or AI Studio.

    make export MODEL=checkpoints/qwen3-lora             to exported/qwen3-lora
    make push MODEL=exported/qwen3-lora TO=hf:me/qwen3-lora
    make push MODEL=exported/qwen3-lora TO=modelscope:me/qwen3-lora

A new repository is private, unless ARGS="--private 0". README.md, which make export wrote, says how the model was
trained: read it first, and change it as you like. Weights, configuration, tokenizer, licence and README.md are sent;
what else lies in the folder is named and stays. After Ctrl-C or a lost network the same command goes on; files that
the hub has are not sent again. Addresses and tokens are those of each hub's own client, as for make download.
"""

import argparse
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import GOES_ON, Parser
from data_tools.formats.json_files import shown
from data_tools.language import localized
from launch.environment.hub_clients import destination, open_hub
from launch.errors import UserError
from launch.families.registry import FAMILIES
from launch.guard import guarded
from launch.hubs.model_card import README
from launch.hubs.originals import size_text
from launch.hubs.repository import ADAPTER, INDEX, TOKENIZER, WEIGHTS
from launch.reporting.records import TRAIN_LOG
from launch.weights.model_directories import CONFIG, GENERATION, LICENCE

# What make export writes, and what a hub keeps of a model beside it; nothing else of a folder is sent.
OWN = [family.published.tokenizer for family in FAMILIES.values()]
NAMES = {CONFIG, GENERATION, ADAPTER, INDEX, README, "Modelfile", *TOKENIZER}
NAMES |= {name for own in OWN for name in (*own.copied, *(own.sentencepiece or ()))}
KINDS = (WEIGHTS, LICENCE, re.compile(r"[\w.-]+\.gguf", re.ASCII))


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    key, repository = destination(args.to)
    paths = files_of(args.model)
    hub = open_hub(key, named=True)
    if left := sorted({path.name for path in args.model.iterdir()} - {path.name for path in paths}):
        names = ", ".join(map(shown, left[:10])) + " ..." * (len(left) > 10)
        print(localized(f"not sent, as no files of a model: {names}"))
    size = size_text(sum(path.stat().st_size for path in paths))
    print(localized(f"{len(paths)} files, {size}, to {hub.page(repository)}"), flush=True)
    hub.asked(hub.send, repository, args.model, [path.name for path in paths], bool(args.private))
    print(localized(f"sent: {hub.page(repository)}"))


def files_of(folder: Path) -> list[Path]:
    """Return the files that are sent: of an export the kinds of file that belong to a model.

    Raises:
        UserError: If the folder is no export, or has no README.md.
    """
    exported = any((folder / name).is_file() for name in (CONFIG, ADAPTER)) or any(folder.glob("*.gguf"))
    if not exported or (folder / TRAIN_LOG).exists():
        run = folder if folder.exists() else "RUN"
        raise UserError(f"MODEL: found {folder}, which is no export. First: make export MODEL={run}.")
    if not (folder / README).is_file():
        raise UserError(
            f"{folder / README}: no such file. make export writes it for a run of this suite. Write one: what it is, "
            "its base and its licence."
        )
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and (path.name in NAMES or any(kind.fullmatch(path.name) for kind in KINDS))
    )


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/push.py", __doc__)
    parser.add_argument("model", type=Path, help="exported directory")
    parser.add_argument("to", metavar="HUB:OWNER/NAME", help="hf, modelscope or aistudio, and the repository there")
    parser.add_argument("--private", type=int, choices=[0, 1], default=1, help="of a new repository; default: 1")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], GOES_ON))
