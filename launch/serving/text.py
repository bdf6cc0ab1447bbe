"""From ids to text while an answer is made: whole characters only, and nothing of a stop word."""

from collections.abc import Callable

from launch.generation.stream import UNFINISHED


class Decoder:
    """The text of ids as they come. Only the last few are decoded again with each one, so that a long answer costs no
    more for a token than a short one: the ids since the last but one piece, without the text of the last piece.
    """

    def __init__(self, decode: Callable[[list[int]], str]):
        self.decode = decode
        self.ids: list[int] = []
        self.start = 0  # of what is decoded again
        self.end = 0  # of what has been given

    def put(self, token: int) -> str:
        """The text that this id completes; empty where a character lacks its last bytes."""
        self.ids.append(token)
        return self._more(whole=True)

    def rest(self) -> str:
        """What no further id will complete."""
        return self._more(whole=False)

    def _more(self, whole: bool) -> str:
        known = self.decode(self.ids[self.start : self.end])
        text = self.decode(self.ids[self.start :])
        if whole and (text.endswith(UNFINISHED) or len(text) <= len(known)):
            return ""
        self.start, self.end = self.end, len(self.ids)
        return text[len(known) :]


class StopWords:
    """Text up to the first stop word. What may be the beginning of one is kept back until it is known."""

    def __init__(self, words: tuple[str, ...]):
        self.words = words
        self.kept = ""
        self.found = False

    def put(self, text: str) -> str:
        """The text that can be shown now."""
        text = self.kept + text
        places = [place for word in self.words if (place := text.find(word)) >= 0]
        if places:
            self.found, self.kept = True, ""
            return text[: min(places)]
        shown = len(text) - max((_overlap(text, word) for word in self.words), default=0)
        self.kept = text[shown:]
        return text[:shown]

    def rest(self) -> str:
        """What was kept back, at the end of an answer."""
        kept, self.kept = self.kept, ""
        return kept


def _overlap(text: str, word: str) -> int:
    """How many of the last characters of the text are the first ones of the word, but not all."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)
