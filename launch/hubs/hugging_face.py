"""Hugging Face's hub, and mirrors that speak as it does (HF_ENDPOINT), by huggingface_hub 0.36."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.errors import UserError
from launch.hubs.hub import LONGER, Busy, Hub
from launch.hubs.repository import LARGEST_FIRST, RemoteFile, Snapshot, own_files

SECONDS = 10  # to wait for an answer


class HuggingFaceHub(Hub):
    """The hub of Hugging Face."""

    key, title = "huggingface", "Hugging Face"
    login = "`.venv/bin/hf auth login`"
    address_variable, token_variable = "HF_ENDPOINT", "HF_TOKEN"

    def __init__(self) -> None:
        # Its own protocol (Xet) begins a file that was cut off anew; HTTP goes on. Read when the client is imported.
        os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
        from huggingface_hub import configure_http_backend, constants

        configure_http_backend(self._session)
        self.endpoint = constants.ENDPOINT

    def _session(self):
        """Return a session of the client, whose answers end at `largest`: the client compares sizes at the end."""
        from huggingface_hub.utils._http import _default_backend_factory

        def limit(answer, **_) -> None:
            pieces = answer.iter_content

            def counted(*arguments, **more):
                seen = 0
                for piece in pieces(*arguments, **more):
                    seen += len(piece)
                    if seen > self.largest:
                        raise _OtherSize(LONGER)
                    yield piece

            answer.iter_content = counted

        session = _default_backend_factory()
        session.hooks["response"].append(limit)
        return session

    def page(self, repository: str) -> str:
        """Return the address of a repository's page."""
        return f"{self.address}/{repository}"

    def snapshot(self, repository: str, revision: str) -> Snapshot:
        """Return the files that the repository lists."""
        from huggingface_hub import HfApi

        self.largest = LARGEST_FIRST  # bytes of an answer
        with self.reading():
            with self._refusals(repository, revision):
                info = HfApi().model_info(repository, revision=revision or None, timeout=SECONDS, files_metadata=True)
            files = []
            for one in info.siblings or []:
                if one.size is None:
                    found = f"{self.address_variable} names a mirror that lists no sizes of files"
                    raise self.failed(repository, found)
                hashes = (one.lfs.sha256, "") if one.lfs else ("", one.blob_id or "")
                files.append(RemoteFile(one.rfilename, one.size, *hashes))
            licence = _licence(info.card_data)
        return Snapshot(self.key, repository, revision, info.sha or "", licence, own_files(repository, files))

    def fetch(self, snapshot: Snapshot, file: RemoteFile, directory: Path) -> None:
        """Fetch a file."""
        from huggingface_hub import constants, hf_hub_download

        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE and constants.HF_HUB_DISABLE_XET:
            raise UserError(
                f"{file.name}: found {file.size:,} bytes, more than the client fetches by HTTP. Put "
                "HF_HUB_DISABLE_XET=0 before the same command."
            )
        try:
            with self.reading(), self._refusals(snapshot.repository, snapshot.revision):
                self.largest = max(file.size, 2**20)  # or of a refusal
                hf_hub_download(snapshot.repository, file.name, revision=snapshot.commit or None, local_dir=directory)
        except _OtherSize as error:
            # Kept, it would be taken for the beginning of the file for ever.
            for part in (directory / ".cache" / "huggingface").rglob(f"*.{file.sha256 or file.git_sha1}.incomplete"):
                part.unlink()
            raise self.damaged(snapshot, file, str(error)) from None

    def send(self, repository: str, folder: Path, names: list[str], private: bool) -> None:
        """Send files: what was sent before a lost connection is not sent again."""
        from huggingface_hub import HfApi

        self.largest = LARGEST_FIRST
        with self.reading(), self._refusals(repository, "", writes=True):
            HfApi().create_repo(repository, private=private, exist_ok=True)
            HfApi().upload_folder(repo_id=repository, folder_path=folder, allow_patterns=names)

    @contextmanager
    def _refusals(self, repository: str, revision: str, writes: bool = False) -> Iterator[None]:
        """Turn the client's errors into ours, subclasses first."""
        import requests
        from huggingface_hub import errors

        try:
            yield
        except errors.GatedRepoError:
            raise self.forbidden(repository) from None
        except errors.RepositoryNotFoundError:
            raise (self.read_only(repository) if writes else self.not_found(repository)) from None
        except errors.RevisionNotFoundError:
            raise self.no_revision(repository, revision) from None
        except errors.OfflineModeIsEnabled:
            raise UserError("HF_HUB_OFFLINE: is set, so no hub is asked. Unset it.") from None
        except (errors.LocalEntryNotFoundError, requests.ConnectionError) as error:
            cause = getattr(error.__cause__, "response", None)  # of the question before a file
            if cause is not None and cause.status_code == 429:
                raise Busy(cause.headers.get("Retry-After")) from None
            raise self.no_answer("no connection") from None
        except requests.Timeout:
            raise self.no_answer(f"nothing within {SECONDS} s") from None
        except requests.JSONDecodeError:
            raise self.no_answer("what it sends is no JSON") from None
        except errors.HfHubHTTPError as error:
            response = error.response
            status = response.status_code if response is not None else 0
            if response is not None and status == 429:
                raise Busy(response.headers.get("Retry-After")) from None
            if status in (401, 403) or (writes and status == 404):  # an OWNER that the hub does not know
                raise (self.read_only(repository) if writes else self.forbidden(repository)) from None
            if status == 416:
                raise _OtherSize("shorter than the hub lists") from None
            if status >= 500:
                raise self.no_answer(f"HTTP {status}") from None
            raise self.failed(repository, error) from None
        except (errors.HFValidationError, errors.EntryNotFoundError, errors.FileMetadataError) as error:
            raise self.failed(repository, error) from None
        except requests.RequestException:
            raise self.no_answer("the connection was cut") from None
        except OSError as error:
            if error.errno is not None:  # of this machine, such as a full disk
                raise
            raise _OtherSize(str(error).splitlines()[0]) from None


class _OtherSize(Exception):
    """A file whose length differs from the hub's list."""


def _licence(card) -> str:
    """Return the licence of the model card's head: "apache-2.0", or "other" with the licence's own name and address."""
    stated = card.to_dict() if card else {}
    found = [stated.get(key) for key in ("license", "license_name", "license_link")]
    words = [", ".join(map(str, one)) if isinstance(one, list) else str(one) for one in found if one]
    return ", ".join(words)
