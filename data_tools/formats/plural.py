"""Numbers with their words."""


def counted(number: int, one: str, many: str = "") -> str:
    """1 row, 2,000 rows. many: where that is not one + "s"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
