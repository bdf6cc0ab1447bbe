"""Answers are the same in a batch, alone, divided over ranks, and computed without a cache."""

import pytest

from launch.families.registry import FAMILIES
from launch.generation.text import TextStream
from tests.families.saved import saved_families
from tests.families.test_families import groups

MODULE = "tests.generation.generate_ranks"


@pytest.fixture(scope="module")
def directory(ranks) -> str:
    return saved_families(ranks)


@groups
def test_a_batch_is_answered_as_each_prompt_alone_and_by_two_processes_as_by_one(ranks, directory, group):
    """Prompts differ in length. Greedy answers are the most likely tokens of forward passes without a cache."""
    causal = [name for name in group if FAMILIES[name].attention == "causal"]
    [[answers, by_heart]] = ranks(1, f"{MODULE}:greedy", directory, group, causal, 1)
    for name, (together, alone) in answers.items():
        assert together == alone, name
        assert len({tuple(answer) for answer in alone}) > 1, name  # they answer to something
    for name, (found, likely) in by_heart.items():
        assert found == likely, name
    for _, others in ranks(2, f"{MODULE}:greedy", directory, [], causal, 2):
        assert {name: others[name][0] for name in causal} == {name: by_heart[name][0] for name in causal}


def test_drawing_follows_seed_and_limits_and_is_the_same_on_all_ranks(ranks, directory):
    ways = [{"temperature": 5.0}, {"temperature": 5.0}, {"temperature": 5.0, "top_k": 1}, {}, {"temperature": 1e-4}]
    ways += [{"temperature": 5.0, "top_p": 1e-6}]
    [first, again, one, greedy, cold, narrow] = ranks(1, f"{MODULE}:drawn", directory, ways, 1)[0]
    assert first == again != greedy
    assert one == cold == narrow == greedy
    both = ranks(2, f"{MODULE}:drawn", directory, ways, 2)
    assert both[0] == both[1]


def test_an_answer_ends_with_eos_and_is_shown_as_it_is_made(ranks, directory):
    [found] = ranks(1, f"{MODULE}:ends", directory)
    place = found["whole"].index(found["whole"][2])
    assert found["cut"] == found["whole"][:place]
    assert found["shown"] == " ".join(map(str, found["cut"])) + ("\n" if place else "")
    assert found["long"] == 20  # whatever the model's own configuration says


class Bytes:
    """A tokenizer of bytes: a character may take several ids."""

    def decode(self, ids: list[int], **_) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def test_half_a_character_is_not_shown(capsys):
    import numpy as np

    stream, shown = TextStream(Bytes(), ends=(0,)), []
    for byte in "aé字".encode():
        stream.put(np.array([[byte]]))
        shown.append(capsys.readouterr().out)
    stream.put(np.array([[0]]))
    stream.end()
    assert shown == ["a", "", "é", "", "", "字"]
    assert capsys.readouterr().out == "\n"


def test_ids_beyond_the_tokenizer_are_never_taken(ranks, directory):
    [found] = ranks(1, f"{MODULE}:beyond_the_tokenizer", directory, 40)
    assert found["all greedy"] >= 40 and found["all drawn"] >= 40
    assert found["known greedy"] < 40 and found["known drawn"] < 40


def test_weights_that_are_no_numbers_are_refused(ranks, directory, tmp_path):
    [said] = ranks(1, f"{MODULE}:no_numbers", directory, str(tmp_path))
    assert said["generate"].startswith("the model's logits are no numbers: its weights are damaged")
    assert "NaN or infinite values in llama.norm.weight" in said["evaluate"]
    assert said["read"].startswith(f"{tmp_path}: NaN or infinite values in llama.layers.1.mlp.down_proj.weight")
