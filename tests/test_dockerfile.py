"""The Dockerfile names only what exists: no engine runs in the tests, so this is what can be known without one."""

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from albert.cli.main import COMMANDS
from albert.commands.serve import serve_main


@pytest.fixture
def instructions(checkout: Path) -> list[tuple[str, str]]:
    """Instruction and arguments of every line, continued lines joined, comments left out."""
    lines = [line for line in (checkout / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line.strip()]


def of(instructions: list[tuple[str, str]], name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions if instruction == name]


def test_what_it_copies_exists_and_is_sent_to_the_build(instructions, checkout: Path):
    copied = [source for arguments in of(instructions, "COPY") for source in arguments.split()[:-1]]
    kept = [line.removeprefix("!") for line in (checkout / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    assert sorted(copied) == sorted(kept)
    assert all((checkout / source).exists() for source in copied)


def test_what_the_package_is_built_from_is_copied(instructions, checkout: Path):
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    copied = " ".join(of(instructions, "COPY"))
    assert all(file in copied for file in (project["readme"], *project["license-files"]))
    extras = re.findall(r"\.\[([\w,]+)\]", " ".join(of(instructions, "RUN")))
    assert extras == ["serve"] and "serve" in project["optional-dependencies"]


def test_versions_are_pinned_and_torch_is_the_one_for_cpus(instructions, checkout: Path):
    installs = [command for command in of(instructions, "RUN") if "pip install" in command]
    assert all("-c constraints.txt" in command for command in installs)
    assert "https://download.pytorch.org/whl/cpu" in installs[0] and installs[0].split()[-1] == "torch"
    assert re.search(r"^torch==", (checkout / "constraints.txt").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim", of(instructions, "FROM")[0])


def test_it_ends_as_an_ordinary_user_with_a_command_that_exists(instructions):
    assert of(instructions, "USER")[-1] == "albert" and "useradd" in " ".join(of(instructions, "RUN"))
    assert json.loads(of(instructions, "ENTRYPOINT")[-1]) == ["albert"]
    name, *arguments = json.loads(of(instructions, "CMD")[-1])
    assert name in COMMANDS
    pytest.importorskip("fastapi")
    values = serve_main.arguments(arguments)
    port = str(values.get("port", 8000))
    assert (values["model"], values["host"], port) == ("/model", "0.0.0.0", of(instructions, "EXPOSE")[0])


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_tells_health(status: int, healthy: bool, instructions):
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        check = of(instructions, "HEALTHCHECK")[-1].split("CMD ", 1)[1]
        command = json.loads(check.replace(":8000", f":{server.server_address[1]}"))
        code = subprocess.run([sys.executable, *command[1:]], capture_output=True).returncode
    finally:
        server.shutdown()
        server.server_close()
    assert (code == 0) is healthy and asked == ["/healthz"]
