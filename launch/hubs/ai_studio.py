"""AI Studio's hub (STUDIO_GIT_HOST), by the requests of aistudio-sdk 0.2.6, the release that paddlenlp 3.0.0b4 imports.

Its `download` takes a file that was cut off for a whole one from then on, and never goes on within it. So a file is
fetched here, from the same address with the same headers, by ranges. Its default address is HTTP, on which a token can
be read by others; that of its later releases is HTTPS, and is the default here.
"""

import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import quote

from data_tools.progress import progress
from launch.errors import UserError
from launch.hubs.hub import LONGER, Busy, Hub
from launch.hubs.repository import WEIGHTS, RemoteFile, Snapshot, own_files
from launch.weights.model_directories import LICENCE

HOST = "https://git.aistudio.baidu.com"  # aistudio-sdk 0.3.9, config.py
BRANCH = "master"
SECONDS = (10, 60)  # to connect, and between two pieces of a file
PIECE = 1 << 20
README = "README.md"
# Of a file that git keeps elsewhere: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (\d+)\s*")


class AIStudio(Hub):
    """The hub of AI Studio."""

    key, title = "aistudio", "AI Studio"
    login = "`.venv/bin/aistudio config --token`"
    address_variable, token_variable = "STUDIO_GIT_HOST", "AISTUDIO_ACCESS_TOKEN"

    def __init__(self) -> None:
        from aistudio_sdk import hub

        hub.Hub()  # reads a stored token
        self.endpoint = os.environ.get("STUDIO_GIT_HOST", HOST).rstrip("/")

    def page(self, repository: str) -> str:
        """Return the address of a repository's page."""
        return f"{self.address}/{repository}"

    def snapshot(self, repository: str, revision: str) -> Snapshot:
        """Return the files that the repository lists."""
        with self.reading():
            listed = self._contents(repository, "", revision)
            if not isinstance(listed, list):
                raise self.failed(repository, "it lists no files")
            names = [entry["path"] for entry in listed if entry.get("type") == "file"]
            plain = own_files(repository, (RemoteFile(name, 0) for name in names))
            files = {
                name: self._file(repository, name, revision)
                for name in plain
                if WEIGHTS.fullmatch(name)
                or LICENCE.fullmatch(name)
                or name.endswith((".json", ".txt", ".model", ".jinja"))
            }
            licence = self._licence(repository, revision, plain)
        return Snapshot(self.key, repository, revision, "", licence, plain | files)

    def fetch(self, snapshot: Snapshot, file: RemoteFile, directory: Path) -> None:
        """Fetch a file, continuing behind an earlier part where the hub sends parts."""
        import requests
        from aistudio_sdk.requests.hub import _header_fill

        part = directory / f".{file.name}.part"
        if part.is_symlink() or (part.exists() and part.stat().st_size > file.size):
            part.unlink()
        done = part.stat().st_size if part.exists() else 0
        if not part.exists() or done < file.size:
            headers = _header_fill() | ({"Range": f"bytes={done}-"} if done else {})
            with self._refusals(snapshot.repository, snapshot.revision):
                reference = f"?ref={quote(snapshot.revision, safe='')}" if snapshot.revision else ""
                path = f"{snapshot.repository}/media/{quote(file.name, safe='')}{reference}"
                address = f"{self.endpoint}/api/v1/repos/{path}"
                with self.reading():
                    answer = requests.get(address, headers=headers, timeout=SECONDS, stream=True)
                with answer:
                    if answer.status_code == 416:  # what is there is of another file
                        part.unlink(missing_ok=True)
                    if answer.status_code == 429:
                        raise Busy(answer.headers.get("Retry-After"))
                    if not answer.ok:
                        raise _Refused(answer.status_code, answer.reason)
                    goes_on = answer.status_code == 206
                    with open(part, "ab" if goes_on else "wb") as target:
                        with progress("fetching", file.size, done if goes_on else 0) as advance:
                            for piece in answer.iter_content(PIECE):
                                if target.tell() + len(piece) > file.size:
                                    part.unlink()
                                    raise self.damaged(snapshot, file, LONGER)
                                target.write(piece)
                                advance(len(piece))
        part.replace(directory / file.name)

    def send(self, repository: str, folder: Path, names: list[str], private: bool) -> None:
        """Send files, each in a commit; the store of large ones is asked first whether it has them."""
        from aistudio_sdk import hub
        from aistudio_sdk.constant.err_code import ErrorEnum

        os.environ["STUDIO_GIT_HOST"] = self.endpoint  # the client's own default is HTTP
        client = hub.Hub()
        with self.reading(), self._refusals(repository, ""), redirect_stdout(sys.stderr):  # the client prints its steps
            found = client.create_repo(repo_id=repository, private=private)
            if found.get("error_code") != ErrorEnum.REPO_ALREADY_EXIST.code:
                self._require_done(repository, found)
            for name in names:
                path = str(folder / name)
                sent = client.upload(repo_id=repository, path_or_fileobj=path, path_in_repo=name)
                self._require_done(repository, sent)

    def _require_done(self, repository: str, found: dict) -> None:
        from aistudio_sdk.constant.err_code import ErrorEnum

        if "error_code" not in found:
            return
        if found["error_code"] == ErrorEnum.TOKEN_IS_EMPTY.code or found.get("biz_code") in (401, 403):
            raise self.read_only(repository)
        raise self.failed(repository, found.get("error_msg"))

    def _contents(self, repository: str, path: str, revision: str) -> Any:
        """Return the hub's answer about a file, or the list of a folder."""
        from aistudio_sdk.requests.hub import request_aistudio_git_file_info

        owner, name = repository.split("/")
        with self._refusals(repository, revision):
            found = request_aistudio_git_file_info(self.endpoint, owner, name, path, revision or BRANCH, "")
            if isinstance(found, dict) and found.get("error_code"):
                raise _Refused(found.get("biz_code") or 0, found.get("error_msg") or "")
        return found

    def _file(self, repository: str, name: str, revision: str) -> RemoteFile:
        stated = self._contents(repository, name, revision)
        content = base64.b64decode(stated.get("content") or "")
        if pointer := POINTER.fullmatch(content):
            return RemoteFile(name, int(pointer[2]), pointer[1].decode())
        is_whole = git_sha1(content) == stated.get("sha")
        return RemoteFile(name, stated.get("size") or 0, stated.get("Sha256") or "", stated["sha"] if is_whole else "")

    def _licence(self, repository: str, revision: str, names) -> str:
        """Return the licence in the README's head: the hub's own record is on its page alone."""
        if README not in names:
            return ""
        text = base64.b64decode(self._contents(repository, README, revision).get("content") or "")
        stated = re.search(r"\A---\n.*?^license: *([^\n]+)\n.*?^---$", text.decode("utf-8", "replace"), re.M | re.S)
        return stated[1].strip("\"' ") if stated else ""

    @contextmanager
    def _refusals(self, repository: str, revision: str) -> Iterator[None]:
        import requests

        try:
            yield
        except _Refused as error:
            raise self._refusal(repository, revision, error.status, error.args[1]) from None
        except requests.Timeout:
            raise self.no_answer(f"nothing within {SECONDS[1]} s") from None
        except requests.JSONDecodeError:
            raise self.no_answer("what it sends is no JSON") from None
        except requests.RequestException:
            raise self.no_answer("no connection, or one that was cut") from None

    def _refusal(self, repository: str, revision: str, status: int, reason: str) -> UserError:
        if status == 429:
            raise Busy(None)  # the client keeps no header
        if status in (401, 403):
            return self.forbidden(repository)
        if status == 404:
            return self.no_revision(repository, revision) if revision else self.not_found(repository)
        return self.no_answer(f"HTTP {status}") if status >= 500 else self.failed(repository, reason)


class _Refused(Exception):
    """A refusal: (status of HTTP, reason)."""

    @property
    def status(self) -> int:
        return self.args[0]


def git_sha1(content: bytes) -> str:
    """Return the name of a file's content as an object of git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
