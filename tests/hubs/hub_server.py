"""A server on this machine that speaks as the three hubs do, as far as their clients ask: huggingface_hub 0.36,
modelscope-hub 0.5, aistudio-sdk 0.2.6. Written down from what these clients send and read; the hubs themselves were not
reached.

    with serving({"some/llama": Repository(files)}) as server:
        server.address, server.sent["model.safetensors"], server.asked
"""

import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = ("main", "master", "v1", COMMIT)
LARGE = (".safetensors", ".bin")  # what git keeps elsewhere
PIECE = 1 << 16


@dataclass
class Repository:
    """served: contents that are sent instead of those that are listed. stated: sizes instead of the true ones.
    status: of every answer about it, where it is not 0. token: that is needed for the files themselves, as behind a
    licence."""

    files: dict[str, bytes]
    licence: str = "apache-2.0"
    served: dict[str, bytes] = field(default_factory=dict)
    stated: dict[str, int | None] = field(default_factory=dict)
    status: int = 0
    token: str = ""
    private: bool = False

    def size(self, path: str) -> int | None:
        return self.stated.get(path, len(self.files[path]))


class HubServer(ThreadingHTTPServer):
    """sent: bytes of each file that went out. asked: lines of requests. hold: {file: bytes after which it is silent},
    and `held` is set when it is. drop: {file: bytes after which the connection ends}, once. A file that comes in is
    named by its sha256 in both."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Repository]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = repositories
        self.sent: Counter[str] = Counter()
        self.asked: list[str] = []
        self.stored: dict[str, bytes] = {}  # by sha256: large files, which may be of no repository yet
        self.hold: dict[str, int] = {}
        self.drop: dict[str, int] = {}
        self.held = threading.Event()
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        """A client that was killed is no fault."""


@contextmanager
def serving(repositories: dict[str, Repository]) -> Iterator[HubServer]:
    server = HubServer(repositories)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(60)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, format, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        path, query = unquote(urlsplit(self.path).path), parse_qs(urlsplit(self.path).query)
        words = path.strip("/").split("/")
        if words[:2] == ["api", "models"]:
            self.hugging_face_lists("/".join(words[2:4]), words[5] if len(words) > 5 else "main")
        elif words[2:3] == ["resolve"]:
            self.hugging_face_resolves("/".join(words[:2]), words[3], "/".join(words[4:]))
        elif words[0] == "elsewhere":
            self.file("/".join(words[1:3]), "/".join(words[3:]))
        elif words[:3] == ["openapi", "v1", "models"]:
            self.model_scope_describes("/".join(words[3:5]))
        elif words[:3] == ["api", "v1", "models"]:
            self.model_scope("/".join(words[3:5]), words[5:], query)
        elif words[:3] == ["api", "v1", "repos"] and len(words) > 5:
            self.ai_studio("/".join(words[3:5]), words[5], "/".join(words[6:]), query)
        else:
            self.answer(404, {"message": "no such address"})

    def do_POST(self) -> None:
        """What the clients send when they upload. Each asks for a token."""
        self.server.asked.append(f"{self.command} {self.path}")
        size = int(self.headers["Content-Length"] or 0)
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        if words[0] == "lfs":
            self.store(words[1], size)
            return
        body = self.rfile.read(size)
        if len(self.headers.get("Authorization") or self.headers.get("Cookie") or "") < 20:
            self.answer(401, {"message": "no token"})
        elif words[:2] == ["api", "validate-yaml"] or words[0] == "verify":
            self.answer(200, {"errors": [], "warnings": []})
        elif words == ["api", "repos", "create"]:
            sent = json.loads(body)
            self.made(
                f"{sent['organization']}/{sent['name']}", sent["private"], 409, {"url": f"{self.server.address}/"}
            )
        elif words == ["studio", "model", "sdk", "add"]:
            sent = json.loads(body)
            names = {"modelName": "", "repoName": sent["repoName"], "desc": "", "license": ""}
            answer = {"errorCode": 0, "result": names | {"repoType": sent["repoType"]}}
            self.made(f"me/{sent['repoName']}", not sent["repoType"], 200, answer)
        elif words == ["api", "v1", "models"]:
            sent = json.loads(body)
            self.made(f"{sent['Path']}/{sent['Name']}", sent["Visibility"] == 1, 400, {"Code": 200, "Data": {}})
        elif words[-3:] == ["lfs", "objects", "batch"] or words[-2:] == ["info", "lfs"]:
            self.git_lfs(json.loads(body)["objects"])
        elif "preupload" in words:
            large = {one["path"]: one["path"].endswith(LARGE) for one in json.loads(body)["files"]}
            modes = [
                {"path": path, "uploadMode": ("regular", "lfs")[is_large], "shouldIgnore": False, "lfs": is_large}
                for path, is_large in large.items()
            ]
            self.answer(200, {"files": modes})
        elif words[:2] == ["api", "models"] and words[4] == "commit":
            lines = [json.loads(line) for line in body.splitlines()]
            self.committed(
                "/".join(words[2:4]),
                {line["value"]["path"]: line["value"] for line in lines if "file" in line["key"].lower()},
            )
        elif words[:4] == ["api", "v1", "repos", "models"] and words[6] == "commit":
            actions = {one["path"]: one | {"oid": one["sha256"]} for one in json.loads(body)["actions"]}
            self.committed("/".join(words[4:6]), actions)
        elif words[:3] == ["api", "v1", "repos"] and words[5] == "contents":
            sent = json.loads(body)
            if sent.get("lfsPointer"):
                pointer = base64.b64decode(sent["content"]).decode()
                sent = {"oid": pointer.partition("sha256:")[2][:64]}
            self.committed("/".join(words[3:5]), {"/".join(words[6:]): sent})
        else:
            self.answer(404, {"message": "no such address"})

    do_PUT = do_POST

    def store(self, oid: str, size: int) -> None:
        """Keep an uploaded file, which is cut off where `hold` or `drop` say so."""
        holds = oid in self.server.hold
        limit = self.server.hold.get(oid, size) if holds else self.server.drop.pop(oid, size)
        body = self.rfile.read(limit)
        if limit < size:
            self.server.held.set()
            if holds:
                self.server.go_on.wait(60)
            self.close_connection = True
            return
        self.server.stored[oid] = body
        self.answer(200, {}, {"Content-Md5": "of the store"})

    def made(self, name: str, private: bool, status: int, answer: dict) -> None:
        """status: of the answer where the repository is there already."""
        if name.startswith("nobody/"):
            self.answer(404, {"message": "no such owner"})
        elif name in self.server.repositories:
            self.answer(status, answer | {"errorCode": 1, "errorMsg": "repo already created", "logId": "", "Code": 400})
        else:
            self.server.repositories[name] = Repository({}, private=private)
            self.answer(200, answer)

    def git_lfs(self, objects: list[dict]) -> None:
        found = []
        for one in objects:
            upload = {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}", "header": {}}}
            upload |= {"verify": {"href": f"{self.server.address}/verify", "header": {}}}
            found.append(one | ({} if one["oid"] in self.server.stored else {"actions": upload}))
        self.answer(200, {"transfer": "basic", "objects": found, "Code": 200, "Data": {"objects": found}})

    def committed(self, name: str, files: dict[str, dict]) -> None:
        for path, sent in files.items():
            content = self.server.stored[sent["oid"]] if sent.get("oid") else base64.b64decode(sent["content"])
            self.server.repositories[name].files[path] = content
        self.answer(
            200,
            {
                "commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}",
                "commitOid": COMMIT,
                "Code": 200,
                "Data": {},
                "Success": True,
            },
        )

    # ---- Hugging Face

    def hugging_face_lists(self, name: str, revision: str) -> None:
        if not (repository := self.repository(name, revision, {"X-Error-Code": "RepoNotFound"})):
            return
        siblings = []
        for path, content in repository.files.items():
            one = {"rfilename": path, "size": repository.size(path), "blobId": git_name(content)}
            if path.endswith(LARGE):
                one["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
            siblings.append(one)
        card = {"license": repository.licence} if repository.licence else {}
        self.answer(200, {"id": name, "sha": COMMIT, "siblings": siblings, "cardData": card, "private": False})

    def hugging_face_resolves(self, name: str, revision: str, path: str) -> None:
        if not (repository := self.repository(name, revision, {"X-Error-Code": "RepoNotFound"})):
            return
        if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
            self.answer(401, {}, {"X-Error-Code": "GatedRepo"})
            return
        content = repository.files.get(path)
        if content is None:
            self.answer(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        headers = {"X-Repo-Commit": COMMIT}
        if path.endswith(LARGE):
            headers |= {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            headers |= {"Location": f"{self.server.address}/elsewhere/{name}/{path}"}
            self.answer(302, None, headers)
        else:
            self.file(name, path, headers | {"ETag": f'"{git_name(content)}"'})

    # ---- ModelScope

    def model_scope_describes(self, name: str) -> None:
        if repository := self.repository(name, "master"):
            self.answer(200, {"success": True, "data": {"id": name, "license": repository.licence, "gated": False}})

    def model_scope(self, name: str, words: list[str], query: dict) -> None:
        revision = query.get("Revision", ["master"])[0]
        if not (repository := self.repository(name, revision)):
            return
        if words == ["repo"]:
            if repository.token and f"m_session_id={repository.token}" not in self.headers.get("Cookie", ""):
                self.answer(403, {"Code": 10010205001, "Message": "no permission"})
                return
            self.file(name, query["FilePath"][0])
            return
        files = [
            {
                "Path": path,
                "Name": path.split("/")[-1],
                "Size": repository.size(path),
                "Sha256": sha256(content),
                "Type": "blob",
            }
            for path, content in repository.files.items()
        ]
        self.answer(200, {"Code": 200, "Data": {"Files": files} if words else {"License": repository.licence}})

    # ---- AI Studio

    def ai_studio(self, name: str, what: str, path: str, query: dict) -> None:
        repository = self.repository(name, query.get("ref", ["master"])[0])
        if not repository:
            return
        if repository.token and self.headers.get("Authorization") != f"token {repository.token}":
            self.answer(403, {"message": "no permission"})
        elif what == "media":
            self.file(name, path)
        elif path and path not in repository.files:
            self.answer(404, {"message": "no such file"})
        elif path:
            content = repository.files[path]
            size = repository.size(path)
            if path.endswith(LARGE):
                head = "version https://git-lfs.github.com/spec/v1"
                content = f"{head}\noid sha256:{sha256(content)}\nsize {size}\n".encode()
            inline = base64.b64encode(content).decode()
            self.answer(200, {"path": path, "type": "file", "size": size, "sha": git_name(content), "content": inline})
        else:
            names = {path.split("/")[0] if not path.startswith(".") else path for path in repository.files}
            kinds = {one: "file" if one in repository.files else "dir" for one in names}
            self.answer(200, [{"path": one, "name": one, "type": kind, "size": 134} for one, kind in kinds.items()])

    # ---- all

    def repository(self, name: str, revision: str, headers: dict | None = None) -> Repository | None:
        """None where the answer has been sent."""
        found = self.server.repositories.get(name)
        if found is None:
            self.answer(404, {"message": "not found"}, headers)
        elif found.status:
            self.answer(found.status, {"message": "refused"})
        elif revision not in REVISIONS:
            self.answer(404, {"message": "no revision"}, {"X-Error-Code": "RevisionNotFound"} if headers else None)
        else:
            return found
        return None

    def file(self, name: str, path: str, headers: dict | None = None) -> None:
        """With Range, as stores of files have it."""
        repository = self.server.repositories[name]
        content = repository.served.get(path, repository.files[path])
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        if start and start >= len(content):
            self.answer(416, {}, {"Content-Range": f"bytes */{len(content)}"})
            return
        headers = dict(headers or {})
        if self.headers.get("Range"):
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send_response(206 if self.headers.get("Range") else 200)
        self.end(headers, len(content) - start)
        if self.command != "HEAD":
            self.send(path, content, start)

    def send(self, path: str, content: bytes, start: int) -> None:
        while start < len(content):
            if start == self.server.drop.get(path):
                del self.server.drop[path]
                self.close_connection = True
                return
            end = min(start + PIECE, len(content), self.server.hold.get(path, len(content)))
            if end == start:
                self.wfile.flush()
                self.server.held.set()
                self.server.go_on.wait(60)
                self.close_connection = True
                return
            self.wfile.write(content[start:end])
            self.server.sent[path] += end - start
            start = end

    def answer(self, status: int, body: object, headers: dict | None = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.end({"Content-Type": "application/json"} | (headers or {}), len(text))
        if self.command != "HEAD":
            self.wfile.write(text)

    def end(self, headers: dict, length: int) -> None:
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_name(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
