"""All benchmarks of questions, by name."""

from data_tools.formats.benchmarks.questions import CHOICES, Form
from data_tools.formats.benchmarks.written import WRITTEN

FORMS: dict[str, Form] = WRITTEN | CHOICES


def form_of(row: dict) -> str | None:
    """The name of the form that a row has: the first that fits, so those of more keys stand first."""
    return next((name for name, form in FORMS.items() if row.keys() >= set(form.keys) and form.fits(row)), None)
