"""Many texts in one row on models of several families, for test_packed.py."""

from launch.families.registry import FAMILIES
from tests.families.family_ranks import start_fleet, tiny, with_large_weights
from tests.generation.generate_ranks import load, prompts

# Of three texts of 9, 4 and 12 tokens, (text, tokens) of each step: chunks beside newest tokens, a place that is empty.
STEPS = (((0, 8), (1, 3)), ((0, 1), (1, 1), (2, 5)), ((2, 6),), ((2, 1),))


def saved(directory: str, names: list[str], tensor_parallel: int) -> dict[str, list]:
    """See _logits(), of saved models."""
    start_fleet(mp_degree=tensor_parallel)
    return {name: _logits(name, load(name, directory, tensor_parallel)) for name in names}


def changed(models: list[tuple[str, dict]]) -> list[list]:
    """See _logits(), of models with other configurations."""
    return [_logits(name, with_large_weights(name, **changes)) for name, changes in models]


def packed_with(name: str, changes: dict) -> bool:
    """Whether a family's texts are computed in one row, with another configuration."""
    from launch.generation.packed import packs

    return packs(FAMILIES[name], tiny(name, **changes).to_dict())


def compiled(models: list[tuple[str, dict]]) -> list[list]:
    """See changed(), with attention by the compiled operator."""
    from launch.cpu.kernels import replace_for_answers
    from launch.training.cpu_operators import compiled_operators

    operators = compiled_operators()
    made = [(name, with_large_weights(name, **changes)) for name, changes in models]
    found = [_logits(name, model, operators) for name, model in made]
    for _, model in made:
        replace_for_answers(model, operators)
    return found


def _logits(name: str, model, operators=None) -> list:
    """Of each text's last token in a row with the other texts, and then of the text alone, outside a run; [texts,
    vocabulary] each."""
    import paddle

    from launch.generation.key_values import KeyValues, Text
    from launch.generation.packed import Packed

    model.eval()
    model.config.tensor_parallel_output = False
    packed = Packed(model, FAMILIES[name])
    if operators:
        packed.compute_on_cpu(operators)
        assert packed.compiled
    memory = KeyValues(packed.layout, 512)
    texts = [Text(prompt, len(prompt)) for prompt in prompts(name)]
    for text in texts:
        memory.add(text)
    memory.prepare()
    last = {}
    for step in STEPS:
        rows = packed.run([(texts[number], count) for number, count in step]).tolist()
        last |= {number: row for (number, _), row in zip(step, rows, strict=True)}
    alone = []
    with paddle.no_grad():
        for text in texts:
            outputs = model(input_ids=paddle.to_tensor([text.ids]))
            alone.append((outputs[0] if isinstance(outputs, tuple) else outputs)[0, -1].tolist())
    return [[last[number] for number in range(len(texts))], alone]
