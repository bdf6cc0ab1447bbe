"""Answers are the same in a batch, alone, divided over ranks, and computed without a cache."""

import pytest

from launch.families.registry import FAMILIES
from launch.generation.text import TextStream

MODULE = "tests.generation.generate_ranks"
CAUSAL = [name for name, family in FAMILIES.items() if family.attention == "causal"]


@pytest.fixture(scope="module")
def directory(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    ranks(1, "tests.families.family_ranks:save_all", list(FAMILIES), str(root))
    return str(root)


def test_a_batch_of_prompts_of_different_lengths_is_answered_as_each_alone(ranks, directory):
    [answers] = ranks(1, f"{MODULE}:together_and_alone", directory, list(FAMILIES))
    for name, (together, alone) in answers.items():
        assert together == alone, name
        assert len({tuple(answer) for answer in alone}) > 1, name  # they answer to something


def test_greedy_answers_are_the_most_likely_tokens_of_forward_passes(ranks, directory):
    [found] = ranks(1, f"{MODULE}:by_heart", directory, CAUSAL, 1)
    for name, (answers, likely) in found.items():
        assert answers == likely, name


def test_tensor_parallel_answers_are_those_of_one_process(ranks, directory):
    [alone] = ranks(1, f"{MODULE}:by_heart", directory, CAUSAL, 1)
    both = ranks(2, f"{MODULE}:by_heart", directory, CAUSAL, 2)
    for name in CAUSAL:
        assert both[0][name][0] == both[1][name][0] == alone[name][0], name


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

    stream, shown = TextStream(Bytes(), eos=0), []
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
