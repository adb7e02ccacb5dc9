"""`python -m experiments` at a toy scale: runs, report, export, resumption after a kill, a run of another process."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.grids import GRIDS
from experiments.layers import SMOOTHNESS
from experiments.tables import main
from tests.experiments.toy_scale import TOY

from albert.cli import main as cli
from albert.runtime.files import locked
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import file_hash
from experiments import grids, layers

AT_TOY_SCALE = Path(__file__).with_name("tables_at_toy_scale.py")


def run(arguments: list[str]) -> int:
    return cli.run(arguments, main)


@pytest.fixture(autouse=True)
def toy_scale(monkeypatch):
    """Replace the scale tiny by one that takes seconds."""
    monkeypatch.setitem(grids.SCALES, "tiny", TOY)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory) -> Path:
    """A folder of GLUE with 16 rows of SST-2."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "SST-2").mkdir()
    rows = "".join(f"{word} bale mo du\t{number % 2}\n" for number, word in enumerate(["ba", "co"] * 8))
    for split in ("train", "dev"):
        (folder / "SST-2" / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return folder


def words(command: str, corpora, sentences: Path, root: Path, table: str = "5") -> list[str]:
    common = [command, table, "--data", str(corpora[0]), "--output", str(root), "--device", "cpu"]
    return [*common, "--glue-data", str(sentences), "--threads", "1"] if command == "run" else common


def weights(root: Path) -> dict[str, str]:
    return {path.parent.parent.name: file_hash(path) for path in root.glob("runs/*/model/model.safetensors")}


@pytest.fixture(scope="module")
def finished(corpora, sentences, tmp_path_factory) -> Path:
    """The root directory of a finished Table 5."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(grids.SCALES, "tiny", TOY)
        assert run(words("run", corpora, sentences, root)) == 0
    return root


def test_a_finished_table_has_every_figure(finished, corpora, sentences, capsys):
    assert run(words("show", corpora, sentences, finished)) == 0
    output = capsys.readouterr().out
    assert "complete: 3 of 3 pre-trainings, 3 of 3 evaluations on held-out text, 3 of 3 fine-tunings" in output
    with open(finished / "tables" / "5.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = {(row["row"], row["column"]): row for row in rows}
    assert cells["sop", "sop"]["paper"] == "86.5" and cells["sop", "mnli"]["paper"] == "82"
    for objective in ("none", "nsp", "sop"):
        for column in ("masked tokens", "sst-2"):
            row = cells[objective, column]
            assert row["seeds"] == row["wanted"] == "1" and 0 <= float(row["median"]) <= 100
    assert cells["none", "sop"]["median"] == ""  # it has no head for it
    report = (finished / "tables" / "5.md").read_text(encoding="utf-8")
    assert "NSP training does not help sentence order" in report and "![" in report
    assert (finished / "tables" / "5.png").read_bytes().startswith(b"\x89PNG")
    assert not list(finished.glob("scores/*/*/checkpoints"))


def test_a_finished_table_is_not_run_again(finished, corpora, sentences, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("*/**/*") if "tables" not in path.parts}
    assert run(words("run", corpora, sentences, finished)) == 0
    assert "9 of 9 are done" in capsys.readouterr().out
    after = {path: path.stat().st_mtime_ns for path in finished.glob("*/**/*") if "tables" not in path.parts}
    assert after == before


def test_exports_are_shown_and_missing_weights_are_trained_again(finished, corpora, sentences, tmp_path, capsys):
    root = tmp_path / "kept"
    assert run(["export", str(finished), "--output", str(finished)]) == 73  # it would thin its own journals
    assert run(["export", str(root), "--output", str(finished)]) == 0
    assert f"{root}: " in capsys.readouterr().out
    assert sum(path.stat().st_size for path in root.rglob("*")) < 200_000
    assert run(words("run", corpora, sentences, root)) == 0
    assert "9 of 9 are done" in capsys.readouterr().out and not weights(root)
    for name in ("5.md", "5.csv"):
        assert (root / "tables" / name).read_text() == (finished / "tables" / name).read_text()
    variant = next(path.parent for path in root.glob("scores/*/arm.json") if "nsp" in path.read_text(encoding="utf-8"))
    (variant / "intrinsic.json").unlink()
    assert run(words("run", corpora, sentences, root)) == 0
    assert weights(root) == {variant.name: weights(finished)[variant.name]}
    for name in ("5.md", "5.csv"):
        assert (root / "tables" / name).read_text() == (finished / "tables" / name).read_text()


def test_a_killed_table_is_continued_to_the_same_bytes(fork_server, finished, corpora, sentences, tmp_path):
    """It is killed at a checkpoint of its second run."""
    command = ["python", str(AT_TOY_SCALE), *words("run", corpora, sentences, tmp_path)]

    def in_second_run() -> bool:
        return all(list(tmp_path.glob(f"runs/*/{made}")) for made in ("model", "checkpoints/step-00000002"))

    process = fork_server.start(command)
    process.wait_until(in_second_run)
    assert process.kill(), process.printed
    assert len(list(tmp_path.glob("runs/*/model"))) < 3, "it was killed too late"
    again = fork_server.start(command)
    assert again.finish() == 0, again.printed
    assert weights(tmp_path) == weights(finished) and len(weights(tmp_path)) == 3
    for name in ("5.md", "5.csv"):
        assert (tmp_path / "tables" / name).read_text() == (finished / "tables" / name).read_text()


def test_a_run_of_another_process_is_left_to_it(finished, corpora, sentences, tmp_path, capsys):
    root = tmp_path / "copy"
    assert run(["export", str(root), "--output", str(finished)]) == 0
    (first, *_) = sorted(root.glob("runs/*"))
    shutil.rmtree(first)
    shutil.rmtree(root / "scores" / first.name)
    with locked(first, "this run"):
        assert run(words("run", corpora, sentences, root)) == 0
        captured = capsys.readouterr()
        assert "6 of 9 are done" in captured.out and "partial: 2 of 3 pre-trainings" in captured.out
        assert "another process works on it" in captured.err and "1 runs were left" in captured.err
        assert not weights(root)
    assert run(words("run", corpora, sentences, root)) == 0
    assert weights(root) == {first.name: weights(finished)[first.name]}


def test_the_list_has_every_table(capsys):
    assert run(["list"]) == 0
    first = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {*GRIDS, "1", "14", "cost"} <= first


def test_a_table_without_runs_is_shown_with_the_papers_figures(tmp_path, capsys):
    assert run(["show", "5", "1", "cost", "--output", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "partial: 0 of 3 pre-trainings" in output and "86.5" in output and "11,683,584" in output
    assert "not known yet" in output


def test_another_corpus_in_the_same_root_is_refused(finished, corpora, sentences, capsys):
    arguments = ["run", "5", "--data", str(corpora[1]), "--output", str(finished)]
    assert run(arguments) == 78
    assert "holds runs on corpus" in capsys.readouterr().err


def test_figure_1_is_run_and_its_claims_are_checked(corpora, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(grids.SCALES, "tiny", replace(TOY, seeds=(0, 1)))
    root = tmp_path / "root"
    words = ["figure-1", "--data", str(corpora[0]), "--output", str(root), "--device", "cpu"]
    assert run(["run", *words]) == 0
    output = capsys.readouterr().out
    assert "complete: 4 of 4 pre-trainings" in output and "against a fixed point" in output
    assert len(list(root.glob("scores/*/layers.json"))) == 4
    for path in root.glob("scores/*/intrinsic.json"):
        scored = json.loads(path.read_text(encoding="utf-8"))  # with sequences.keep_pairs=true, as in training
        assert scored["models"][0]["scores"]["sentence_order"]["count"] > 0.9 * scored["sequences"]
    with open(root / "tables" / "figure-1.csv", encoding="utf-8") as file:
        cells = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    for model in ("bert-large", "albert-large"):
        for column in SMOOTHNESS:
            row = cells[model, column]
            assert row["seeds"] == "2" and float(row["median"]) >= 0
    report = (root / "tables" / "figure-1.md").read_text(encoding="utf-8")
    assert "do not converge" in report and "not tested" not in report
    assert (root / "tables" / "figure-1.png").is_file() and (root / "tables" / "figure-1-layers.csv").is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "measure_layers", None)  # it is not measured again
        assert run(["show", *words]) == 0


def test_finished_tables_are_shown_when_none_is_named(finished, capsys):
    assert run(["show", "--output", str(finished)]) == 0
    output = capsys.readouterr().out
    assert "5: Sentence prediction" in output and output.count("complete: ") == 1 and "partial" not in output


def test_a_study_without_a_finished_table_says_how_to_name_one(tmp_path, refused):
    refused(lambda: main(["show", "--output", str(tmp_path)]), 2, tmp_path, "show 5")


@pytest.mark.parametrize(
    ("words", "code", "subject"),
    [
        ("run 5 --output {here}/out", 2, "--data"),
        ("run 5 --output {here}/out --data {here}/absent", 66, "{here}/absent"),
        ("run 55 --output {here}/out --data {corpus}", 2, "55"),
        ("run 5 --output {here}/out --data {corpus} --glue-data {here}/absent", 66, "{here}/absent"),
        ("run 5 --output {here}/out --data {corpus} --files sst-2", 2, "--files"),
        ("run 5 --output {here}/out --data {corpus} --threads 0", 2, "--threads"),
        ("show 5 --output {here}/out --seeds 0", 2, "--seeds"),
        ("export {here}/copy --output {here}/out", 66, "{here}/out/study.json"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, code, subject, tmp_path, corpora, refused):
    places = {"here": tmp_path, "corpus": corpora[0]}
    refused(lambda: main(words.format(**places).split()), code, subject.format(**places))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stated", [2, None])
def test_another_layout_of_a_study_is_refused_by_its_number(stated, finished, tmp_path, refused):
    study = read_json_object(finished / "study.json")
    assert study["layout"] == 1
    (tmp_path / "study.json").write_text(json.dumps(study | {"layout": stated}))
    refused(
        lambda: main(["show", "5", "--output", str(tmp_path)]),
        65,
        tmp_path / "study.json",
        stated or "no layout version",
        1,
    )


def test_another_scale_than_that_of_the_runs_is_refused(finished, refused):
    refused(lambda: main(["show", "5", "--scale", "small", "--output", str(finished)]), 78, finished, "--scale tiny")


@pytest.mark.parametrize("words", [["run"], ["runs"], []])
def test_wrong_words_show_the_usage(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2 and "usage: python -m experiments" in capsys.readouterr().err
