"""What a request must pass before it is read: its size, its key, its time, and the name it calls the server by."""

import asyncio
import hmac
import time

from fastapi import Request
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from launch.serving.request import Reason, Refusal

LARGEST_BODY = 4 * 2**20  # bytes
LOOPBACK = ["127.0.0.1", "localhost"]
HEAD_SECONDS = 20.0  # from a connection, or the end of its last answer, to the end of a request's header
BODY_SECONDS = 60.0  # from there to the end of its body


class TimedHead(H11Protocol):
    """uvicorn's HTTP, which waits for a header that never ends as long as its client likes: its own limit is for
    connections on which nothing comes at all (timeout_keep_alive)."""

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, error) -> None:
        super().connection_lost(error)
        self._end_watch()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_watch()
        elif self.timer is None and not self.transport.is_closing():
            self.timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_watch(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class BodyLimit:
    """Middleware: a body of more than `largest` bytes is refused when so many have come, whatever its header says, and
    one that has not come to its end after BODY_SECONDS."""

    def __init__(self, app, largest: int):
        self.app = app
        self.largest = largest

    async def __call__(self, scope, receive, send) -> None:
        seen, coming = 0, True
        deadline = time.monotonic() + BODY_SECONDS

        async def counted():
            nonlocal seen, coming
            try:
                message = await (asyncio.wait_for(receive(), deadline - time.monotonic()) if coming else receive())
            except asyncio.TimeoutError:
                found = f"the body has not come to its end within {BODY_SECONDS:g} s"
                raise HTTPException(Reason.SLOW.http, found, {"Connection": "close"}) from None
            coming = message.get("more_body", False)
            seen += len(message.get("body", b""))
            if seen > self.largest:
                raise HTTPException(Reason.TOO_LARGE.http, f"the body has more than {self.largest} bytes")
            return message

        await self.app(scope, counted if scope["type"] == "http" else receive, send)


def require_key(key: str | None):
    """A dependency of what only those may ask who have the key."""

    def check(request: Request) -> None:
        if key and not right_key(request.headers.get("authorization", ""), key):
            raise Refusal(Reason.NO_KEY, "the header must be there: Authorization: Bearer KEY")

    return check


def right_key(authorization: str, key: str) -> bool:
    return hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode())
