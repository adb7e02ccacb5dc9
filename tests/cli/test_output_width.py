"""Without a terminal, lines depend neither on COLUMNS nor on the length of a path."""

import re
import shutil

import pytest
from tests.cli.conftest import TINY

from albert.cli.main import run
from albert.cli.render import open_console, print_parts
from albert.report.tables import Table

COMMANDS = [
    "info",
    "info albert-base --compare bert-large",
    "info {scene}/pretrained",
    "info {scene}/corpus",
    "info {scene}/corpus --verify",
    "info {scene}/corpus --samples 3",
    "prepare {scene}/text --tokenizer {scene}/tokenizer --output {scene}/prepared --workers 1 --replace",
    "tokenizer encode --tokenizer {scene}/tokenizer bada",
    "predict {scene}/classifier --classify bada",
    f"pretrain quickstart --data {{scene}}/corpus --output {{scene}}/run {' '.join(TINY)}",
    "convert {scene}/pretrained --output {scene}/converted --replace",
    "quantize {scene}/classifier --output {scene}/int8 --replace",
    "evaluate --model {scene}/classifier --dev {scene}/tables/dev.csv --device cpu --text review --label stars",
    "pretrain --help",
    "finetune --help",
]


@pytest.fixture(scope="module")
def long_scene(scene, tmp_path_factory):
    """A copy of the scene in a folder whose path has more than 200 characters."""
    path = tmp_path_factory.mktemp("long") / ("a-long-name-" * 9) / ("another-long-name-" * 6)
    shutil.copytree(scene.text.parent, path)
    return path


def shown(command, path, capsys):
    """The output of a command on both streams, without times."""
    try:
        code = run([word.format(scene=path) for word in command.split()])
    except SystemExit as end:
        code = end.code
    out, error = capsys.readouterr()
    assert not code, error
    return re.sub(r"\d+(\.\d+)?(?= (s|MB|GB|ms|texts/s)\b)", "N", out), error


@pytest.mark.parametrize("command", COMMANDS)
def test_output_does_not_depend_on_columns(command, long_scene, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    expected = shown(command, long_scene, capsys)
    assert not [line for line in expected[0].splitlines() if line.endswith(" ")]
    for width in ("40", "200"):
        monkeypatch.setenv("COLUMNS", width)
        assert shown(command, long_scene, capsys) == expected
    if str(long_scene) in command.format(scene=long_scene) and expected[0].count("/") > 1:
        assert "long-name-/" not in "".join(expected).replace(str(long_scene), "")


def test_a_recipe_is_wrapped_at_the_width_of_a_terminal(scene, capsys, terminal):
    terminal(64)
    (scene.run / "results.json").unlink()  # a complete run shows no recipe
    assert run(["pretrain", "quickstart", "--data", str(scene.corpus), "--output", str(scene.run), *TINY]) == 0
    lines = capsys.readouterr().out.partition("resuming ")[0].splitlines()
    assert "max_position_embeddings 128" in " ".join(" ".join(lines).split())
    assert 50 < max(map(len, lines)) <= 64
    assert not [line for line in lines if line.endswith(" ")]


@pytest.mark.parametrize("width", [10, 40, 50, 60, 69, 100])
def test_no_row_of_a_narrow_table_loses_its_name(width, capsys, terminal):
    terminal(width)
    heads = ("", "score", "best constant answer", "TF-IDF and logistic regression", "before")
    names = ("accuracy", "f1 (spam)", "matthews")
    console = open_console()
    print_parts(console, [Table([heads, *((name, "95.20", "50.00", "93.10", "45.00") for name in names)])])
    lines = capsys.readouterr().out.splitlines()
    assert [name for name in names if any(line.startswith(name) for line in lines)] == list(names)
    assert sum(line.count("95.20") for line in lines) == 3 and sum(line.count("45.00") for line in lines) == 3
    assert {"constant", "regression"} <= {word for line in lines for word in line.split()}
    if width >= 40:
        assert max(map(len, lines)) <= width
