"""Batches of a server on models of every family, for test_families.py."""

from types import SimpleNamespace


def served_and_generated(directory: str, names: list[str]) -> dict:
    """Each family's answers as rows of one batch that come one after the other, and by generate() one by one."""
    import time

    from launch.families.registry import FAMILIES
    from launch.generation import key_values
    from launch.generation.generate import Decoding, generate
    from launch.serving import continuous_batch, texts
    from launch.serving.models import Served
    from launch.serving.request import Options, Row
    from launch.upstream import correct
    from tests.generation.generate_ranks import NEVER, NEW_TOKENS, load, prompts

    key_values.BLOCK = texts.BLOCK = 4
    texts.CHUNK = 8  # of prompts of up to 12 tokens
    correct(["logits_processor_list"])
    found = {}
    for name in names:
        model, family = load(name, directory), FAMILIES[name]
        alone = [generate(model, family, [prompt], Decoding(NEW_TOKENS), NEVER)[0] for prompt in prompts(name)]
        predictor = SimpleNamespace(model=model, family=family, eos=NEVER, known_ids=None, config=model.config)
        served = Served(name, predictor, None, "")
        models = {name: served}
        batch = continuous_batch.batch_for(models, 2, continuous_batch.texts_for(models, 2**20))
        told = [[] for _ in prompts(name)]
        late = time.monotonic() + 600
        waiting = [
            Row((name,), prompt, Options(temperature=0), NEW_TOKENS, number, late, told[number].append)
            for number, prompt in enumerate(prompts(name))
        ]
        steps = 0
        while waiting or batch.rows:
            taken = batch.take(waiting)
            waiting = [row for row in waiting if row not in taken]
            batch.step()
            steps += 1
        found[name] = [[one[:-1] for one in told], alone, [one[-1] for one in told], steps]
    return found
