"""A local Hub over HTTP with the endpoints that `snapshot_download` and uploads need."""

import base64
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
    """Folders by commit; commits by branch or tag."""

    commits: Mapping[str, Path]
    names: Mapping[str, str]


@dataclass
class HubServer:
    """Repositories by id; `requests` has the paths of all requests."""

    repositories: Mapping[str, Repository]
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""
    written: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Uploaded files by repository."""
    private: dict[str, bool] = field(default_factory=dict)


@contextmanager
def hub_server(repositories: Mapping[str, Repository]) -> Iterator[HubServer]:
    """Serve repositories for the length of the block at `endpoint`."""
    hub = HubServer(repositories)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path.strip("/")
            hub.requests.append(path)
            status, content = _written(hub, path, body, self.headers.get("Authorization"))
            answer = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def _answer(self, with_body: bool) -> None:
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            hub.requests.append("/".join(parts))
            uploaded = hub.written.get("/".join(parts[2:4])) if parts[4:5] in (["tree"], ["revision"]) else None
            if uploaded is None:
                status, headers, body = _response(hub.repositories, parts)
            elif parts[4] == "tree":
                entries = [{"type": "file", "path": name, "size": len(uploaded[name]), "oid": "0"} for name in uploaded]
                status, headers, body = _json(entries)
            else:
                status, headers, body = _json({"id": "/".join(parts[2:4]), "sha": "1" * 40, "siblings": []})
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


def _written(hub: HubServer, path: str, body: bytes, token: str | None) -> tuple[int, dict[str, object]]:
    """Create a repository or commit files; the token `hf_right` may write to `someone/…`."""
    if path == "api/validate-yaml":
        return 200, {"warnings": [], "errors": []}
    if token != "Bearer hf_right":
        return 401, {"error": "Invalid username or password."}
    if path == "api/repos/create":
        request = json.loads(body)
        name = f"{request.get('organization', 'someone')}/{request['name']}"
        if not name.startswith("someone/"):
            return 403, {"error": "You don't have the rights to create a model under this namespace"}
        if name in hub.written:
            return 409, {"error": "You already created this model repo", "url": f"{hub.endpoint}/{name}"}
        hub.written[name] = {}
        hub.private[name] = _is_private(request)
        return 200, {"url": f"{hub.endpoint}/{name}", "name": name, "id": name}
    _, _, owner, name, what, *_ = path.split("/")
    if what == "settings":
        hub.private[f"{owner}/{name}"] = _is_private(json.loads(body))
        return 200, {}
    if what == "preupload":
        files = json.loads(body)["files"]
        modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
        return 200, {"files": modes}
    for line in body.splitlines():
        change = json.loads(line)
        if change["key"] == "file":
            content = base64.b64decode(change["value"]["content"])
            hub.written[f"{owner}/{name}"][change["value"]["path"]] = content
        elif change["key"] == "deletedFile":
            del hub.written[f"{owner}/{name}"][change["value"]["path"]]
    return 200, {"commitUrl": f"{hub.endpoint}/{owner}/{name}/commit/1", "commitOid": "1" * 40, "success": True}


def _is_private(request: Mapping[str, object]) -> bool:
    return bool(request.get("private")) or request.get("visibility") == "private"


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
