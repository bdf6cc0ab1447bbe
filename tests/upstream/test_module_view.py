"""A module seen through overrides."""

import types

import pytest

from launch.upstream.module_view import ModuleView


def test_overrides_are_seen_in_the_view_only():
    module = types.ModuleType("somewhere")
    module.kept, module.replaced = "kept", "original"
    view = ModuleView(ModuleView(module, replaced="first", added="first"), added="second")
    assert (view.kept, view.replaced, view.added) == ("kept", "first", "second")
    assert module.replaced == "original" and not hasattr(module, "added")
    module.kept = "changed since"
    assert view.kept == "changed since"
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'missing'"):
        view.missing  # noqa: B018
