"""What is evaluated: tasks of lm-eval, asked with the rows of local files.

A task's prompts, examples, filters and measures are those of its definition: one that lm-eval ships, one in YAML from
elsewhere, which may run no code, or one of launch/evaluation/own_tasks.py. Its data set is replaced by the files.
"""

# pyright: reportMissingImports=false

import argparse
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from datasets import Dataset, DatasetDict
from lm_eval.api.group import Group
from lm_eval.api.registry import AGGREGATION_REGISTRY, metric_registry
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Entry, Kind
from lm_eval.tasks._yaml_loader import load_yaml

from data_tools.formats.benchmarks.files import PLACE, SPLITS, SUBJECT, files_of, find_form, read_benchmark
from data_tools.formats.benchmarks.published import FORMS
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted, require_file, shown
from data_tools.formats.plural import plural
from data_tools.text.sources import find_files, read_documents
from launch.errors import UserError
from launch.evaluation.harness import SHIPPED
from launch.evaluation.own_tasks import PROMPTS, TEXT, TEXT_TASK, DialogueTask, written_task

# From the name of a form to lm-eval's file, and the files of its subjects.
KNOWN = {
    "mmlu": ("mmlu/default/_mmlu.yaml", "mmlu/default/mmlu_*.yaml"),
    "ceval": ("ceval/_ceval-valid.yaml", "ceval/ceval-valid_*.yaml"),
    "cmmlu": ("cmmlu/_cmmlu.yaml", "cmmlu/cmmlu_*.yaml"),
    "arc": ("arc/arc_easy.yaml",),
    "hellaswag": ("hellaswag/hellaswag.yaml",),
    "boolq": ("super_glue/boolq/default.yaml",),
    "piqa": ("piqa/piqa.yaml",),
    "winogrande": ("winogrande/default.yaml",),
    "gsm8k": ("gsm8k/gsm8k.yaml",),
}
NAMES = ", ".join((*FORMS, TEXT))
EVALUATED = ("test", "val", "dev")  # the first that is there, where neither --split nor the task says one
EXAMPLES = ("dev", "train", "val")
SEED = 1234  # of the examples that are drawn, as lm-eval has it
# What a task from elsewhere may not say: each runs code, or reads other data.
FORBIDDEN = {"class", "custom_dataset", "use_prompt", "unsafe_code", "group", "task_list"}
# What is read of it before lm-eval checks it, and bounds of what would be computed without end.
TYPES = {"metric_list": list, "filter_list": list, "generation_kwargs": dict, "fewshot_config": dict, "repeats": int}
MOST_REPEATS, LONGEST_NAME, LARGEST_FILE = 1024, 200, 1 << 20
REPLACED = {"dataset_path", "dataset_name", "dataset_kwargs", "tag", "group", "task_list"}


@dataclass
class Benchmark:
    """A named benchmark: one task of lm-eval, or one for each subject.

    Attributes:
        group: That adds the subjects up.
        notes: For people, before it is evaluated.
    """

    name: str
    tasks: dict[str, ConfigurableTask]
    group: Group | None = None
    notes: list[str] = field(default_factory=list)


def load_tasks(named: list[str], args: argparse.Namespace) -> list[Benchmark]:
    """Return the tasks of --tasks.

    Args:
        named: The values of the flag.
        args: Has split and num_fewshot, None for the task's own, and text_key and max_bad_lines of texts.

    Raises:
        UserError: For a name or a flag that does not fit.
        DataError: For files that cannot be used.
    """
    random.seed(0)  # as lm-eval does, for definitions that draw
    np.random.seed(SEED)
    found: list[Benchmark] = []
    for each in named:
        benchmark = _load(each, args)
        taken = {name for other in found for name in (other.name, *other.tasks)}
        twice = sorted(taken & {benchmark.name, *benchmark.tasks})
        if twice:
            raise UserError(f"--tasks: found {twice[0]} twice. Evaluate each alone, with its own --output_file.")
        found.append(benchmark)
    return found


def _load(named: str, args: argparse.Namespace) -> Benchmark:
    name, separator, text = named.partition("=") if "=" in named else ("", "", named)
    path = Path(text)
    if not text or separator and not name:
        raise UserError(
            f"--tasks: found {named!r}, allowed: NAME=PATH, or PATH alone, with NAME one of {NAMES}, or a task or "
            "group of lm-eval."
        )
    if name == TEXT:
        documents = read_documents(find_files([text]), args.text_key, args.max_bad_lines)
        rows = [{"text": each.text, PLACE: each.where} for each in documents if each.text.strip()]
        task = _task(TEXT_TASK, {"test": rows}, "test", path) if rows else None
        if not task:
            raise UserError(f"--tasks {named}: no texts there. Name files with texts (docs/data.md).")
        return Benchmark(TEXT, {TEXT: task})
    own = [path] if path.suffix == ".yaml" else sorted(path.glob("*.yaml"))
    if len(own) == 1 and not name:
        config = foreign_config(own[0])
        return _benchmark(config["task"], [config], None, _Rows(own[0].parent, None, args))
    files = files_of(path)
    name = name or find_form(files[next((split for split in (args.split, *EVALUATED) if split in files), "train")])
    rows = _Rows(path, name if name in FORMS else None, args)
    if name in PROMPTS:
        right = (answer for row in rows.read(rows.evaluated({})) for answer in row["answers"])
        return _benchmark(name, [written_task(name, right)], None, rows)
    return _benchmark(name, *_shipped(name), rows)


# ---- definitions


def _shipped(name: str) -> tuple[list[dict], dict | None]:
    """Return (definitions of lm-eval's tasks, their group's or None) by the name of a form or lm-eval's own."""
    if name in KNOWN:
        whole, *subjects = (sorted(SHIPPED.glob(pattern)) for pattern in KNOWN[name])
        group = load_yaml(whole[0])
        return ([load_yaml(each) for each in subjects[0]], group) if subjects else ([group | {"task": name}], None)
    known = TaskManager().task_index  # ten seconds: it reads all definitions
    if name not in known:
        near = difflib.get_close_matches(name, known)
        raise UserError(
            f"--tasks: {name!r} is neither one of {NAMES} nor a task or group of lm-eval; near to it are: "
            f"{', '.join(near) or 'none'}."
        )
    return list(_leaves(known[name], known)), None if known[name].kind is Kind.TASK else known[name].cfg or {}


def _leaves(entry: Entry, known: dict[str, Entry]) -> Iterator[dict]:
    """Yield the tasks of a name. Raises UserError for tasks that are more than a YAML file and rows."""
    if entry.kind is Kind.TASK:
        assert entry.yaml_path
        try:
            yield load_yaml(entry.yaml_path)
        except Exception as error:  # the functions of a definition may import anything, and fetch
            raise UserError(f"--tasks: {entry.name} of lm-eval cannot be read without a network: {error}") from None
        return
    members = sorted(entry.tags) if entry.kind is Kind.TAG else (entry.cfg or {}).get("task")
    for member in members if isinstance(members, list) else [members]:
        if not isinstance(member, str) or entry.kind is Kind.PY_TASK:
            raise UserError(f"--tasks: {entry.name} is not read: lm-eval makes it by code. Name one of its tasks.")
        yield from _leaves(known[member], known)


class _Strict(yaml.SafeLoader):
    """YAML that makes values only."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merges: mappings that merge each other have as many keys as ten to the power of their lines."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise DataError("<<: keys of another mapping are not merged. Write them out.")


def _refuse_function(loader: yaml.Loader, node: yaml.Node):
    raise DataError(
        f"!function {node.value}: code of a data folder is never run. Write it as a template, or name a task that "
        "lm-eval ships."
    )


_Strict.add_constructor("!function", _refuse_function)


def foreign_config(path: Path) -> dict:
    """Return a task in YAML from elsewhere.

    It may include lm-eval's own files, which may name functions of theirs.

    Raises:
        DataError: If it is no task, or would run code.
    """
    require_file(path)
    try:
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise DataError(f"found {size:,} bytes, allowed for a task: {LARGEST_FILE:,}.")
        config = yaml.load(path.read_bytes(), Loader=_Strict)  # noqa: S506 - a SafeLoader
        if not isinstance(config, dict) or not isinstance(config.get("task"), str):
            raise DataError("expected an object with a key task, the name of the task.")
        for key in FORBIDDEN & config.keys():
            raise DataError(f"{key}: code, data or groups of elsewhere are not taken. Leave the key out.")
        included = config.pop("include", [])
        for each in included if isinstance(included, list) else [included]:
            file = (SHIPPED / str(each)).resolve()
            if not file.is_relative_to(SHIPPED) or not file.is_file():
                raise DataError(f"include: found {shown(each)}, expected a file of lm-eval's folder of tasks.")
            config = load_yaml(file) | config
        _check_types(config)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from None
    except RecursionError:
        raise DataError(f"{path}: lists or objects are nested too deeply.") from None
    except (DataError, yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None
    return config


def _check_types(config: dict) -> None:
    """Raise DataError for a value of another type than lm-eval reads there, or out of bounds."""
    for key, kind in TYPES.items():
        if config.get(key) is not None and type(config[key]) is not kind:
            raise DataError(f"{key}: found {quoted(type(config[key]).__name__)}, expected {kind.__name__}.")
    if not all(isinstance(each, dict) for key in ("metric_list", "filter_list") for each in config.get(key) or []):
        raise DataError("metric_list, filter_list: expected a list of objects.")
    if not 1 <= (config.get("repeats") or 1) <= MOST_REPEATS:
        raise DataError(f"repeats: found {shown(config['repeats'])}, allowed: 1 to {MOST_REPEATS:,}.")
    until = (config.get("generation_kwargs") or {}).get("until") or []
    if not all(isinstance(end, str) for end in (until if isinstance(until, list) else [until])):
        raise DataError("generation_kwargs: until: expected a text, or a list of texts.")
    for key in ("task", "task_alias"):
        name = config.get(key) or ""
        if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_NAME:
            raise DataError(f"{key}: found {quoted(name)}, expected a name of at most {LONGEST_NAME} characters.")


def _check_measures(config: dict) -> None:
    """Raise UserError where lm-eval would fetch the code of a measure, or run an answer's."""
    if config.get("unsafe_code"):
        raise UserError(f"--tasks: {config['task']} runs the code that a model writes, which is not done here.")
    for each in config.get("metric_list") or []:
        metric, aggregation = each.get("metric"), each.get("aggregation")
        known = callable(metric) or metric in metric_registry or callable(config.get("process_results"))
        if each.get("hf_evaluate") or not known:
            raise UserError(
                f"--tasks: {config['task']} has the metric {shown(metric)}, which is no code of lm-eval; its own are "
                f"{', '.join(sorted(metric_registry))}."
            )
        if not (aggregation is None or callable(aggregation) or aggregation in AGGREGATION_REGISTRY):
            raise UserError(
                f"--tasks: {config['task']} has the aggregation {shown(aggregation)}, allowed: "
                f"{', '.join(sorted(AGGREGATION_REGISTRY))}."
            )


# ---- rows for them


class _Rows:
    """The rows of a folder or file by split, each read when it is requested. form: whose columns they are put into."""

    def __init__(self, path: Path, form: str | None, args: argparse.Namespace):
        self.path, self.args, self.files = path, args, files_of(path)
        self.read = cache(lambda split: read_benchmark(self.files[split], form))

    def evaluated(self, config: dict) -> str:
        """Return the split that is evaluated: the named one, the task's own, or the first that is there."""
        own = SPLITS.get(str(config.get("test_split") or config.get("validation_split")), "test")
        wanted = [self.args.split] if self.args.split else [own, *EVALUATED]
        found = next((split for split in wanted if split in self.files), None)
        if found is None:
            raise DataError(
                f"{self.path}: no files of the split {self.args.split or ', '.join(EVALUATED)}; there are those of "
                f"{', '.join(sorted(self.files))}. Name one of these: --split."
            )
        return found

    def examples(self, config: dict, shots: int, evaluated: str, subject: str | None) -> tuple[str, list[dict]]:
        """Return (the split that gives examples, its rows).

        It is the task's own, or the first that is there and is not evaluated.
        """
        stated = [(config.get("fewshot_config") or {}).get("split"), config.get("fewshot_split")]
        own = [*stated, config.get("training_split"), config.get("validation_split")]
        wanted = [*(SPLITS.get(str(split)) for split in own), *EXAMPLES]
        found = next((split for split in wanted if split in self.files and split != evaluated), None)
        if found is None:
            raise DataError(
                f"{self.path}: no files to take {shots} examples from: a folder with a split named "
                f"{', '.join(EXAMPLES)} beside the evaluated one has them. Or ask without: --num_fewshot 0."
            )
        rows = self.of_subject(found, subject)
        # lm-eval draws one more where neither a test nor examples have a split of their own.
        drawn = shots + (not any([*stated, config.get("test_split")]))
        if len(rows) < drawn:
            place = f"{self.path}, {subject}" if subject else self.path
            raise DataError(
                f"{place}: --num_fewshot: found {shots}, for which {drawn} examples are needed; the split {found} has "
                f"{len(rows)}. Ask for fewer, or add some."
            )
        return found, rows

    def of_subject(self, split: str, subject: str | None) -> list[dict]:
        return [row for row in self.read(split) if subject in (None, row[SUBJECT])]


def _benchmark(name: str, configs: list[dict], group: dict | None, rows: _Rows) -> Benchmark:
    evaluated = rows.read(rows.evaluated(configs[0]))
    subjects = {str(config.get("dataset_name")) for config in configs}
    by_subject = group is not None and (name in FORMS or any(row[SUBJECT] in subjects for row in evaluated))
    other = next((row for row in evaluated if by_subject and row[SUBJECT] not in subjects), None)
    if other:
        raise DataError(
            f"{other[PLACE]}: the subject {other[SUBJECT]!r} is none of lm-eval's {name}. Name the file or the key "
            f"subject after one of {', '.join(sorted(subjects)[:3])}, ...; or name a task: {configs[0]['task']}=PATH."
        )
    found = (_with_rows(each, rows, str(each.get("dataset_name")) if by_subject else None) for each in configs)
    benchmark = Benchmark(name, {task.task_name: task for task in found if task})
    places = {dict(doc).get(PLACE) for task in benchmark.tasks.values() for doc in task.eval_docs}
    left = [row[PLACE] for row in evaluated if places != {None} and row[PLACE] not in places]
    if not benchmark.tasks:
        raise DataError(f"{rows.path}: none of its rows is one that {name} asks. Name another task.")
    if left:
        benchmark.notes.append(f"{name}: {plural(len(left), 'row')} left out by its definition, the first {left[0]}")
    if rows.args.num_fewshot and configs[0].get("num_fewshot") == 0:
        benchmark.notes.append(f"{name}: its definition takes no examples, whatever --num_fewshot says")
    if group is not None:
        kept = {key: group[key] for key in ("aggregate_metric_list", "metadata") if key in group}
        benchmark.group = named = Group.from_config({"group": name, **kept})
        for task in benchmark.tasks.values():
            named.add(task)
    return benchmark


def _with_rows(config: dict, rows: _Rows, subject: str | None) -> ConfigurableTask | None:
    """Return the task with its rows; None where there are none for it."""
    _check_measures(config)
    test, own = rows.evaluated(config), config.get("num_fewshot")
    data, settings = {test: rows.of_subject(test, subject)}, dict(config.get("fewshot_config") or {})
    if not data[test]:
        return None
    shots = (own if rows.args.num_fewshot is None or own == 0 else rows.args.num_fewshot) or 0
    # Splits stay in the keys that the definition uses, so that it draws as it does with its own data set.
    splits = dict.fromkeys(("training_split", "validation_split", "test_split", "fewshot_split"))
    splits["test_split" if config.get("test_split") else "validation_split"] = test
    if shots and "samples" not in settings:
        split, data_of_examples = rows.examples(config, shots, test, subject)
        data[split] = data_of_examples
        splits["fewshot_split" if config.get("fewshot_split") or settings.get("split") else "training_split"] = split
    settings.pop("split", None)
    more = {"num_fewshot": shots, "fewshot_config": settings or None}
    return _task(config | splits | more, data, test, rows.path)


def _task(config: dict, data: dict[str, list[dict]], test: str, path: Path) -> ConfigurableTask | None:
    """Return lm-eval's task with these rows instead of its data set; None where it asks none of them.

    test: the split that is evaluated. Raises DataError, with the place, where the rows do not fit the task.
    """
    config = {key: value for key, value in config.items() if key not in REPLACED}
    place = str(path)
    try:
        tables = DatasetDict()
        for split, rows in data.items():
            keys = dict.fromkeys(key for row in rows for key in row)
            tables[split] = Dataset.from_dict({key: [row.get(key) for row in rows] for key in keys})
        docs = tables[test]
        if config.get("process_docs"):  # once: lm-eval does so again and again, and some draw at random
            config["process_docs"] = cache(config["process_docs"])
            docs = config["process_docs"](docs)
        if not len(docs):
            return None
        place = docs[0].get(PLACE, place)
        task = DialogueTask(config=config | {"custom_dataset": lambda **_: tables})
        for doc in map(dict, docs if task.OUTPUT_TYPE == "multiple_choice" else ()):
            place = doc.get(PLACE, place)
            _check_choices(task, doc)
        task.set_fewshot_seed(SEED)
        task.build_all_requests(limit=1)  # what else cannot be asked is said before the model is read
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    except Exception as error:  # the functions of a definition may raise anything for rows that are not its own
        raise DataError(
            f"{place}: no row of lm-eval's task {config['task']}: {type(error).__name__}: {error}."
        ) from None
    task.set_fewshot_seed(SEED)
    return task


def _check_choices(task: ConfigurableTask, doc: dict) -> None:
    """Raise DataError where a choice is blank, or the right answer is none of the choices.

    lm-eval would count the question as wrong.
    """
    choices, target = task.doc_to_choice(doc), task.doc_to_target(doc)
    right = task.doc_to_text(doc) if task.multiple_input else target
    for number, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice.strip():
            raise DataError(f"choice {number}, counted from 0, has no text.")
    if task.multiple_input and not str(target).strip():
        raise DataError("nothing stands behind the gap, which is what is scored.")
    for one in right if isinstance(right, list) else [right]:
        if one not in (range(len(choices)) if isinstance(one, int) else choices):
            raise DataError(
                f"found {quoted(one)} as the answer, the choices are {len(choices)}. Mend the row; without an answer, "
                "as in files for a leaderboard, take a split that has them: --split val."
            )
