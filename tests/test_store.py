"""Shared results: made once, made anew where a product file changes, never left in halves."""

import pytest

from tests import store


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ROOT", tmp_path)
    monkeypatch.setattr(store, "BUILD", tmp_path / "build")
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "x.py").write_text("1")
    store.state_folder.cache_clear()
    yield tmp_path
    store.state_folder.cache_clear()


def test_a_result_is_made_once_for_each_state_of_the_product(folder):
    made = []

    def make(place):
        (place / "file").write_text("text")
        made.append(place)
        return {"losses": [0.1]}

    for change in ("1", "2", "2", "3"):
        (folder / "launch" / "x.py").write_text(change)
        store.state_folder.cache_clear()  # as in a new process
        for _ in range(2):
            place, result = store.kept("runs/one", make)
            assert ((place / "file").read_text(), result) == ("text", {"losses": [0.1]})
    assert len(made) == len(set(made)) == 3
    assert len([*(folder / "build").iterdir()]) == store.STATES


def test_what_fails_is_made_again(folder):
    def fail(place):
        (place / "half").write_text("")
        raise ValueError("no")

    with pytest.raises(ValueError):
        store.kept("one", fail)
    place, result = store.kept("one", lambda place: sorted(place.iterdir()))
    assert result == []
