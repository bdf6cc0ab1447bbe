"""ModelScope's hub (MODELSCOPE_ENDPOINT), by modelscope-hub 0.5, which is installed when FROM names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_tools.formats.json_files import shown
from launch.errors import UserError
from launch.hubs.hub import Hub
from launch.hubs.repository import RemoteFile, Snapshot, own_files

# pyright: reportMissingImports=false

MODEL = "model"


class ModelScope(Hub):
    """The hub of ModelScope."""

    key, title = "modelscope", "ModelScope"
    login = "`.venv/bin/modelscope login`"
    address_variable, token_variable = "MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN"

    def __init__(self) -> None:
        try:
            from modelscope_hub.api import HubApi
        except ImportError:
            raise UserError(
                "modelscope-hub: is not installed. The same command with FROM=modelscope installs it."
            ) from None
        self.api = HubApi()
        self.endpoint = self.api.legacy.endpoint

    def page(self, repository: str) -> str:
        """Return the address of a repository's page."""
        return f"{self.address}/models/{repository}"

    def snapshot(self, repository: str, revision: str) -> Snapshot:
        """Return the files that the repository lists."""
        with self.reading():
            with self._refusals(repository, ""):
                info = self.api.get_repo(repository, MODEL)
            with self._refusals(repository, revision):
                listed = self.api.list_repo_files(repository, MODEL, revision=revision or None)
            files = [RemoteFile(one.path, one.size, one.sha256 or "") for one in listed if not one.is_dir]
            licence = info.license or ""
        return Snapshot(self.key, repository, revision, "", licence, own_files(repository, files))

    def fetch(self, snapshot: Snapshot, file: RemoteFile, directory: Path) -> None:
        """Fetch a file."""
        from modelscope_hub import errors

        try:
            with self.reading(), self._refusals(snapshot.repository, snapshot.revision):
                self.api.download_file(
                    snapshot.repository,
                    MODEL,
                    file.name,
                    revision=snapshot.revision or None,
                    local_dir=directory,
                    expected_sha256=file.sha256 or None,
                    file_size=file.size,
                )
        except errors.FileIntegrityError as error:  # tried several times, and removed
            raise self.damaged(snapshot, file, shown(error.message, 200)) from None

    def send(self, repository: str, folder: Path, names: list[str], private: bool) -> None:
        """Send files, going on where an earlier call was cut off."""
        with self.reading(), self._refusals(repository, "", writes=True):
            if not self.api.repo_exists(repository, MODEL):
                self.api.create_repo(repository, MODEL, visibility="private" if private else "public")
            self.api.upload_folder(repository, MODEL, folder, allow_patterns=names)

    @contextmanager
    def _refusals(self, repository: str, revision: str, writes: bool = False) -> Iterator[None]:
        from modelscope_hub import errors

        try:
            yield
        except (errors.AuthenticationError, errors.PermissionDeniedError):
            raise (self.read_only(repository) if writes else self.forbidden(repository)) from None
        except errors.NotExistError:
            if writes:  # to an OWNER that the hub does not know
                raise self.read_only(repository) from None
            raise (self.no_revision(repository, revision) if revision else self.not_found(repository)) from None
        except errors.ServerError:
            raise self.no_answer("an error of the server") from None
        except errors.RequestTimeoutError:
            raise self.no_answer("nothing in time") from None
        except errors.NetworkError:
            raise self.no_answer("no connection") from None
        except errors.FileIntegrityError:
            raise
        except errors.HubError as error:
            raise self.failed(repository, error) from None
