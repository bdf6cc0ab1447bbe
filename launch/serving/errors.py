"""What a server refuses, with the status that each protocol has for it."""

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """(HTTP status, name of the gRPC status, type in the OpenAI API)"""

    INVALID = (400, "INVALID_ARGUMENT", "invalid_request_error")
    NO_KEY = (401, "UNAUTHENTICATED", "authentication_error")
    UNKNOWN_MODEL = (404, "NOT_FOUND", "invalid_request_error")
    SLOW = (408, "DEADLINE_EXCEEDED", "timeout_error")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED", "invalid_request_error")
    BUSY = (429, "RESOURCE_EXHAUSTED", "rate_limit_error")
    FAILED = (500, "INTERNAL", "server_error")
    STOPPING = (503, "UNAVAILABLE", "server_error")
    LATE = (504, "DEADLINE_EXCEEDED", "timeout_error")

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]


@dataclass
class Refusal(Exception):
    """Why a request is not answered. parameter: the one that is wrong."""

    reason: Reason
    message: str
    parameter: str | None = None

    def body(self) -> dict:
        """As the OpenAI API has errors."""
        return {
            "error": {
                "message": self.message,
                "type": self.reason.value[2],
                "param": self.parameter,
                "code": self.reason.name.lower(),
            }
        }
