"""A module seen through a few overrides, for correcting one importer without touching all others.

    importer.core = ModuleView(importer.core, is_compiled_with_cuda=lambda: True)

Only `importer` sees the override. A view may be taken of a view, so corrections of the same importer add up.
"""

from typing import Any


class ModuleView:
    """`module` with the names in `overrides` replaced; every other name is read from it at each access."""

    def __init__(self, module: Any, **overrides: Any):
        vars(self).update(overrides, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
