"""The models that come with the project: whole, named in README, and good for what it says of them."""

import json
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import albert
from albert.checkpoints.hub import find_model
from albert.cli.main import run
from albert.runtime import environment as package
from albert.runtime.errors import UsageError
from albert.runtime.manifest import verify_directory

ROOT = Path(__file__).parent.parent
MODELS = sorted(path for path in (ROOT / "models").iterdir() if path.is_dir())
PRETRAINED = [path for path in MODELS if path.name != "small-vectors"]


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_a_model_is_whole_small_and_tells_its_sources(model):
    verify_directory(model)
    assert sum(file.stat().st_size for file in model.rglob("*")) < 25e6
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "licence" in card.lower()
    assert ("STS-B" if model.name == "small-vectors" else "masked-token accuracy, held out") in card


def test_small_vectors_finds_the_same_question_in_other_words():
    texts = [
        "How do I get a new card?",
        "The weather will be fine tomorrow.",
        "My old card is lost, please send me another one.",
        "A man is playing a guitar.",
    ]
    vectors = albert.load("small-vectors", precision="fp32").embed(texts)
    assert vectors.shape == (4, 384)
    assert (vectors[0] @ vectors.T).argsort()[::-1].tolist()[:2] == [0, 2]


@pytest.mark.parametrize("model", PRETRAINED, ids=lambda path: path.name)
def test_a_model_knows_what_is_opened_before_one_enters(model):
    answers = albert.load(model, precision="fp32").fill_mask("He opened the [MASK] and went into the house.")
    assert answers[0]["token_str"] == "door"


def test_readmes_command_asks_it(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^albert (predict small .+)$", readme, re.MULTILINE)
    assert run(shlex.split(line)) == 0
    assert "door" in capsys.readouterr().out


@pytest.mark.parametrize("model", PRETRAINED, ids=lambda path: path.name)
def test_the_card_names_the_command_that_gives_its_score(model, tmp_path, monkeypatch, capsys):
    """On the chapter of the embedded sample that is held out, as the card says; the rest of the text is not here."""
    card = " ".join((model / "README.md").read_text(encoding="utf-8").split())
    stated = re.search(r"give (0\.\d\d) \(95 %: (0\.\d\d) to (0\.\d\d); (\d+) masked", card)
    prepare, evaluate = re.findall(r"albert (prepare .*?--output corpus|evaluate .*?--max-length 128)", card)
    assert (sample := re.search(r"`(\S*prose\.jsonl\.gz)`", card)) and stated
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(prepare.replace("CORPUS", str(ROOT / sample[1])))) == 0
    capsys.readouterr()
    assert run([*shlex.split(evaluate), "--objective", "none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["models"][0]["scores"]["masked_tokens"]
    shown = [f"{found[name]:.2f}" for name in ("accuracy", "low", "high")]
    assert (*shown, str(found["count"])) == stated.groups()


def test_a_model_of_the_package_goes_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert find_model("tiny") == find_model(Path("tiny")) == ROOT / "models" / "tiny"
    assert albert.load("tiny", precision="fp32").fill_mask("He opened the [MASK].")[0]["token_str"]
    for command in (
        ["info", "tiny"],
        ["predict", "tiny", "--fill-mask", "He opened the [MASK] and went into the house."],
        ["tokenizer", "encode", "It was dark.", "--tokenizer", "tiny"],
    ):
        assert run(command) == 0, capsys.readouterr().err
    assert "door" in capsys.readouterr().out


def test_a_directory_and_a_hub_id_go_before_a_model_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("Tiny", "tiny/", "someone/tiny", "..", "absent"):
        assert package.bundled_model(name) is None
    with pytest.raises(UsageError, match="tiny is here, and has no revisions; leave @main out"):
        find_model("tiny@main")
    (tmp_path / "tiny").mkdir()
    assert find_model("tiny") == Path("tiny")


def test_a_wheel_has_the_models_inside_of_the_package(tmp_path, monkeypatch):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["name"] == package.DISTRIBUTION
    targets = settings["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["force-include"] == {"models": "albert/models"}
    assert {"models", "tests", "dev", "results", "Dockerfile"} <= set(targets["sdist"]["include"])
    place = tmp_path / "site-packages" / "albert" / "models" / "tiny"
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    monkeypatch.setattr(package, "_PACKAGE", tmp_path / "site-packages" / "albert")
    assert package.bundled_model("tiny") == place


def test_what_is_to_be_installed_is_this_checkout(monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = []
    for file in [ROOT / "README.md", *(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pip install[^\n]*\balbert(-encoder)?\[|`'albert\[", text), file  # there is no release
        named += [
            extra for extras in re.findall(r"pip install[^\n]*'\.\[([\w,]+)\]", text) for extra in extras.split(",")
        ]
    assert named and set(named) <= set(extras)
    monkeypatch.chdir(ROOT)
    assert package.install_command("serve").endswith(" install -e '.[serve]'")
    monkeypatch.setattr(package, "_checkout", lambda: None)
    assert "checkout of the repository" in package.install_command("serve")


def test_windows_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="^albert runs on Linux and macOS, not on Windows .*WSL") as refusal:
        runpy.run_path(str(ROOT / "src" / "albert" / "__init__.py"))
    assert "\n" not in str(refusal.value)
