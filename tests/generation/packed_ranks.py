"""Many texts in one row on models of several families, for test_packed.py."""

from launch.families.registry import FAMILIES
from tests.families.family_ranks import start_fleet, tiny, with_large_weights
from tests.generation.generate_ranks import load, prompts

# Of three texts of 9, 4 and 12 tokens, (text, tokens) of each step: chunks beside newest tokens, a place that is empty.
STEPS = (((0, 8), (1, 3)), ((0, 1), (1, 1), (2, 5)), ((2, 6),), ((2, 1),))


def saved(directory: str, names: list[str], tensor_parallel: int, by_compiled: bool = False) -> dict[str, list]:
    """See _logits(), of saved models."""
    start_fleet(mp_degree=tensor_parallel)
    return {name: _logits(name, load(name, directory, tensor_parallel), by_compiled) for name in names}


def changed(models: list[tuple[str, dict]]) -> list[list]:
    """See _logits(), of models with other configurations."""
    return [_logits(name, with_large_weights(name, **changes)) for name, changes in models]


def packed_with(name: str, configurations: list[dict]) -> list[bool]:
    """Whether a family's texts are computed in one row, with each of some configurations."""
    from launch.generation.packed import packs

    return [packs(FAMILIES[name], tiny(name, **changes).to_dict()) for changes in configurations]


def compiled(models: list[tuple[str, dict]]) -> list[list]:
    """See changed(), with the compiled operators."""
    return [_logits(name, with_large_weights(name, **changes), by_compiled=True) for name, changes in models]


def _logits(name: str, model, by_compiled: bool = False) -> list:
    """Of each text's last token in a row with the other texts, and of the text alone, before; [texts, vocabulary] each.
    by_compiled: the row by the compiled operators."""
    import paddle

    from launch.cpu.kernels import replace_for_answers
    from launch.devices.cpu_operators import compiled_operators
    from launch.generation.key_values import KeyValues, Text
    from launch.generation.packed import PackedModel

    model.eval()
    model.config.tensor_parallel_output = False
    packed = PackedModel(model, FAMILIES[name])
    memory = KeyValues(packed.layout, 512)
    texts = [Text(prompt, len(prompt)) for prompt in prompts(name)]
    alone = []
    with paddle.no_grad():
        for text in texts:
            outputs = model(input_ids=paddle.to_tensor([text.ids]))
            alone.append((outputs[0] if isinstance(outputs, tuple) else outputs)[0, -1].tolist())
    if by_compiled:
        operators = compiled_operators()
        replace_for_answers(model, operators)
        packed.compute_on_cpu(operators)
        assert packed.compiled
    for text in texts:
        memory.add(text)
    memory.prepare()
    last = {}
    for step in STEPS:
        rows = packed.run([(texts[number], count) for number, count in step]).tolist()
        last |= {number: row for (number, _), row in zip(step, rows, strict=True)}
    return [[last[number] for number in range(len(texts))], alone]
