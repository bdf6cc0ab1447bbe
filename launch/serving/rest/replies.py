"""Answers as the OpenAI API has them: whole, or as server-sent events."""

import json
import time
import uuid
from collections.abc import AsyncIterator

from launch.serving.answer import Answer, Piece
from launch.serving.errors import Refusal


class Reply:
    """One reply. kind: "chat.completion" or "text_completion"."""

    def __init__(self, kind: str, model: str, answer: Answer):
        self.kind = kind
        self.answer = answer
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        self.head = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    @property
    def is_chat(self) -> bool:
        return self.kind == "chat.completion"

    async def whole(self) -> dict:
        """Raises Refusal where the answer fails."""
        texts, ends = [""] * len(self.answer.rows), [None] * len(self.answer.rows)
        async for piece in self.answer.pieces():
            texts[piece.number] += piece.text
            ends[piece.number] = piece.finish or ends[piece.number]
        choices = [self._choice(number, text, end) for number, (text, end) in enumerate(zip(texts, ends, strict=True))]
        return {**self.head, "object": self.kind, "choices": choices, "usage": self._usage()}

    async def events(self, with_usage: bool) -> AsyncIterator[str]:
        """with_usage: one more event, of token counts alone."""
        kind = "chat.completion.chunk" if self.is_chat else self.kind
        head = {**self.head, "object": kind}
        try:
            for number in range(len(self.answer.rows)) if self.is_chat else ():
                role = {"index": number, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
                yield _event({**head, "choices": [role]})
            async for piece in self.answer.pieces():
                yield _event({**head, "choices": [self._part(piece)]})
            if with_usage:
                yield _event({**head, "choices": [], "usage": self._usage()})
        except Refusal as refusal:  # too late for a status
            yield _event(refusal.body())
        yield "data: [DONE]\n\n"

    def _choice(self, number: int, text: str, finish: str | None) -> dict:
        said = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        return {"index": number, **said, "logprobs": None, "finish_reason": finish}

    def _part(self, piece: Piece) -> dict:
        said = {"delta": {"content": piece.text} if piece.text else {}} if self.is_chat else {"text": piece.text}
        return {"index": piece.number, **said, "logprobs": None, "finish_reason": piece.finish}

    def _usage(self) -> dict:
        prompt, completion = self.answer.prompt_tokens, self.answer.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _event(data: dict) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
