"""Over how many processes a model that answers can be divided."""

from launch.errors import UserError
from launch.families.parameters import attention_heads, key_value_heads
from launch.families.registry import family_of_config


def require_divisible(config: dict, ranks: int) -> None:
    """Raises UserError where a model cannot be divided over so many processes, a card each."""
    sizes = {"attention heads": attention_heads(config), "key-value heads": key_value_heads(config)}
    if not family_of_config(config).odd_vocabulary:
        sizes["vocabulary"] = config["vocab_size"]
    for name, size in sizes.items():
        if size % ranks:
            largest = next(n for n in range(ranks, 0, -1) if not any(size % n for size in sizes.values()))
            raise UserError(
                f"{ranks} processes cannot divide this model's {name}, {size}. Start {largest}: --nproc_per_node or "
                "--gpus of the launcher."
            )
