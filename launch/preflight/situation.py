"""What is about to start, as the checks see it."""

from dataclasses import dataclass, field
from pathlib import Path

from launch.config.flag_values import Flags
from launch.config.layout import Layout
from launch.nodes.place import ONE_NODE, Nodes


@dataclass(frozen=True)
class Situation:
    """One run of a shared module.

    script:        path or name of the shared module
    flags:         its flags, parsed
    devices:       numbers of this machine's cards that it uses, empty for a CPU
    gpu_memory_gb: memory it needs on each card, 0 where unknown
    card:          the kind of its cards, where the user has named it
    processes:     ranks of all nodes together
    nodes:         the machines it runs on, and which of them this is
    stated:        the recipe's own layout where the user has asked for another number of processes: a stated
                   accumulation then counts for that layout (launch/config/layout.py)
    own:           the flags of the user's ARGS, which advice repeats: what is pasted takes their place
    starts:        whether the run is to start in its output directory now; False in its own ranks, and on further nodes
    shows:         whether findings without a fault are shown; where not, what costs time to find is left out
    """

    script: str
    flags: Flags = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    gpu_memory_gb: int = 0
    card: str = ""
    processes: int = 1
    nodes: Nodes = ONE_NODE
    stated: Layout | None = None
    own: Flags = field(default_factory=dict)
    starts: bool = True
    shows: bool = True

    @property
    def finetunes(self) -> bool:
        """Whether the shared module reads dialogues, not token files."""
        return Path(self.script).stem == "finetune_generation"
