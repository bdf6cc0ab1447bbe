"""A module seen through overrides."""

import types

import pytest

from launch.upstream.module_view import ModuleView


@pytest.fixture
def module():
    module = types.ModuleType("somewhere")
    module.kept, module.replaced = "kept", "original"
    return module


def test_overrides_are_seen_in_the_view_only(module):
    view = ModuleView(module, replaced="override", added="new")
    assert (view.kept, view.replaced, view.added) == ("kept", "override", "new")
    assert module.replaced == "original"
    assert not hasattr(module, "added")


def test_a_view_of_a_view_adds_up(module):
    view = ModuleView(ModuleView(module, replaced="first", added="first"), added="second")
    assert (view.kept, view.replaced, view.added) == ("kept", "first", "second")


def test_other_names_are_read_when_asked_for(module):
    view = ModuleView(module)
    module.kept = "changed since"
    assert view.kept == "changed since"


def test_missing_names_are_the_modules_error(module):
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'missing'"):
        ModuleView(module).missing  # noqa: B018
