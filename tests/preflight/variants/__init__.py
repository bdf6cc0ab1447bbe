"""Shipped recipes and wrong variants of them, by subject.

Each variant names a recipe, what is changed, and every fault (✗) and announcement (✓ about a flag) that follows, by
subject and a part of its text.
"""

from tests.preflight.variants import batch, checkpoint, flags, layout, machine, model, overlap, preferences, sharding

VARIANTS = [
    variant
    for subject in (flags, sharding, layout, model, batch, overlap, checkpoint, machine, preferences)
    for variant in subject.VARIANTS
]
