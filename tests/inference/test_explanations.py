"""Which words moved a prediction, in Python, on the command line and in files."""

import json

import pytest

import albert
from albert.cli.main import run

TEXT = "He came, he saw the sea, he won."


def score_of(ranked, label):
    return next(entry["score"] for entry in ranked if entry["label"] == label)


def test_change_is_the_difference_without_the_word(predictors):
    model = predictors("classify")
    ranked = model.classify(TEXT, explain=True)
    label = ranked[0]["label"]
    assert [list(entry) for entry in ranked] == [["label", "score", "explanation"], *[["label", "score"]] * 2]
    words = ranked[0]["explanation"]
    assert [word["word"] for word in sorted(words, key=lambda word: word["start"])] == (
        ["He", "came", ",", "he", "saw", "the", "sea", ",", "he", "won", "."]
    )
    assert all(TEXT[word["start"] : word["end"]] == word["word"] for word in words)
    changes = [abs(word["change"]) for word in words]
    assert changes == sorted(changes, reverse=True) and changes[0] > 0
    (sea,) = (word for word in words if word["word"] == "sea")
    without = model.classify("He came, he saw the, he won.")
    assert sea["change"] == pytest.approx(ranked[0]["score"] - score_of(without, label), abs=1e-5)


def test_numbers_and_texts_without_words(predictors):
    (entry,) = predictors("score").classify(TEXT, explain=True)
    without = predictors("score").score("He came, he saw the sea, he.")
    (won,) = (word for word in entry["explanation"] if word["word"] == "won")
    assert won["change"] == pytest.approx(entry["score"] - without, abs=1e-5)
    assert predictors("classify").classify(" ", explain=True)[0]["explanation"] == []
    assert predictors("classify").classify_batch([], explain=True) == []


def test_words_of_both_texts_of_a_pair(predictors):
    first = predictors("classify").classify("He came.", "He saw.", explain=True)[0]
    words = sorted(first["explanation"], key=lambda word: (word["part"] == "pair", word["start"]))
    assert [(word["part"], word["word"]) for word in words] == [
        *(("text", word) for word in ("He", "came", ".")),
        *(("pair", word) for word in ("He", "saw", ".")),
    ]
    without = predictors("classify").classify("He came.", "He.")
    assert words[4]["change"] == pytest.approx(first["score"] - score_of(without, first["label"]), abs=1e-5)


@pytest.fixture
def labelling(saved):
    return saved("classification", 3, problem_type="multi_label_classification", id2label={0: "a", 1: "b", 2: "c"})


def test_each_predicted_label_is_explained(labelling, tmp_path):
    model = albert.load(labelling, precision="fp32", threshold=0.01)
    ranked = model.classify(TEXT, explain=True)
    assert [len(entry["explanation"]) for entry in ranked if entry["predicted"]] == [11, 11, 11]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    output = tmp_path / "answered.jsonl"
    command = ["predict", str(labelling), "--input", str(tmp_path / "rows.jsonl"), "--output", str(output)]
    assert run([*command, "--explain", "--threshold", "0.01"]) == 0
    words = json.loads(output.read_text())["predicted_explanation"]
    assert {word["label"] for word in words} == {"a", "b", "c"} and len(words) == 33


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_file_has_a_column_of_words(ending, model_paths, tmp_path):
    (tmp_path / "rows.csv").write_text('text,stars\n"He came, he saw.",3\nSea,4\n')
    output = tmp_path / f"answered.{ending}"
    path = str(model_paths("classify"))
    assert run(["predict", path, "--input", str(tmp_path / "rows.csv"), "--output", str(output), "--explain"]) == 0
    if ending == "parquet":
        import pyarrow.parquet

        rows = [row["predicted_explanation"] for row in pyarrow.parquet.read_table(output).to_pylist()]
    elif ending == "csv":
        import csv

        with open(output, newline="") as file:
            rows = [json.loads(row["predicted_explanation"]) for row in csv.DictReader(file)]
    else:
        rows = [json.loads(line)["predicted_explanation"] for line in output.read_text().splitlines()]
    assert [len(words) for words in rows] == [6, 1]
    expected = albert.load(path).classify("He came, he saw.", explain=True)[0]["explanation"]
    got = {(word["word"], word["start"], word["end"]): word["change"] for word in rows[0]}
    for word in expected:
        assert got[word["word"], word["start"], word["end"]] == pytest.approx(word["change"], abs=1e-4)


def test_the_terminal_marks_the_words(model_paths, capsys):
    path = str(model_paths("classify"))
    assert run(["predict", path, "--classify", TEXT, "--explain"]) == 0
    shown = capsys.readouterr().out
    largest = albert.load(path).classify(TEXT, explain=True)[0]["explanation"][0]
    assert f"{largest['word']}[{largest['change']:+.2g}]" in shown and f"{largest['change']:+.4f}" in shown
    assert run(["predict", path, "--classify", TEXT, "--explain", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines[0]["explanation"]) == 11 and "explanation" not in lines[1]
    assert run(["predict", path, "--classify", "He came.", "--pair", "He saw.", "--explain"]) == 0
    assert "pair" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--tag", "He came."], ["--fill-mask", "A [MASK]."], ["--input", "rows.csv"]])
def test_other_tasks_are_refused(arguments, model_paths, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text\nHe came.\n")
    refused(["predict", str(model_paths("tag")), *arguments, "--explain"], 2, "--explain")
