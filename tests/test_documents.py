"""The commands of README.md and docs/ run as they stand, only shorter, and so does their Python."""

import csv
import importlib
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path

import datasets
import pyarrow
import pytest
import yaml
from pyarrow import parquet
from tests.text.helpers import stand_in_for_hub

import albert
from albert.runtime import errors
from experiments import tables

ROOT = Path(__file__).parent.parent
IN_ORDER = (
    "docs/getting-started.md",
    "docs/own-text.md",
    "README.md",
    "docs/own-task.md",
    "docs/own-task-reference.md",
    "docs/python.md",
    "docs/deploying.md",
    "docs/from-transformers.md",
    "docs/from-sentence-transformers.md",
    "docs/models.md",
    "docs/tables.md",
)
"""The documents with commands, in an order in which each finds what the ones before have made."""
OTHERS = (
    "index",
    "api",
    "architecture",
    "paper",
    "performance",
    "promises",
    "tour",
    "troubleshooting",
    "which-model",
    "decisions/README",
    "decisions/third-edition",
)
DOCUMENTS = (*IN_ORDER, "SECURITY.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in OTHERS))
HISTORY = ("docs/log.md", "docs/decisions/fourth-edition.md")
"""What was tried, and what left, with options that no longer exist."""
MAX_WORDS = 1000
"""Of README."""
SHORTER = {
    "tokenizer train": ["--vocab-size", "1200"],
    "tokenizer encode": [],
    "pretrain": shlex.split(
        "steps=3 schedule.warmup_steps=1 batch_size=4 evaluation_sequences=8 precision=fp32 "
        "architecture.num_hidden_layers=2 architecture.hidden_size=64 architecture.embedding_size=32 "
        "architecture.num_attention_heads=1 architecture.intermediate_size=128"
    ),
    "finetune": ["steps=3", "max_length=48"],
    "sweep": ["steps=3", "max_length=48"],
    "evaluate": [],
    "quantize": [],
    "export": [],
    "prepare": ["--held-out", "0.2"],
    "predict": [],
    "info": [],
    "convert": [],
}
"""What is added to each command: the same path through the code, in seconds."""


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = [block for name in IN_ORDER for block in re.findall(rf"```{language}\n(.*?)```", text_of(name), re.DOTALL)]
    return list(dict.fromkeys(found))


@pytest.fixture
def a_users_folder(tmp_path, monkeypatch):
    """Text and labelled files under the names that the documents use."""
    from albert.commands.sample import labelled_passages, load_chapters

    monkeypatch.chdir(tmp_path)
    Path("my_text").mkdir()
    for number, chapter in enumerate(load_chapters()[:14]):
        Path("my_text", f"{number}.txt").write_text(chapter.text[:9000], encoding="utf-8")
    passages = labelled_passages()
    for name, rows in (("reviews", passages.train[:60]), ("dev", passages.dev[:12]), ("new", passages.dev[:3])):
        with open(f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "verdict"])
            writer.writerows([passage.text, passage.author] for passage in rows)
    shutil.copytree(ROOT / "tests" / "checkpoints" / "tensorflow" / "classifier", "google_checkpoint")
    write_wikipedia(monkeypatch)
    return tmp_path


def write_wikipedia(monkeypatch):
    """Articles as a folder of Parquet files, as WikiExtractor's files, and in the place of data sets of the Hub."""
    articles = [
        {"id": str(path.stem), "url": f"https://de.wikipedia.org/wiki/{path.stem}", "title": path.stem, "text": text}
        for path in sorted(Path("my_text").iterdir())
        for text in path.read_text(encoding="utf-8").split("\n\n")
    ]
    for folder in ("wikipedia/20231101.de", "hub/20231101.de", "hub/de"):
        Path(folder).mkdir(parents=True)
        parquet.write_table(pyarrow.Table.from_pylist(articles), f"{folder}/train-00000-of-00001.parquet")
    stand_in_for_hub(monkeypatch, datasets, Path("hub"), ["20231101.de", "de"])
    Path("extracted/AA").mkdir(parents=True)
    Path("extracted/AA/wiki_00").write_text("".join(json.dumps(article) + "\n" for article in articles))


def shell_lines() -> list[str]:
    """Each once, where it comes first."""
    return list(dict.fromkeys(line for block in blocks("bash") for line in block.splitlines()))


def asked_over_http() -> bytes:
    """What the documents' curl gets from their server, at a port that is free."""
    (serve,) = (line for line in shell_lines() if line.startswith("albert serve ") and "--port 8000" in line)
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


@pytest.mark.long
def test_the_commands_of_the_documents_run(a_users_folder, capsys, monkeypatch):
    from albert.cli.main import run

    commands = [line for line in shell_lines() if line.startswith("albert ") and not line.startswith("albert serve ")]
    assert {" ".join(command_of(line)) for line in commands} == set(SHORTER)
    for line in commands:
        words, kept = shlex.split(line)[1:], command_of(line)
        extra = SHORTER[" ".join(kept)]
        arguments = [word for word in words[len(kept) :]]
        if "--vocab-size" in arguments:
            place = arguments.index("--vocab-size")
            del arguments[place : place + 2]
        assert not run([*kept, *arguments, *extra]), line
    for line in (line for line in shell_lines() if line.startswith("python -m experiments ")):
        assert not run(shlex.split(line)[3:], tables.main), line
    assert "11,683,584" in capsys.readouterr().out  # of `albert info albert-base`
    shorter = {"steps": 3, "schedule": {"warmup_steps": 1}, "batch_size": 4, "evaluation_sequences": 8}
    shape = {"hidden_size": 64, "embedding_size": 32, "num_attention_heads": 1, "intermediate_size": 128}
    shorter |= {"precision": "fp32", "architecture": {"num_hidden_layers": 2, **shape}}
    monkeypatch.setattr(albert, "finetune", partial(albert.finetune, steps=3, max_length=48), raising=False)
    monkeypatch.setattr(albert, "prepare", partial(albert.prepare, held_out=0.2), raising=False)
    pretrain = albert.pretrain
    monkeypatch.setattr(albert, "pretrain", lambda *a, **k: pretrain(*a, **{**k, **shorter}), raising=False)
    for snippet in blocks("python"):
        exec(snippet, {})
    assert "token_str" in capsys.readouterr().out
    served = json.loads(asked_over_http())
    assert sum(entry["score"] for entry in served["results"][0]) == pytest.approx(1.0)


FORMS = {
    "tokenizer": ("train", "encode", "decode", "convert"),
    "pretrain": ("base",),
    "export": ("onnx", "sentence-transformers"),
}
"""Commands whose help depends on the word after them."""
OF_OTHERS = {"--max-restarts", "--preload", "--timeout", "--concurrency"}
"""Of torchrun, gunicorn and Celery."""


def options_of(command: str, capsys) -> set[str]:
    from albert.cli.main import run

    for form in FORMS.get(command, ("",)):
        with pytest.raises(SystemExit):
            run([command, *form.split(), "--help"])
    return set(re.findall(r"--[a-z][\w.-]*", capsys.readouterr().out))


def options_of_experiments(capsys) -> set[str]:
    for command in ("list", "run", "show", "export"):
        with pytest.raises(SystemExit):
            tables.main([command, "--help"])
    return set(re.findall(r"--[a-z][\w.-]*", capsys.readouterr().out))


def test_every_option_that_the_documents_name_is_there(monkeypatch, capsys):
    from albert.cli.command_line import all_commands
    from albert.cli.main import COMMANDS
    from albert.cli.option_names import OTHER_NAMES, SWITCHES

    monkeypatch.setenv("COLUMNS", "200")
    options = {command: options_of(command, capsys) for command in COMMANDS}
    of_transformers = {f"--{name}" for name in (*OTHER_NAMES, *SWITCHES)}
    of_any = OF_OTHERS.union(*options.values(), of_transformers, options_of_experiments(capsys))
    commands = {name: command for name, command in all_commands().items() if hasattr(command, "options")}
    keys = {name: {each.name for each in one.options if each.is_key} for name, one in commands.items()}
    missing, seen = [], 0
    for document in DOCUMENTS:
        fenced = re.findall(r"```\w*\n(.*?)```", text_of(document), re.DOTALL)
        typed = [
            line.partition(" #")[0] for block in fenced for line in block.splitlines() if line.startswith("albert ")
        ]
        text = re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)
        for span in (span.split() for span in [*typed, *re.findall(r"`((?:albert [a-z]|--)[^`]+)`", text)]):
            named = {option for option in span if re.fullmatch(r"--[a-z][\w.-]*", option)} - {"--help"}
            missing += [(document, *span)] * (not named <= (options[span[1]] if span[0] == "albert" else of_any))
            seen += len(named)
            if span[0] == "albert":
                with_values = {word.partition("=")[0] for word in span if re.match(r"[a-z_.]+=", word)}
                missing += [(document, *span)] * (not with_values <= keys.get(span[1], set()))
                seen += len(with_values)
    assert not missing and seen > 120


FURTHER = (
    *(f"models/{name}/README.md" for name in ("small", "small-vectors", "tiny")),
    *("dev/README.md", "examples/inside-albert.ipynb"),
    *("examples/own-task.ipynb", "examples/own-text.ipynb"),
)
"""More files with commands that are typed today; those of results/ are commands of their commits."""


def typed_commands(text: str) -> Iterator[list[str]]:
    """The words of every command of albert in a text: in a block, in a cell of a notebook, or between backticks."""
    text = re.sub(r"\\\n\s*", "", text)  # a line that goes on
    blocks = re.findall(r"^ *```\w*\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in lines:
        for part in re.split(r" (?:&&|\\?\||>|#) |; |…|\.\.\.(?=\s|$)", " ".join(line.split())):
            match = re.match(r"[!%]?(?:python -m |torchrun .*-m )?albert ([a-z-]+(?: .*)?)$", part.strip())
            if match is not None:
                with suppress(ValueError):  # a quote that is not closed: the text is cut at "…"
                    yield shlex.split(match[1].removesuffix(","))


def refusal_of(words: list[str]) -> str | None:
    """Why a command cannot be typed today; None if it can. An option at its end may be without a value: it is named."""
    from albert.cli.command_line import CommandGroup
    from albert.cli.main import COMMANDS, main_of
    from albert.cli.parsing import read_command_line
    from albert.recipes.pretraining import RECIPES

    words = ["3" if word in ("N", "K") else word for word in words if word not in ("--help", "--version")]
    if not words:
        return None
    name, *rest = words
    if name not in COMMANDS:
        return "no such command"
    command = main_of(name)
    if isinstance(command, CommandGroup):
        part, *rest = rest or ["none is named"]
        if part not in command.parts:
            return None if part == "none is named" else "no such part"
        command = command.parts[part]
    if name == "pretrain":
        recipe, *rest = rest or ["small"]
        if recipe not in (*RECIPES, "continue", "RECIPE") and not recipe.endswith((".toml", ".json")):
            return f"{recipe} is no recipe"
    options = [each for each in command.options if (name, each.name) != ("pretrain", "recipe")]
    try:
        read_command_line(options, rest, f"albert {name}")
    except albert.AlbertError as error:
        return None if error.why == "needs a value" else str(error)
    return None


def test_every_command_of_the_documents_can_be_typed_today():
    """With its values: no option or key that left, no value that is no choice."""
    refused, seen = [], 0
    for document in (*DOCUMENTS, *FURTHER):
        text = text_of(document)
        if document.endswith(".ipynb"):
            cells = json.loads(text)["cells"]
            sources = ["".join(cell["source"]) for cell in cells]
            text = "\n".join(f"```\n{source}\n```" if cell["cell_type"] == "code" else source
                             for cell, source in zip(cells, sources, strict=True))  # fmt: skip
        for words in typed_commands(text):
            seen += 1
            why = refusal_of(words)
            refused += [] if why is None else [f"{document}: albert {shlex.join(words)}: {why}"]
    assert not refused
    assert seen > 150
    assert refusal_of(["finetune", "--epochs", "3"]) and refusal_of(["predict", "--precision", "int4"])
    assert refusal_of(["plot", "runs"]) and refusal_of(["pretrain", "small", "hidden_size=3"])


def test_every_example_of_a_help_can_be_typed():
    from albert.cli.command_line import CommandGroup, all_commands

    examples = []
    for command in all_commands().values():
        if not isinstance(command, CommandGroup):
            examples += re.findall(r"^ *Example: albert (.*)$", command.function.__doc__ or "", re.MULTILINE)
    refused = [(example, why) for example in examples if (why := refusal_of(shlex.split(example.partition(" > ")[0])))]
    assert len(examples) > 20 and not refused


def test_the_list_of_documents_is_complete():
    pages = {f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")}
    assert pages == {name for name in (*DOCUMENTS, *HISTORY) if name.startswith("docs/")}
    for name in {*DOCUMENTS, *HISTORY} - set(IN_ORDER):
        assert not re.search(r"^```(bash|python)$", text_of(name), re.MULTILINE), name
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    menu = {f"docs/{page}" for page in re.findall(r"^  - .+: (\S+\.md)$", site, re.MULTILINE)}
    assert menu == {page for page in pages if not page.startswith("docs/decisions/")} - set(HISTORY)


def test_the_readme_is_short_and_its_links_lead_somewhere():
    readme = text_of("README.md")
    assert len(readme.split()) <= MAX_WORDS
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", readme) if "://" not in link]
    assert len(links) > 10 and all((ROOT / link).exists() for link in links)


def test_the_citation_and_the_changelog_know_the_version():
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == albert.__version__ and len(citation["preferred-citation"]["authors"]) == 6
    assert f"## {albert.__version__}" in text_of("CHANGELOG.md")


def test_the_api_reference_names_what_exists():
    names = re.findall(r"^::: (\S+)$", text_of("docs/api.md"), re.MULTILINE)
    for name in names:
        module, inside = name, []
        while not (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").is_file():
            module, _, last = module.rpartition(".")
            inside.insert(0, last)
        found = reduce(getattr, inside, importlib.import_module(module))
        assert found.__doc__, name
    assert len(names) > 8


def test_the_page_about_python_lists_every_function_of_a_command():
    page = (ROOT / "docs/python.md").read_text()
    functions = {name for name in albert.__all__ if hasattr(getattr(albert, name), "definition")}
    assert functions >= {"finetune", "finetune_vectors", "push"}
    assert [name for name in functions if f"| `albert.{name}(" not in page] == []
    assert [name for name in ("convert", "export", "quantize", "info", "serve") if hasattr(albert, name)] == []


def test_the_exit_codes_of_the_documents_are_those_of_the_errors():
    shown = {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", text_of("docs/troubleshooting.md"), re.MULTILINE)
        for code in cell.split(",")
    }
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert codes | {0, 130, 141, 143} <= shown


def test_the_messages_of_the_documents_are_in_the_code():
    """Each quoted message of the tables, as far as it is the same in every case."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    source = re.sub(r'"\n\s*f?"', "", source)
    messages = text_of("docs/troubleshooting.md").partition("## Messages")[2].partition("### The server")[0]
    quoted = [
        part
        for row in re.findall(r"^\| (`.+?) \|", messages, re.MULTILINE)
        for message in re.findall(r"`([^`]+)`", row)
        for part in message.split("…")
        if part.strip()
    ]
    assert len(quoted) > 25
    unknown = [part for part in quoted if part.strip().replace("MANIFEST.json", "{MANIFEST_NAME}") not in source]
    assert not unknown


def test_make_has_the_targets_that_the_documents_name():
    makefile = text_of("Makefile")
    for document in DOCUMENTS:
        for target in re.findall(r"^make (\S+)|`make (\w+)`", text_of(document), re.MULTILINE):
            target = target[0] or target[1]
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
