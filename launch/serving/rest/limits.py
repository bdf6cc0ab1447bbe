"""What a request must pass before it is read: its size, its key, and the name it calls the server by."""

import hmac

from fastapi import Request
from starlette.exceptions import HTTPException

from launch.serving.errors import Reason, Refusal

LARGEST_BODY = 4 * 2**20  # bytes
LOOPBACK = ["127.0.0.1", "localhost"]


class BodyLimit:
    """Middleware: a body of more than `largest` bytes is refused when so many have come, whatever its header says."""

    def __init__(self, app, largest: int):
        self.app = app
        self.largest = largest

    async def __call__(self, scope, receive, send) -> None:
        seen = 0

        async def counted():
            nonlocal seen
            message = await receive()
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
