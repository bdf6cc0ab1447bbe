"""Streamed text is whole characters, nothing of a stop word, and together what the ids say."""

import random

import pytest

from launch.serving.answer import Decoder, Echo, StopWords


def decode(ids: list[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def streamed(data: bytes) -> list[str]:
    decoder = Decoder(decode)
    return [*(decoder.put(byte) for byte in data), decoder.rest()]


def test_no_piece_is_cut_within_a_character():
    assert streamed("aé字".encode()) == ["a", "", "é", "", "", "字", ""]


def test_what_is_no_character_comes_when_it_is_certain():
    assert "".join(streamed(b"a\xff\xfeb\xe5\xad")) == decode(b"a\xff\xfeb\xe5\xad")


def test_random_bytes_come_as_they_are_decoded_in_one():
    draw = random.Random(0)
    for _ in range(200):
        data = bytes(draw.choice(b"ab\xc3\xa9\xe5\xad\x97\xf0\x9f\x98\x80") for _ in range(draw.randrange(30)))
        assert "".join(streamed(data)) == decode(data)


def test_a_long_answer_is_not_decoded_from_its_beginning_each_time():
    lengths = []
    decoder = Decoder(lambda ids: lengths.append(len(ids)) or decode(ids))
    for byte in b"word " * 200:
        decoder.put(byte)
    assert max(lengths) <= 2


def spaces_before_all_but_the_first(ids: list[int]) -> str:
    return " ".join(str(one) for one in ids)  # as sentencepiece does: the first word of a text has none


def test_the_space_before_a_word_is_kept():
    decoder = Decoder(spaces_before_all_but_the_first)
    assert [decoder.put(one) for one in (1, 2, 3, 4)] == ["1", " 2", " 3", " 4"]


@pytest.mark.parametrize(
    ("words", "pieces", "shown", "found"),
    [
        (("END",), ["some ", "text E", "ND more"], "some text ", True),
        (("END",), ["an E", "N", "d"], "an ENd", False),
        (("aab",), ["aa", "ab"], "a", True),
        (("ab", "b"), ["xa", "b"], "x", True),
        (("\n\n",), ["one\n", "two\n\nthree"], "one\ntwo", True),
        ((), ["any", "thing"], "anything", False),
    ],
)
def test_stop_words_end_the_text_wherever_pieces_are_cut(words, pieces, shown, found):
    stop, texts = StopWords(words), []
    for piece in pieces:
        texts.append(stop.put(piece))
        if stop.found:
            break
    assert "".join(texts) + stop.rest() == shown
    assert stop.found is found


def test_only_what_may_begin_a_stop_word_is_kept_back():
    stop = StopWords(("END",))
    assert [stop.put(piece) for piece in ("a", "E", "N", "x", "E")] == ["a", "", "", "ENx", ""]
    assert stop.rest() == "E"


def test_an_echo_is_the_text_as_it_was_given_and_what_follows_begins_behind_it():
    """Also where its ids say something shorter: some tokenizers drop the first space."""
    echo = Echo(lambda ids: bytes(ids).decode().lstrip(), " ab", list(b" ab"))
    assert (echo.text, echo.offsets, echo.decoder.characters) == (" ab", [0, 0, 1], 3)
    assert echo.decoder.put(99) == "c"
    assert Echo(lambda ids: bytes(ids).decode().lstrip(), list(b" ab"), list(b" ab")).text == "ab"
