"""The commands of README.md run as they stand, only shorter, and so does its Python."""

import csv
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHORTER = {
    "tokenizer train": ["--vocab-size", "1200"],
    "tokenizer encode": [],
    "pretrain": shlex.split(
        "--schedule.total-steps 3 --schedule.warmup-steps 1 --batch-size 4 --evaluation-sequences 8 --precision fp32 "
        "--model.num-hidden-layers 2"
    ),
    "finetune": ["--steps", "3"],
    "analyze": [],
    "evaluate": [],
    "quantize": [],
    "export": [],
    "plot": [],
    "prepare": ["--held-out", "0.2"],
    "show": ["--count", "20"],
    "predict": [],
    "info": [],
    "convert": [],
    "tables": [],
    "verify": [],
}
"""What is added to each command: the same path through the code, in seconds."""


def blocks(language: str) -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)


@pytest.fixture
def a_users_folder(tmp_path, monkeypatch):
    """Text and labelled files under the names that README uses."""
    from albert.experiments.sample_corpus import labelled_passages, load_chapters

    monkeypatch.chdir(tmp_path)
    Path("my_text").mkdir()
    for number, chapter in enumerate(load_chapters()[:14]):
        Path("my_text", f"{number}.txt").write_text(chapter.text[:9000], encoding="utf-8")
    passages = labelled_passages()
    for name, rows in (("train", passages.train[:60]), ("dev", passages.dev[:12])):
        with open(f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "stars"])
            writer.writerows([passage.text, passage.author] for passage in rows)
    shutil.copytree(ROOT / "tests" / "checkpoints" / "tensorflow" / "classifier", "google_checkpoint")
    return tmp_path


def shell_lines() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines()]


def asked_over_http() -> bytes:
    """What README's curl gets from README's server, at a port that is free."""
    (serve,) = (line for line in shell_lines() if line.startswith("albert serve "))
    (curl,) = (line for line in shell_lines() if line.startswith("curl "))
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen([sys.executable, "-m", *shlex.split(serve.replace("8000", port))])
    try:
        waiting = ["curl", "--silent", "--fail", "--retry", "120", "--retry-delay", "1", "--retry-all-errors"]
        subprocess.run([*waiting, f"localhost:{port}/readyz"], check=True, capture_output=True, timeout=180)
        asking = [*shlex.split(curl.replace("8000", port)), "--silent", "--fail"]
        answer = subprocess.run(asking, check=True, capture_output=True, timeout=60).stdout
    finally:
        server.send_signal(signal.SIGTERM)
        ended = server.wait(60)
    assert ended == 0
    return answer


def command_of(line: str) -> list[str]:
    words = shlex.split(line)[1:]
    return words[:2] if words[0] == "tokenizer" else words[:1]


def test_the_readme_commands_run(a_users_folder, capsys):
    from albert.cli.main import run

    commands = [line for line in shell_lines() if line.startswith("albert ") and not line.startswith("albert serve ")]
    assert {" ".join(command_of(line)) for line in commands} == set(SHORTER)
    for line in commands:
        words, kept = shlex.split(line)[1:], command_of(line)
        extra = SHORTER[" ".join(kept)]
        arguments = [word for word in words[len(kept) :]]
        for option in extra[::2]:
            if option in arguments:
                place = arguments.index(option)
                del arguments[place : place + 2]
        assert not run([*kept, *arguments, *extra]), line
    assert "11,683,584" in capsys.readouterr().out  # of `albert info albert-base`
    for snippet in blocks("python"):
        exec(snippet, {})
    assert "token_str" in capsys.readouterr().out
    served = json.loads(asked_over_http())
    assert sum(entry["score"] for entry in served["results"][0]) == pytest.approx(1.0)


DOCUMENTS = ("README.md", "SECURITY.md", "docs/paper.md", "docs/tour.md", "docs/decisions/README.md")
FORMS = {
    "tokenizer": ("train", "encode", "decode", "convert"),
    "analyze": ("layers",),
    "pretrain": ("base",),
    "export": ("onnx", "sentence-transformers"),
    "tables": ("list", "plan", "run", "show", "keep"),
}
"""Commands whose help depends on the word after them."""
OF_OTHERS = {"--max-restarts"}
"""Of torchrun."""


def options_of(command: str, capsys) -> set[str]:
    from albert.cli.main import run

    for form in FORMS.get(command, ("",)):
        with pytest.raises(SystemExit):
            run([command, *form.split(), "--help"])
    return set(re.findall(r"--[a-z][\w.-]*", capsys.readouterr().out))


def test_every_option_that_the_documents_name_is_there(monkeypatch, capsys):
    from albert.cli.main import COMMANDS

    monkeypatch.setenv("COLUMNS", "200")
    options = {command: options_of(command, capsys) for command in COMMANDS}
    of_any = OF_OTHERS.union(*options.values())
    missing, seen = [], 0
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
        for span in (span.split() for span in re.findall(r"`((?:albert [a-z]|--)[^`]+)`", text)):
            named = {option for option in span if re.fullmatch(r"--[a-z][\w.-]*", option)}
            missing += [(document, *span)] * (not named <= (options[span[1]] if span[0] == "albert" else of_any))
            seen += len(named)
    assert not missing and seen > 40


def test_info_knows_the_sizes_by_the_names_of_their_recipes(capsys):
    from albert.cli.main import run

    assert not run(["info", "base", "--memory", "--memory-limit", "24GB", "--device", "cuda"])
    assert "albert-base" in (shown := capsys.readouterr().out) and "micro-batch" in shown


def test_make_has_the_two_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in blocks("bash"):
        for target in re.findall(r"^make (\S+)", block, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
