"""Numbers with their words."""


def plural(number: int, one: str, many: str = "") -> str:
    """1 row, 2,000 rows, 2 processes. many: where it is not the rule's."""
    return f"{number:,} {one if number == 1 else many or one + ('es' if one.endswith('s') else 's')}"
