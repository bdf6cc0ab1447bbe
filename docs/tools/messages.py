"""Bring data_tools/locale/zh.po up to date with the messages in the code.

    python -m docs.tools.messages

Messages are the texts of errors, findings and rules anywhere, and all sentences of the rooms that talk to the user
before a run. New ones are added without a translation, which a test then misses; those that are gone are left out.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from data_tools.cli import BEGINS_ANEW, GOES_ON, Parser
from data_tools.dialogues.samples import COUNTS
from data_tools.language import CATALOG, read_po
from data_tools.tokenize import GOES_ON_WITHOUT_RESTART
from launch.commands import demo, demo_finetune
from launch.config.recipe_file import load_recipes
from launch.environment import targets
from launch.guard import guarded
from launch.plan.memory_model import PARTS
from launch.plan.step import BACKWARD, FORWARD, LOADING, OPTIMIZER
from launch.plan.time_plan import STEP_PARTS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("launch", "data_tools")
# Calls whose texts are messages, wherever they stand.
CALLS = {"ArgumentFiles", "UserError", "DataError", "RowError", "Finding", "Rule", "Misfits"}
# Files and folders all of whose sentences are messages.
ROOMS = (
    "launch/recipe.py",
    "launch/commands/plan_run.py",
    "launch/commands/fit.py",
    "launch/commands/config_from.py",
    "launch/commands/doctor.py",
    "launch/commands/download.py",
    "launch/commands/demo_chat.py",
    "launch/commands/demo_tools.py",
    "launch/commands/demo_grpo.py",
    "launch/commands/push.py",
    "launch/hubs/hub.py",
    "launch/environment/doctor_checks.py",
    "launch/config/aliases.py",
    "launch/config/argument_files.py",
    "launch/config/flag.py",
    "launch/config/flag_values.py",
    "launch/config/key_files.py",
    "launch/config/layout.py",
    "launch/config/paddleformers.py",
    "launch/config/removed.py",
    "launch/config/variables.py",
    "launch/config/recipe_file.py",
    "launch/families/named_configs.py",
    "launch/kubernetes.py",
    "launch/nodes",
    "launch/plan/memory_model.py",
    "launch/plan/plan_report.py",
    "launch/plan/search.py",
    "launch/plan/variations.py",
    "launch/plan/work.py",
    "launch/preflight",
    "launch/processes/logs.py",
    "launch/processes/supervise.py",
    "launch/weights/peft_keys.py",
)
# Words that stand alone in the tables and lines of a plan, and in front of messages.
TERMS = (
    *("fix", "interrupted", "interrupted: {0}", "error: {0}", "warning: {0}", "layers", "together"),
    *("{0} needed", "{0} of {1} GB needed", "here: {0}", "chosen: {0}", "none"),
    *("loading", "forward", "backward", "optimizer step", "optimizer", "checkpoint"),
    *("allowed: {0}", "{0}, stage {1}", "found {0}", "above {0}", "at least {0}", "above {0} and at most {1}"),
    *("at least {0} and at most {1}", "at least {0} and below {1}"),
    *(
        GOES_ON,
        GOES_ON_WITHOUT_RESTART,
        BEGINS_ANEW,
        demo.INTERRUPTED,
        demo.EVALUATIONS,
        demo.KNOWS,
        demo_finetune.INTERRUPTED,
    ),
    *("Free the disk", "Make the output directory writable", "Leave more host memory to the ranks"),
    *("RMSNorm", "the framework's own RMSNorm", "--use_flash_attention auto for exact attention"),
    "fused RMSNorm: {0}, if the start finds it right ({1})",
    *("{0} minutes", "{0} hours", "{0} days", "{0} steps", "{0} process", "{0} processes", "{0} card", "{0} cards"),
    *(
        "{0} rank",
        "{0} ranks",
        "here: none",
        "Download",
        "{0} s–{1} minutes",
        "{0} minutes–{1} hours",
        "{0} hours–{1} days",
    ),
    # What the commands of data print, and mistakes in their arguments.
    *(
        f"{{0}} {noun} in dev.json: of so few rows set more aside, --dev_percent {{1}}"
        for noun in ("dialogue", "dialogues")
    ),
    "no dev.json, which an evaluation needs: of so few rows set more aside, --dev_percent {0}",
    *("form: {0}", "keys that are not used: {0}", "{0} repeated dialogues dropped", "{0} repeated rows dropped"),
    *("{0} broken rows left out", "next, on a card: {0}; here: {1}", "{0} row", "{0} rows", "`{0}` lists all"),
    *("the following arguments are required: {0}", "argument {0}: {1}", "unknown argument {0}, did you mean {1}?"),
    *("expected a whole number above 0", "expected a whole number, 0 or more", "expected a port, 0 to 65535"),
    *("expected a number above 0", "expected a number from 0 to 1", "expected a number from 0 to 100"),
    *("unknown argument {0}", "expected one argument", "expected at least one argument"),
    *(
        "rehearsing {0}: {1} on the CPU, all as in the recipe except",
        "rehearsed. Logs of all ranks: {0}; the real run: {1}",
    ),
    *("{0} corpus, {1} tokens", "{0} corpora, {1} tokens", "± {0} (docs/plan.md)"),
    *(
        "{0} broken row",
        "{0} broken rows",
        "{0} checks, {1}",
        "{0} with {1} cores and {2}",
        "{0} has {1} GiB of memory",
    ),
    *(f"{{0}} GiB at the peak ({phase})" for phase in (LOADING, FORWARD, BACKWARD, OPTIMIZER)),
    *(
        f"{fits}: {{0}} GiB at the peak ({phase}, stage {{1}}), {{2}}"
        for fits in ("fits", "DOES NOT FIT")
        for phase in (LOADING, FORWARD, BACKWARD, OPTIMIZER)
    ),
    *("recompute full", "recompute full_attn", "recompute core_attn"),
    *("a directory", "a file", "a link", "a special file"),
    *("a number", "stage {0}", "fits: {0}, {1}{2}", "other {0}", "sampling: {0}", "learning: {0}"),
    # Why a row of data cannot be read, and how rows are read.
    *("not JSON, {0} at column {1}", "chat template: {0}", "none, the bare texts"),
    # Pieces of which the lines of checks, plans and advice are made.
    *("off", "offload", "rotary embedding", "separate operators", "no GPU"),
    *("the module {0} is not built: make custom-ops", "{0} (of the model's family)", "tight", "{0} GB free"),
    *("{0} GB free at {1}", "{0} GB needed", "{0} GiB", "{0} of {1} GiB", "{0} tokens/s", "time a token x {0}"),
    *("data parallel {0}", "sharding {0} {1}", "sequence parallel", "{0} files", "{0} file"),
    *(f"{split} {{0}} {rows}{s}" for split in ("train", "dev") for rows in ("dialogue", "pair") for s in ("", "s")),
    *("{0} weight + {1} float32 copy + {2} AdamW",),
    *("a sample; its target tokens stand in [[ ]]:", "Make them from text: {0}"),
    *("; ".join(f'({n + 1}) ARGS="{{{2 * n}}}": {{{2 * n + 1}}}' for n in range(count)) for count in (1, 2, 3)),
    # Lines of FIT's that begin with another term.
    "optimizer and gradients in host memory: {0} GiB, time a token x {1}",
    "optimizer in host memory between steps: {0} GiB, time a token x {1}",
    *PARTS,
    *(f"{part} {{0}}" for part in STEP_PARTS),
    *(f"{part} {{0}}" for part in ("process", "data workers", "checkpoint", "kept checkpoints", "model", "adapter")),
)


def _numbered(summary: str) -> str:
    """The summary of a recipe with places for the name of its model and for its numbers."""
    places = count()
    return re.sub(r"^\S+-\d+\S*|\b\d+\b", lambda _: f"{{{next(places)}}}", summary)


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
[TOOLS] = re.findall(r"^DATA_TOOLS := (.*)$", MAKEFILE, re.MULTILINE)
COUNTED = ("question", "answer", "later turn", "prompt", "response", "dialogue", "pair", "sample")
TERMS += (
    *(f"{{0}} {noun}{ending}" for noun in COUNTED for ending in ("", "s")),
    *(f"{{0}} {noun}{ending} {what}" for noun, what in COUNTS.values() for ending in ("", "s")),
    *("cut: {0}", "nothing cut", "{0} of answers within a token", "raise --src_length and --max_length"),
    *re.findall(r"^[a-z-]+:.*?## (.*)", MAKEFILE, re.MULTILINE),
    *(targets.USAGE, targets.VARIABLES_TITLE, *(text for _, text in targets.VARIABLES)),
    "Recipes X (rehearse-X: tiny, on a CPU; plan-X: memory, time; print-X: command; k8s-X: Kubernetes)",
    *(_numbered(recipe.summary) for recipe in load_recipes(ROOT)),
    *(
        (ROOT / "data_tools" / f"{tool}.py").read_text(encoding="utf-8").splitlines()[0].strip('r"')
        for tool in TOOLS.split()
    ),
    *("raise --src_length", "dropped: {0} whose responses are the same when cut, the first {1}"),
)
GENERATORS = {"flag_help"}  # functions whose text is the list of flags
NOT_FOR_USERS = {"source", "help", "metavar", "prog", "metadata", "doc"}  # names of arguments
OTHER_CALLS = {"add_argument", "compile", "Parser", "markdown"}
FILLED_IN = "\0"  # stands for a value of an f-string
PLACES = re.compile(r"\{run[^}]*\}|\0")  # in rules, which str.format fills, and in f-strings
NO_MESSAGE = re.compile(r"\^|\w+(/\w+)+\.py|Traceback \(")  # patterns, places in upstream's sources, Python's own
SENTENCE = re.compile(r"[A-Za-z]{2,}[,;:.]? +\(?[A-Za-z]{2,}")


def messages() -> list[str]:
    """All templates in the order of files and lines, each once."""
    found = (text for path in source_files() for text in messages_of(path))
    return list(dict.fromkeys([*TERMS, *found]))


def source_files() -> list[Path]:
    files = (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if "_pb2" not in path.name)


def messages_of(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(ROOT).as_posix()
    in_room = any(name == room or name.startswith(f"{room}/") for room in ROOMS)
    yield from _texts(tree, in_room)


def _texts(node: ast.AST, wanted: bool) -> Iterator[str]:
    """Templates below a node. wanted: whether every sentence here is a message."""
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in OTHER_CALLS:
            return
        wanted = wanted or name in CALLS
        subject = node.args[1] if name == "Finding" and len(node.args) > 1 else None
        if isinstance(subject, ast.Constant) and not str(subject.value).startswith("--"):
            yield str(subject.value)
    if isinstance(node, ast.keyword) and node.arg in NOT_FOR_USERS:
        return
    if isinstance(node, ast.FunctionDef) and node.name in GENERATORS:
        return
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
        children: list[ast.AST] = [*node.body[1:], *getattr(node, "decorator_list", [])]
    else:
        children = list(ast.iter_child_nodes(node))
    text = _template(node)
    if text is not None:
        if wanted and SENTENCE.search(text) and not NO_MESSAGE.match(text):
            yield text
        children = [part.value for part in getattr(node, "values", []) if isinstance(part, ast.FormattedValue)]
    for child in children:
        yield from _texts(child, wanted)


def _template(node: ast.AST) -> str | None:
    """The text of a literal with {0}, {1} ... for what is filled in; None for any other node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(part.value if isinstance(part, ast.Constant) else FILLED_IN for part in node.values)
    else:
        return None
    parts = PLACES.split(text)
    return (parts[0] + "".join(f"{{{number}}}{part}" for number, part in enumerate(parts[1:]))).strip()


def render(translations: dict[str, str]) -> str:
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: zh\\n"\n'
    entries = (f"\nmsgid {_quoted(one)}\nmsgstr {_quoted(translations.get(one, ''))}\n" for one in messages())
    return head + "".join(entries)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def main(argv: list[str]) -> None:
    Parser("python -m docs.tools.messages", __doc__).parse_args(argv)
    known = read_po(CATALOG) if CATALOG.exists() else {}
    CATALOG.parent.mkdir(exist_ok=True)
    CATALOG.write_text(render(known), encoding="utf-8")
    missing = sum(not known.get(one) for one in messages())
    print(f"{CATALOG.relative_to(ROOT)}: {len(messages())} messages, {missing} without a translation")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
