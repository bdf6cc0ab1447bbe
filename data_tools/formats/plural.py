"""Numbers with their words."""


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number and its noun, such as "1 row", "2,000 rows", "2 processes". many: an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or noun + ('es' if noun.endswith('s') else 's')}"
