"""BLEU and ROUGE against values worked out by hand."""

import math

import pytest

from launch.generation.text import scores


def test_equal_texts_have_100_and_texts_without_a_common_word_0():
    texts = ["the cat sat on the mat today", "他们在北京大学学习中文"]
    assert scores(texts, texts) == pytest.approx({"bleu": 100, "rouge1": 100, "rouge2": 100, "rougel": 100})
    found = scores(["dogs run fast over there"], ["the cat sat on a mat"])
    assert found == pytest.approx({"bleu": 0, "rouge1": 0, "rouge2": 0, "rougel": 0})


def test_words_of_a_text_with_spaces():
    """5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples are right; the longest common order has 5 words."""
    found = scores(["the cat sat on a mat"], ["the cat sat on the mat"])
    product = 5 / 6 * 3 / 5 * 2 / 4 * 1 / 3
    assert found["bleu"] == pytest.approx(100 * product**0.25)
    assert found["rouge1"] == found["rougel"] == pytest.approx(100 * 5 / 6)
    assert found["rouge2"] == pytest.approx(100 * 3 / 5)


def test_rouge_weighs_what_is_right_and_what_is_found_alike():
    """Both words are right, two of four are found: F1 of 1 and 1 / 2."""
    assert scores(["the cat"], ["the cat sat down"])["rouge1"] == pytest.approx(100 * 2 / 3)
    assert scores(["the cat sat down"], ["the cat"])["rougel"] == pytest.approx(100 * 2 / 3)


def test_chinese_counts_by_characters():
    """5 of 6 characters of the answer, 4 of 5 pairs, 3 of 4 triples, 2 of 3 quadruples; it is as long as it should."""
    found = scores(["我爱北京天坛"], ["我爱北京天门"])
    assert found["bleu"] == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert found["rouge1"] == pytest.approx(100 * 5 / 6)
    assert found["rouge2"] == pytest.approx(100 * 4 / 5)


def test_bleu_is_of_the_corpus_and_rouge_the_mean_of_the_answers():
    references = ["a b c d", "a b c d e f g h"]
    found = scores(["a b c d", "x y"], references)
    brevity = math.exp(1 - 12 / 6)
    assert found["bleu"] == pytest.approx(100 * brevity * (4 / 6 * 3 / 4 * 2 / 2 * 1 / 1) ** 0.25)
    assert found["rouge1"] == pytest.approx(50)


def test_an_empty_answer_is_only_wrong():
    assert scores(["", "a b c d"], ["x", "a b c d"])["rouge1"] == pytest.approx(50)
