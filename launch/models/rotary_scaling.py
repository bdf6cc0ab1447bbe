"""Scaled rotary positions, with which a model reads longer texts than it was trained on: `rope_scaling` in config.json.

    with_scaling(config, path)                          the configuration, its block read
    inverse_frequencies(size, theta, scaling, length)   how far a position turns each pair of a head's elements
    attention_factor(scaling)                           what cosines and sines are multiplied by

All families that scale positions compute with these. The block has the names of transformers; the formulas are those
of its modeling_rope_utils.py, ROPE_INIT_FUNCTIONS. Linear: arXiv 2306.15595. YaRN: arXiv 2309.00071, section 3.
"""

import math

from launch.errors import UserError

ORIGINAL = "original_max_position_embeddings"
ROWS = 1024  # tables are rounded up to so many, so that generating token by token rarely computes them anew
# rope_type -> (what its block must state, what it may state), beside ORIGINAL.
KINDS = {
    "dynamic": (("factor",), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor"), ()),
    "yarn": (("factor",), ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")),
}
LARGEST_FACTOR = 10_000  # beyond any in use, and lengths stay numbers


def scaling_of(config: dict, path: str) -> dict | None:
    """Return the scaling of a configuration, ours or a published one; None where positions are not scaled.

    Keys: rope_type, the keys of KINDS that it has, and ORIGINAL, the positions before scaling.

    Raises:
        UserError: For an unknown rope_type and for an incomplete block.
    """
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = stated.get("rope_type") or stated.get("type")
    if old := config.get("rope_scaling_type"):  # paddlenlp's LLaMA
        kind, stated = "dynamic" if old == "dynamic_ntk" else old, {"factor": config.get("rope_scaling_factor")}
    if kind == "default" or (kind is None and stated.get("factor") is None):
        return None
    if kind not in (*KINDS,):  # which may be anything
        raise UserError(
            f"{path}: rope_scaling: rope_type: found {kind!r}, allowed: {', '.join(KINDS)}. Without rope_scaling the "
            "model reads texts up to its original length."
        )
    required, optional = KINDS[kind]
    original = stated.get(ORIGINAL) or config.get("max_position_embeddings")
    values = {**stated, ORIGINAL: original}
    if missing := [key for key in (*required, ORIGINAL) if values.get(key) is None]:
        raise UserError(f"{path}: rope_scaling: {', '.join(missing)} missing, which {kind!r} needs.")
    numbers = {key: value for key in (*required, *optional) if (value := values.get(key)) is not None}
    block = {key: value if isinstance(value, bool) else float(value) for key, value in numbers.items()}
    if not 1 <= block["factor"] <= LARGEST_FACTOR:
        raise UserError(f"{path}: rope_scaling: factor: found {block['factor']}, allowed: 1 to {LARGEST_FACTOR}.")
    if kind == "yarn" and not (theta := config.get("rope_theta") or 10000.0) > 1:  # its logarithm divides
        raise UserError(f"{path}: rope_theta: found {theta}, allowed with rope_type 'yarn': more than 1.")
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if low in block and high in block and block[low] >= block[high]:
            raise UserError(
                f"{path}: rope_scaling: {high}: found {block[high]}, allowed: more than {low}, which is {block[low]}."
            )
    return {"rope_type": kind, **block, ORIGINAL: original}


def require_plain_positions(config: dict, path: str) -> None:
    """Raise UserError where a configuration, ours or a published one, scales positions.

    The model's code cannot do it.
    """
    if scaling := scaling_of(config, path):
        raise UserError(
            f"{path}: rope_scaling: found {scaling['rope_type']!r}, and PaddleNLP's model of this family scales no "
            "positions. Take the key out to use the model within its original length."
        )


def reach(scaling: dict, positions: int) -> int:
    """Return how many positions scaling makes of the original ones.

    Args:
        positions: Of the configuration, which with llama3 has the scaled number already.
        scaling: As scaling_of() gives it.
    """
    return positions if scaling["rope_type"] == "llama3" else max(positions, scaled_length(scaling))


def scaled_length(scaling: dict) -> int:
    """Return the number of scaled positions."""
    return round(scaling["factor"] * scaling[ORIGINAL])


def with_scaling(config: dict, path: str) -> dict:
    """Return our configuration with its scaling as scaling_of() gives it, and the scaled max_position_embeddings.

    Raises:
        UserError: As scaling_of() does.
    """
    scaling = scaling_of(config, path)
    plain = {key: value for key, value in config.items() if key not in ("rope_scaling", "rope_scaling_type")}
    if scaling is None:
        return plain
    positions = config.get("max_position_embeddings") or scaling[ORIGINAL]
    return plain | {"rope_scaling": scaling, "max_position_embeddings": reach(scaling, positions)}


def published_scaling(ours: dict) -> dict:
    """Return the keys of a published config.json.

    max_position_embeddings counts the original positions with linear and dynamic, the scaled ones with yarn: then
    transformers 4, which takes the quotient of both lengths for YaRN's factor, agrees with transformers 5, which takes
    the factor (huggingface/transformers, issue 38224).
    """
    scaling = ours.get("rope_scaling")
    if not scaling:
        return {}
    kind, block = scaling["rope_type"], dict(scaling)
    positions = {"llama3": ours["max_position_embeddings"], "yarn": scaled_length(scaling)}.get(kind)
    if positions is None:
        positions = block.pop(ORIGINAL)
    return {"max_position_embeddings": positions, "rope_scaling": {"type": kind, **block}}


def rotary_rows(length: int, positions: int) -> int:
    """Return the rows of the cosine and sine tables for a sequence of this length.

    Args:
        length: Tokens.
        positions: Of the model.
    """
    return min(-(-length // ROWS) * ROWS, positions)


def inverse_frequencies(size: int, theta: float, scaling: dict, length: int) -> list[float]:
    """Return the radians a position for each of size / 2 pairs of elements.

    Args:
        size: Elements of a head.
        theta: rope_theta.
        scaling: As scaling_of() gives it.
        length: Tokens of the sequence, which dynamic scaling follows.
    """
    kind, factor = scaling["rope_type"], scaling["factor"]
    if kind == "dynamic":
        stretch = factor * frequency_length(scaling, length) / scaling[ORIGINAL] - (factor - 1)
        theta *= stretch ** (size / (size - 2))
    plain = [theta ** (-element / size) for element in range(0, size, 2)]
    if kind == "linear":
        return [frequency / factor for frequency in plain]
    if kind == "llama3":
        return [_llama3(frequency, scaling) for frequency in plain]
    if kind == "yarn":
        return _yarn(plain, size, theta, scaling)
    return plain


def scaled_by_length(config: dict) -> bool:
    """Return whether the length of a sequence decides how its positions are scaled.

    Args:
        config: As with_scaling() gives it.
    """
    return (config.get("rope_scaling") or {}).get("rope_type") == "dynamic"


def frequency_length(scaling: dict, length: int) -> int:
    """Return the length that decides the frequencies of a sequence.

    It is the sequence's own with dynamic scaling beyond the original length, else the original one.
    """
    return max(length, scaling[ORIGINAL]) if scaling["rope_type"] == "dynamic" else scaling[ORIGINAL]


def _llama3(frequency: float, scaling: dict) -> float:
    """Return a frequency scaled as in Llama 3.

    It is divided by the factor where it turns less than low_freq_factor times over the original length, whole above
    high_freq_factor, a mean of both between.
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling[ORIGINAL] * frequency / (2 * math.pi)
    whole = min(max((turns - low) / (high - low), 0.0), 1.0)
    return (1 - whole) * frequency / scaling["factor"] + whole * frequency


def _yarn(plain: list[float], size: int, theta: float, scaling: dict) -> list[float]:
    """Return the frequencies scaled by YaRN.

    They are whole for pairs that turn more than beta_fast times over the original length, divided by the factor below
    beta_slow, a mean of both between.
    """
    turns = scaling.get("beta_fast") or 32.0, scaling.get("beta_slow") or 1.0
    low, high = (size * math.log(scaling[ORIGINAL] / (2 * math.pi * one)) / (2 * math.log(theta)) for one in turns)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    width = high - low or 0.001
    divided = [min(max((pair - low) / width, 0.0), 1.0) for pair in range(len(plain))]
    return [
        share * frequency / scaling["factor"] + (1 - share) * frequency
        for share, frequency in zip(divided, plain, strict=True)
    ]


def attention_factor(scaling: dict) -> float:
    """Return the factor of cosines and sines.

    YaRN's is 0.1 ln(factor) + 1, unless the block has one or the weights of a quotient.
    """
    if scaling["rope_type"] != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return _temperature(scaling, scaling["mscale"]) / _temperature(scaling, scaling["mscale_all_dim"])
    return _temperature(scaling, 1.0)


def _temperature(scaling: dict, weight: float) -> float:
    return 0.1 * weight * math.log(max(scaling["factor"], 1.0)) + 1.0
