"""One run as it was requested: what recipe, preflight, plan and fit take, read from its arguments once."""

import json
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from launch.config.aliases import todays_flags
from launch.config.argument_files import is_argument_file, read_arguments
from launch.config.flag_values import Flags, FlagValues, flag_arguments, overridden, parse_flags
from launch.config.layout import Layout
from launch.methods.method import Method
from launch.methods.registry import find_method, method_of

# Of --pipeline_parallel_config: paddle/distributed/fleet/meta_parallel/pp_utils/p2p_communication.py, P2pHelper.
SENDS_SHAPES = "disable_p2p_cache_shape"


@dataclass(frozen=True)
class Nodes:
    """The machines of a run.

    Attributes:
        count: How many.
        rank: This one's number, from 0.
        master: "host:port" of node 0, where all meet; None on one node.
        source: Where these came from, for messages.
        hosts: Names of all nodes where a scheduler states them, else empty.
    """

    count: int = 1
    rank: int = 0
    master: str | None = None
    source: str = ""
    hosts: tuple[str, ...] = ()

    def name(self, rank: int) -> str:
        """Return a node's name, such as "node 1 (gpu02)"."""
        return f"node {rank} ({self.hosts[rank]})" if self.hosts else f"node {rank}"

    def describe(self) -> str:
        """Return a line about the nodes."""
        return f"{self.count}, this is {self.rank}, they meet at {self.master} ({self.source})"


ONE_NODE = Nodes()
# Set by a recipe for the ranks that it starts: a file with the run that it has read and checked, as JSON.
HANDED_OVER = "LAUNCH_RUN_CONFIG"


@dataclass(frozen=True)
class RunConfig:
    """One run of a training method, as the user requested it.

    Attributes:
        script: Path or name of the method's script, or the method's name.
        explicit: Its explicit flags, by today's names.
        devices: Numbers of this machine's cards that it uses, empty for a CPU.
        gpu_memory_gb: Memory it needs on each card, 0 where unknown.
        card: The kind of its cards, where the user has named it.
        processes: Ranks of all nodes together.
        nodes: The machines it runs on, and which of them this is.
        network: What joins them, where the user has named it.
        recipe_layout: The recipe's own where the user has requested another number of processes, or a file of
            arguments without a batch another layout: an explicit accumulation then counts for the recipe's
            (launch/config/layout.py).
        own: The flags of the user's ARGS and command line, which advice repeats and FIT leaves alone.
        fitted: Flags of `explicit` that FIT has changed; None where the run is not fitted.
    """

    script: str
    explicit: Flags = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    gpu_memory_gb: int = 0
    card: str = ""
    processes: int = 1
    nodes: Nodes = ONE_NODE
    network: str = ""
    recipe_layout: Layout | None = None
    own: Flags = field(default_factory=dict)
    fitted: Flags | None = None

    @classmethod
    def from_arguments(cls, script: str, argv: list[str], processes: int = 1) -> tuple["RunConfig", list[str]]:
        """Return the run of a command line, and lines about its file of arguments and flags that had another name.

        A file is the first word, and flags behind it win.

        Raises:
            UserError: For a word of no flag, and for a file that cannot be used.
        """
        from_file, lines = {}, []
        if argv and is_argument_file(argv[0]):
            from_file, lines = read_arguments(argv[0], script)
            argv = argv[1:]
        flags, renamed = todays_flags(parse_flags(argv))
        return cls(script, overridden(from_file, flags), processes=processes), lines + renamed

    @classmethod
    def of_rank(
        cls, script: str, argv: list[str], environment: Mapping[str, str]
    ) -> tuple["RunConfig", list[str], bool]:
        """Return the run of this rank, lines to print, and whether a recipe has handed it over, checked already.

        A rank that was started by hand reads its command line. So does one that a recipe's rank has started with
        another command line: the inherited run is not its own.
        """
        processes = int(environment.get("PADDLE_TRAINERS_NUM", "1"))
        run = cls.read(environment.get(HANDED_OVER, ""))
        mine = find_method(script), processes, argv
        if run and (run.method, run.processes, flag_arguments(run.explicit)) == mine:
            return run, [], True
        run, lines = cls.from_arguments(script, argv, processes)
        return run, lines, False

    @classmethod
    def read(cls, file: str) -> "RunConfig | None":
        """Return the run that `hand_over` wrote; None for other files, such as another version's of this repository."""
        try:
            fields = json.loads(Path(file).read_text(encoding="utf-8"))
            nodes, layout = fields["nodes"], fields["recipe_layout"]
            return cls(
                **fields
                | {
                    "devices": tuple(fields["devices"]),
                    "nodes": Nodes(**nodes | {"hosts": tuple(nodes["hosts"])}),
                    "recipe_layout": Layout(**layout) if layout else None,
                }
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @contextmanager
    def hand_over(self, environment: MutableMapping[str, str]) -> Iterator[None]:
        """Give the run, in a file, to the ranks that are started with this environment before the block ends."""
        with tempfile.NamedTemporaryFile("w", prefix="launch-run-", suffix=".json", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            environment[HANDED_OVER] = file.name
            yield

    def with_explicit(self, flags: Flags) -> "RunConfig":
        """Return the same run with other flags."""
        return replace(self, explicit=flags)

    def changed(self, changes: Flags) -> "RunConfig":
        """Return the same run with other values of some flags."""
        return replace(self, explicit=self.explicit | changes)

    @property
    def method(self) -> Method:
        """The method that is run.

        Raises:
            KeyError: If the script is none of a method.
        """
        return method_of(self.script)

    @cached_property
    def flags(self) -> FlagValues:
        """Values of the flags: explicit ones, else the defaults."""
        return FlagValues(self.script, self.explicit)

    @cached_property
    def layout(self) -> Layout:
        """Raises LayoutError where the processes cannot be divided as the flags ask."""
        return Layout.from_flags(self.explicit, self.processes)

    @property
    def on_cpu(self) -> bool:
        """Whether the run is on a CPU."""
        return str(self.flags.device).startswith("cpu")

    @property
    def sends_shapes(self) -> bool:
        """Whether pipeline stages must send each other the shape of each micro batch.

        A batch is as long as its longest sample.

        Stages expect the shape of the first one without the word SENDS_SHAPES.
        """
        flags = self.flags
        padded = flags.sequence_parallel or (flags.pad_to_multiple_of or 1) >= (flags.max_length or 1)
        return self.method.reads_rows and (flags.pipeline_parallel_degree or 1) > 1 and not padded

    @property
    def samples_a_data_rank(self) -> int:
        """Samples of an optimizer step on each data rank."""
        return self.flags.per_device_train_batch_size * self.flags.gradient_accumulation_steps

    @property
    def global_batch(self) -> int:
        """Samples of an optimizer step.

        Raises:
            LayoutError: As `layout` does.
        """
        return self.layout.data_ranks * self.samples_a_data_rank
