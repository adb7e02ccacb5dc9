"""A Hub of one's own: the few answers that `snapshot_download` needs, over HTTP on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Commits by name, branches and tags by the commit they mean."""

    commits: Mapping[str, Path]
    names: Mapping[str, str]


@dataclass
class HubServer:
    """Repositories by id; `asked` collects the paths of every request."""

    repositories: Mapping[str, Repository]
    asked: list[str] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def hub_server(repositories: Mapping[str, Repository]) -> Iterator[HubServer]:
    """Serve repositories while the context lasts; HF_ENDPOINT is to be its `endpoint`."""
    hub = HubServer(repositories)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _answer(self, with_body: bool) -> None:
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            hub.asked.append("/".join(parts))
            status, headers, body = _response(hub.repositories, parts)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _response(repositories: Mapping[str, Repository], path: list[str]) -> tuple[int, dict[str, str], bytes]:
    is_api = path[:2] == ["api", "models"]
    owner, name, *rest = path[2:] if is_api else path
    repository = repositories.get(f"{owner}/{name}")
    if repository is None:
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
    what, revision, *inside = rest or ["revision", "main"]
    commit = repository.names.get(revision, revision)
    if commit not in repository.commits:
        return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
    folder = repository.commits[commit]
    if is_api and what == "revision":
        return _json({"id": f"{owner}/{name}", "sha": commit, "siblings": [], "tags": [], "private": False})
    if is_api and what == "tree":
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return _json([_entry(file, folder) for file in files])
    file = folder.joinpath(*inside)
    if what != "resolve" or not file.is_file():
        return 404, {"X-Error-Code": "EntryNotFound"}, b""
    return 200, {"ETag": f'"{_hash(file)}"', "X-Repo-Commit": commit}, file.read_bytes()


def _entry(file: Path, folder: Path) -> dict[str, object]:
    size = file.stat().st_size
    return {"type": "file", "path": file.relative_to(folder).as_posix(), "size": size, "oid": _hash(file)}


def _json(content: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _hash(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
