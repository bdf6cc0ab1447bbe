"""Host memory that loading takes beyond a rank's own parameters: ours, and paddlenlp's from_pretrained.

    .venv/bin/python benchmarks/loading.py

A LLaMA of 252 MB in float32 (60 layers, largest tensor 1 MB) is loaded in several layouts from one safetensors file,
from eight with an index, and from one .pdparams file. Shown: MB of resident memory beyond the parameters of rank 0
(VmHWM, mapped pages of files included) and seconds, of both ways in fresh processes.
"""

import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from tests.checkpoint.loading_memory import MB, write_checkpoint
from tests.ranks import RankServer

LAYOUTS = {
    "single": (1, {}),
    "tensor parallel 2": (2, {"tensor_parallel_degree": 2}),
    "pipeline parallel 2": (2, {"pipeline_parallel_degree": 2}),
    "both": (4, {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}),
    "sharding stage 2": (2, {"sharding": "stage2"}),
    "sharding stage 3": (2, {"sharding": "stage3"}),
}
FILES = ("single", "sharded", "pdparams")
WAYS = ("from_pretrained", "ours")


def main() -> None:
    """Run the command."""
    ranks = RankServer()
    table = Table(title="MB beyond the parameters of rank 0; seconds")
    for heading in ("layout", "files", "parameters", *WAYS):
        table.add_column(heading, justify="left" if heading in ("layout", "files") else "right")
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, "tests.checkpoint.loading_ranks:save_models", directory, ["llama"])
        for files in FILES:
            write_checkpoint(f"{directory}/{files}", files)
        for layout, (processes, flags) in LAYOUTS.items():
            for files in FILES:
                table.add_row(layout, files, *measure(ranks, directory, processes, flags, files))
    ranks.close()
    Console(width=100).print(table)


def measure(ranks: RankServer, directory: str, processes: int, flags: dict, files: str) -> list[str]:
    """Return [MB of parameters, "MB; seconds" of each way]."""
    warm_up, checkpoint = f"{directory}/llama/{files}", f"{directory}/{files}"
    peaks = [
        ranks(processes, "tests.checkpoint.loading_memory:peak", warm_up, checkpoint, flags, way)[0] for way in WAYS
    ]
    cells = [f"{peak['host'] / MB:.0f}; {peak['seconds']:.1f} s" for peak in peaks]
    return [f"{peaks[0]['parameters'] / MB:.0f}", *cells]


if __name__ == "__main__":
    main()
