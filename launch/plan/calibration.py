"""A card as `make certify` has measured it: its rates are changed until the plan of the measured steps is right."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

from launch.errors import UserError
from launch.plan.hardware import Card, card_named


def calibrated(card: Card, file: str) -> tuple[Card, str]:
    """Return the card with its rates divided by the median of measured over planned seconds, and a line about that.

    file: certify.json. Raises UserError for another file, for one of a pretended run, and for one of another card.
    """
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        names = [name for name, *_ in content["of"]["cards"]] if not content["of"]["pretended"] else []
        numbers = [row["numbers"] for result in content["results"] for row in result["rows"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"--calibration: {file} is not the certify.json of make certify ({error}).") from None
    ratios = [one["measured"] / one["planned"] for one in numbers if one.get("unit") == "s" and one.get("planned")]
    if not names or not ratios:
        raise UserError(f"--calibration: {file} has no measured steps. Run make certify QUICK=1 on a card.")
    if (measured := card_named(names[0])) != card:
        raise UserError(
            f"--calibration: {file} is of {measured.name}, the plan of {card.name}. Use CARD={measured.name}."
        )
    factor = median(ratios)
    rates = {name: getattr(card, name) / factor for name in ("memory_bandwidth", "half_flops", "full_flops")}
    counted = f"{len(ratios)} measured step{'s' if len(ratios) > 1 else ''}"
    return replace(card, **rates), f"calibrated by {file}: times x {factor:.2f}, the median of {counted}"
