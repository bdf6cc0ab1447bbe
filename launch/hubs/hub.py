"""The common part of the hubs: requests to them, and messages about their refusals."""

import itertools
import logging
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_tools.cli import whole_number
from data_tools.formats.json_files import shown
from data_tools.language import localized
from launch.errors import UserError
from launch.hubs.repository import RemoteFile, Snapshot

TRIES = 5  # of a request that the hub asks to make later
PAUSE, LONGEST_PAUSE = 10, 300  # seconds
LONGER = "longer than the hub lists"
CREDENTIALS = re.compile(r"://\S*@")  # user and password of an address


def without_credentials(text: str) -> str:
    """Return the text without credentials in its addresses."""
    return CREDENTIALS.sub("://", text)


def log_without_credentials() -> None:
    """Remove credentials from the addresses that the clients log."""

    def record(*args, **more) -> logging.LogRecord:
        made = logging.LogRecord(*args, **more)
        made.msg, made.args = without_credentials(made.getMessage()), ()
        return made

    logging.setLogRecordFactory(record)


class Busy(Exception):
    """HTTP 429.

    Attributes:
        seconds: That the hub asks to wait, by its Retry-After.
    """

    def __init__(self, retry_after: str | None):
        self.seconds = whole_number(retry_after or "", 0, 10**9) or PAUSE
        super().__init__(f"HTTP 429: it asks to wait {self.seconds} s")


class Unreachable(UserError):
    """A hub that does not answer.

    Attributes:
        found: Without what to do.
    """

    def __init__(self, found: str, fix: str):
        super().__init__(f"{found}. {fix}")
        self.found = found


class Hub(ABC):
    """A hub of models.

    Attributes:
        key: The value of FROM.
        endpoint: Its address, perhaps with a password.
        login: The client's command.
        address_variable, token_variable: The client's own variables of the environment.
    """

    key: str
    title: str
    endpoint: str
    login: str
    address_variable: str
    token_variable: str

    @property
    def address(self) -> str:
        """The endpoint as it may be printed."""
        return without_credentials(self.endpoint)

    @abstractmethod
    def page(self, repository: str) -> str:
        """Return the address that a person reads, and where a licence is accepted."""

    @abstractmethod
    def snapshot(self, repository: str, revision: str) -> Snapshot:
        """Return the files that the repository lists.

        Raises:
            UserError: If the hub refuses.
            Unreachable: If it does not answer.
        """

    @abstractmethod
    def fetch(self, snapshot: Snapshot, file: RemoteFile, directory: Path) -> None:
        """Put a file into the directory, going on where an earlier call was cut off. Raises UserError."""

    @abstractmethod
    def send(self, repository: str, folder: Path, names: list[str], private: bool) -> None:
        """Send files of a folder to the repository, which is made if it is missing. Those it has are not sent again.

        private: Of a new repository; one that is there stays as it is.

        Raises:
            UserError: If the hub refuses.
            Unreachable: If it does not answer.
        """

    def asked(self, method: Callable, *arguments) -> Any:
        """Return the result of a method of this hub, repeated where the hub is busy."""
        for tries_left in itertools.count(TRIES - 1, -1):
            try:
                return method(*arguments)
            except Busy as busy:
                if not tries_left or busy.seconds > LONGEST_PAUSE:
                    raise self.no_answer(str(busy)) from None
                print(localized(f"{self.title} is busy: asked again in {busy.seconds} s"), file=sys.stderr, flush=True)
                time.sleep(busy.seconds)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the hub's answers.

        Raises:
            Unreachable: For an answer that cannot be read: another server's, such as the page of a network that asks to
                log in, or a redirect to itself.
        """
        try:
            yield
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
            raise self.no_answer("what it sends is no answer of this hub") from None

    def no_answer(self, reason: str) -> Unreachable:
        """Return the error of a hub that does not answer."""
        return Unreachable(
            f"{self.title} ({self.address}) does not answer: {reason}",
            f"Check the network and its proxy (https_proxy); {self.address_variable} names another address, FROM= "
            "(make push: TO=) another hub. Then the same command again.",
        )

    def not_found(self, repository: str) -> UserError:
        """Return the error of an unknown repository."""
        return UserError(
            f"{repository}: {self.title} ({self.address}) does not have it, or not for you. Compare the name with "
            f"{self.page(repository)}. If it is private: {self.login}, or {self.token_variable} in the environment. "
            "FROM= asks another hub."
        )

    def no_revision(self, repository: str, revision: str) -> UserError:
        """Return the error of an unknown revision."""
        return UserError(
            f"--revision: found {revision!r}, which {repository} at {self.title} does not have. Allowed: a branch, tag "
            f"or commit of {self.page(repository)}."
        )

    def forbidden(self, repository: str) -> UserError:
        """Return the error of a licence that is not accepted."""
        return UserError(
            f"{repository}: {self.title} gives it only to those who accepted its licence. Log in at "
            f"{self.page(repository)} and accept it; then {self.login}, or {self.token_variable} in the environment. "
            "Then the same command again."
        )

    def read_only(self, repository: str) -> UserError:
        """Return the error of a repository that this user may not write."""
        return UserError(
            f"{repository}: {self.title} ({self.address}) does not let you write there. OWNER is your name or that of "
            f"your organization; {self.login}, or {self.token_variable} in the environment, with a token that writes."
        )

    def damaged(self, snapshot: Snapshot, file: RemoteFile, found: str) -> UserError:
        """Return the error of a damaged file."""
        found = without_credentials(found)
        return UserError(
            f"{file.name} of {snapshot.repository}: came damaged from {self.title}: {found}. It was removed; the same "
            "command fetches it again."
        )

    def failed(self, repository: str, reason: object) -> UserError:
        """Return the error of the client's `reason`, its first line: none of the clients puts a token there."""
        line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
        line = shown(without_credentials(line), 200)
        return UserError(
            f"{repository}: {self.title} refused: {line}. The same command goes on where this one stopped."
        )
