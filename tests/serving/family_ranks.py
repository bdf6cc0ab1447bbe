"""Batches of a server on models of every family, for test_families.py."""

from types import SimpleNamespace


def served_and_generated(directory: str, names: list[str]) -> dict:
    """Each family's answers as rows of one batch, and by generate() one by one."""
    import time

    from launch.families.registry import FAMILIES
    from launch.generation.generate import Decoding, generate
    from launch.serving.models import answer_rows
    from launch.serving.request import Options, Row
    from launch.upstream import correct
    from tests.generation.generate_ranks import NEVER, NEW_TOKENS, load, prompts

    correct(["logits_processor_list"])
    found = {}
    for name in names:
        model, family = load(name, directory), FAMILIES[name]
        predictor = SimpleNamespace(model=model, family=family, eos=NEVER, known_ids=None)
        told = [[] for _ in prompts(name)]
        late = time.monotonic() + 600
        rows = [
            Row((name,), prompt, Options(temperature=0), NEW_TOKENS, number, late, told[number].append)
            for number, prompt in enumerate(prompts(name))
        ]
        answer_rows(predictor, rows)
        alone = [generate(model, family, [prompt], Decoding(NEW_TOKENS), NEVER)[0] for prompt in prompts(name)]
        found[name] = [[one[:-1] for one in told], alone, [one[-1] for one in told]]
    return found
