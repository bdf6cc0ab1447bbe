"""Streamed text is whole characters, nothing of a stop word, and together what the ids say."""

import random

import pytest

from launch.serving.answer import Decoder, Echo, StopWords


def decode(ids: list[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def streamed(data: bytes) -> list[str]:
    decoder = Decoder(decode)
    return [*(decoder.put(byte) for byte in data), decoder.rest()]


def test_characters_are_whole_and_random_bytes_as_decoded_in_one():
    assert streamed("aé字".encode()) == ["a", "", "é", "", "", "字", ""]
    draw = random.Random(0)
    for _ in range(200):
        size, signs = draw.randrange(30), draw.choice([b"ab\xc3\xa9\xe5\xad\x97\xf0\x9f\x98\x80", b"\xe5\xad\x97\xff"])
        data = bytes(draw.choice(signs) for _ in range(size))
        assert "".join(streamed(data)) == decode(data)
    decoder = Decoder(spaces_before_all_but_the_first)
    assert [decoder.put(one) for one in (1, 2, 3, 4)] == ["1", " 2", " 3", " 4"]


def test_nothing_is_decoded_again_each_time():
    lengths = []
    decoder = Decoder(lambda ids: lengths.append(len(ids)) or decode(ids))
    for byte in b"word " * 200:
        decoder.put(byte)
    assert max(lengths) <= 2
    # 0 is a special token. A character that begins between them is whole.
    for data in (bytes(2000), b"\xff" * 2000, b"\xe5" + bytes(2000), "字".encode()[1:] * 1000):
        given, data = [], b"a" + data + "字".encode() + b" b"
        decoder = Decoder(lambda ids, given=given: given.append(len(ids)) or decode([one for one in ids if one]))
        pieces = [decoder.put(byte) for byte in data]
        assert "".join(pieces) == decode(data.replace(b"\0", b""))
        assert sum(given) < 50 * len(data)
    # After what is returned as it comes, such as the text before an answer.
    given = []
    decoder = Decoder(lambda ids: given.append(len(ids)) or decode(ids))
    begun = decoder.put(ord("a"))
    given.clear()
    for byte in "é字 ".encode() * 500 + b"\xe5":
        decoder.take(byte)
    assert begun + decoder.rest() == "a" + "é字 " * 500 + "\ufffd" and given == [1, 3002]


def test_a_copy_of_a_decoder_goes_on_by_itself():
    decoder = Decoder(decode)
    for byte in b"ab" + b"\xff" * 12 + b"\xe5":
        decoder.put(byte)
    copies = [decoder.copy(), decoder.copy()]
    ends = ["".join(map(copy.put, end)) + copy.rest() for copy, end in zip(copies, (b"\xad\x97a", b"b"), strict=True)]
    assert [end.lstrip("\ufffd") for end in ends] == ["字a", "b"] and ends[1].count("\ufffd") == 1 + ends[0].count(
        "\ufffd"
    )
    assert copies[0].characters == len(decode(b"ab" + b"\xff" * 12)) + 2


def spaces_before_all_but_the_first(ids: list[int]) -> str:
    return " ".join(str(one) for one in ids)  # as sentencepiece does: the first word of a text has none


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
