"""What the ranks of the tests of run_pretrain do."""

from tests.runs_ranks import train


def pretrain(argv: list[str]) -> dict:
    """Run launch/run_pretrain.py's main as its script does: its exit code and what it said."""
    return train("run_pretrain", argv, [])


def make_corpus(prefix: str, vocab_size: int, largest_id: int) -> None:
    """40 documents of 100 random ids up to largest_id, which occurs."""
    import numpy as np

    from data_tools.formats.tokens.indexed import IndexedWriter

    ids = np.random.default_rng(0)
    with IndexedWriter(prefix, vocab_size) as corpus:
        for _ in range(40):
            corpus.add_document([*ids.integers(0, largest_id, size=99), largest_id])


def flag_schema() -> str:
    """launch/config/flags.py as it should be."""
    from launch.training.flag_schema import render

    return render()


def arguments_of_both(runs: list) -> list[str]:
    """Attributes of the argument objects that differ from those which PaddleNLP's own parser makes of the same words.

    runs: (script, words) each. Upstream's derived values are left out: they follow from these.
    """
    import argparse
    import types
    from typing import Literal, Optional, Union, get_args, get_origin, get_type_hints

    from paddlenlp.trainer import argparser

    from launch.config.flag import switch
    from launch.config.run_config import RunConfig
    from launch.methods.registry import method_of
    from launch.training import arguments

    def hints_for_the_parser(kind) -> dict:
        """It knows Optional, but not `str | None`, and a function in the place of a type."""
        found = get_type_hints(kind)
        for name, hint in found.items():
            parts = get_args(hint) if isinstance(hint, types.UnionType) or get_origin(hint) is Union else (hint,)
            if arguments.Switch in parts:
                found[name] = switch
            elif isinstance(hint, types.UnionType):
                found[name] = Optional[parts[0]]  # noqa: UP045
        return found

    def without_bounds(parser, *names, bounds=None, **properties):
        return argparse.ArgumentParser.add_argument(parser, *names, **properties)

    assert get_origin(arguments.Switch) is Literal
    argparser.get_type_hints = hints_for_the_parser
    argparser.PdArgumentParser.add_argument = without_bounds
    arguments.RunArguments.__post_init__ = lambda self: None
    differences = []
    for script, words in runs:
        kinds = arguments.argument_classes(method_of(script))
        parser = argparser.PdArgumentParser(kinds, allow_abbrev=False)
        expected = parser.parse_args_into_dataclasses(words, look_for_args_file=False)
        run, _ = RunConfig.from_arguments(script, words)
        for made, theirs in zip(arguments.make_arguments(run), expected, strict=True):
            mine, right = vars(made), vars(theirs)
            assert mine.keys() == right.keys()
            differences += [
                f"{words}: {name}: {mine[name]!r}, by the parser {right[name]!r}"
                for name in mine
                if (mine[name], type(mine[name])) != (right[name], type(right[name]))
            ]
    return differences


def greater_is_better(names: list[str]) -> list[list[bool]]:
    """What --metric_for_best_model means as NAME and as eval_NAME, and where --greater_is_better is 0 and 1."""
    from launch.config.run_config import RunConfig
    from launch.training.arguments import make_arguments

    def meant(name: str, *stated: str) -> bool:
        words = ["--model_name_or_path", "llama-tiny", "--output_dir", "out", "--input_dir", "data", "--max_steps", "1"]
        run, _ = RunConfig.from_arguments("run_pretrain", [*words, "--metric_for_best_model", name, *stated])
        *_, training = make_arguments(run)
        return training.greater_is_better

    stated = [(name, "--greater_is_better", switch) for name in names for switch in "01"]
    return [
        [meant(name), meant(f"eval_{name}"), meant(*no), meant(*yes)]
        for name, no, yes in zip(names, stated[::2], stated[1::2], strict=True)
    ]
