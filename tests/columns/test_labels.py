"""Labels as people write them, and hints that can be pasted (through `albert.finetune` and the command line)."""

import pytest
from tests.tables.test_wild import MODEL, WORDS, lines, read, table

import albert
from albert.cli.main import run
from albert.tasks.regression import Regression


def reading_of(folder, name, content, **options):
    """What is said of a file: the values of what was inferred, by its name."""
    found = read(folder, name, content, **options).read
    assert found is not None
    return {item.what: item.value for item in found.inferred}


def test_thousands_with_a_point_are_asked_about(tmp_path):
    prices = [("good film", "6.411"), ("bad film", "893"), ("long film", "1.250"), ("dull book", "77")] * 3
    content = table(";", "text", "label", rows=prices)
    with pytest.raises(albert.AlbertError) as asked:
        read(tmp_path, "prices.csv", content, text="text", label="label", kind="number")
    assert "decimal" in str(asked.value) and "'6.411'" in str(asked.value)
    with pytest.raises(albert.AlbertError, match="'6.411' in column 'label' has a point, though"):
        read(tmp_path, "prices.csv", content, text="text", label="label", kind="number", reading={"decimal": ","})
    found = read(
        tmp_path, "prices.csv", content, text="text", label="label", kind="number", reading={"decimal": "."}
    ).read
    assert found.tables["train"].values("label")[:2] == ["6.411", "893"]


def test_a_decimal_comma_is_named_once_and_kept_for_other_files(tmp_path):
    train = table(";", "text", "label", rows=[(text, f"{n},{n}5") for n, text in enumerate(WORDS * 4)])
    dev = table(";", "text", "label", rows=[("good film", "-3,5"), ("bad film", "4")])
    path = tmp_path / "train.csv"
    found = read(tmp_path, path.name, train, dev=dev, reading={"decimal": ","}).read
    assert found.task.target == Regression("label")
    assert found.tables["train"].values("label")[:3] == ["0.05", "1.15", "2.25"]
    assert found.tables["dev"].values("label") == ["-3.5", "4"]
    output = tmp_path / "run"
    files = {"train": path, "dev": tmp_path / "dev.csv"}
    albert.finetune(**files, reading={"decimal": ","}, model=MODEL, output=output, frozen=True, device="cpu")
    (tmp_path / "test.csv").write_text(dev)
    assert len(albert.evaluate(model=output, dev=tmp_path / "test.csv", device="cpu").predictions) == 2


def test_labels_that_differ_in_case_are_different_and_said(tmp_path):
    rows = [(f"{text} {label}", label) for text in WORDS for label in ("Good", "good ", "bad")]
    content = table("\t", "text", "label", rows=rows)
    found = read(tmp_path, "t.tsv", content, text="text", label="label").read
    assert found.table_task.labels == ("Good", "bad", "good")
    assert reading_of(tmp_path, "t.tsv", content, text="text", label="label")["similar labels"] == "'Good' and 'good'"


def test_numbers_with_three_decimals_are_read_as_they_are(tmp_path):
    rows = [("good film", "0.411"), ("bad film", "1.250"), ("long film", "2.125"), ("dull book", "3")] * 3
    content = table(",", "text", "label", rows=[*rows, ("fine book", "2.5")])
    found = read(tmp_path, "scores.csv", content, text="text", label="label", kind="number").read
    assert found.tables["train"].values("label")[0] == "0.411"


def test_ratings_with_fractions_are_numbers_however_few(tmp_path):
    rows = [(text, score) for text, score in zip(WORDS * 4, ["7.4", "7.5", "9.1"] * 8, strict=True)]
    found = read(tmp_path, "ratings.csv", table(",", "text", "label", rows=rows), text="text", label="label").read
    assert found.task.target == Regression("label")


@pytest.mark.parametrize("none", ["-", "?", "-1"])
def test_a_sign_for_no_label_is_said(none, tmp_path):
    labels = ["0", "1", "2", none] if none == "-1" else ["entailment", "neutral", none]
    rows = [(f"{text} {label}", label) for text in WORDS for label in labels]
    content = table("\t", "text", "label", rows=rows)
    assert repr(none) in reading_of(tmp_path, "nli.tsv", content, text="text", label="label")["no label?"]


def test_negative_ratings_are_no_signs_for_no_label(tmp_path):
    rows = [(f"{text} {label}", label) for text in WORDS for label in ("-2", "-1", "0", "1", "2")]
    content = table("\t", "text", "label", rows=rows)
    assert "no label?" not in reading_of(tmp_path, "ratings.tsv", content, text="text", label="label")


def test_labels_with_a_separator_in_most_rows_are_asked_about(tmp_path):
    rows = [(f"{text} {label}", label) for text in WORDS for label in ("red;wine", "red;cheap", "white")]
    with pytest.raises(albert.AlbertError, match="several labels"):
        read(tmp_path, "wines.csv", table(",", "text", "label", rows=rows), text="text", label="label")
    classes = read(
        tmp_path, "wines.csv", table(",", "text", "label", rows=rows), text="text", label="label", kind="classification"
    )
    assert len(classes.read.table_task.labels) == 3


def tagged(*tags: str) -> str:
    return "".join("".join(f"w{number} {tag}\n" for number, tag in enumerate(tags)) + "\n" for _ in range(40))


def test_one_stray_outside_tag_does_not_make_entities(tmp_path):
    content = tagged("NN", "VB", "DT", "NN").replace("w0 NN", "w0 O", 1)
    assert read(tmp_path, "pos.conll", content).read.table_task.metrics == ("word_scores",)
    assert read(tmp_path, "io.conll", tagged("PER", "O", "O", "LOC")).read.table_task.metrics == ("run_scores",)


def test_tags_in_small_letters_are_said_to_be_no_entities(tmp_path):
    assert "scored by" in reading_of(tmp_path, "chunks.conll", tagged("b-np", "i-np", "o", "b-vp"))


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("Review Text", "Star Rating"), "--label 'Star Rating' --text 'Review Text'"),
        (("premise", "hypothesis", "gold_label"), "--label gold_label --text premise --pair hypothesis"),
        (("sentence1", "sentence2", "score"), "--label score --text sentence1 --pair sentence2"),
        (("#1 String", "#2 String", "Quality"), "--label Quality --text '#1 String' --pair '#2 String'"),
        (
            ("qid1", "question1", "question2", "qid2", "is_duplicate"),
            "--label is_duplicate --text question1 --pair question2",
        ),
        (("sent_A", "sent_B", "category"), "--label category --text sent_A --pair sent_B"),
    ],
)
def test_the_hint_can_be_pasted_and_names_pairs(names, hint, tmp_path, capsys):
    rows = []
    for n, text in enumerate(WORDS * 3):
        rows.append([str(n) if name.startswith("qid") else f"{text} {name}" for name in names[:-1]] + [str(n % 2)])
    path = tmp_path / "rows.tsv"
    path.write_text(table("\t", *names, rows=rows), encoding="utf-8")
    assert run(["finetune", "--train", str(path), "--model", str(MODEL)]) == 2
    assert hint in capsys.readouterr().err


def test_a_second_text_that_is_missing_is_asked_about(tmp_path):
    rows = [{"text": text, "other": f"{n}", "label": label} for text in WORDS for n, label in enumerate("abc")]
    found = read(tmp_path, "pairs.jsonl", lines(*rows), text="text", label="label")
    assert any("--pair" in line for line in found.warnings)
    found = read(tmp_path, "pairs.jsonl", lines(*rows), text="text", pair="other", label="label")
    assert not any("--pair" in line for line in found.warnings)


def test_columns_of_a_file_without_a_header_are_no_pair(tmp_path, capsys):
    path = tmp_path / "rows.tsv"
    path.write_text("".join(f"{text} and more\t{n}\t{n % 2}\n" for n, text in enumerate(WORDS * 3)), encoding="utf-8")
    assert run(["finetune", "--train", str(path), "reading.no_header=true", "--model", str(MODEL)]) == 2
    hint = capsys.readouterr().err
    assert "--label 'column 3' --text 'column 1'" in hint and "--pair" not in hint


def test_thousands_are_asked_about_in_training_only(tmp_path):
    scores = [("good film", "2.125"), ("bad film", "1.250"), ("long film", "0.5"), ("dull book", "3")] * 3
    few = table(",", "text", "label", rows=[("good film", "1.250"), ("bad film", "3")])
    content = table(",", "text", "label", rows=scores)
    found = read(tmp_path, "scores.csv", content, dev=few, text="text", label="label", kind="number").read
    assert found.tables["dev"].values("label") == ["1.250", "3"]


def test_tagged_text_is_scored_with_the_columns_of_training(tmp_path):
    sentences = [{"tokens": ["Anna", "in", "Rome"], "ner": ["O", "O", "B-place"]}] * 12
    path = tmp_path / "train.jsonl"
    path.write_text(lines(*sentences), encoding="utf-8")
    other = tmp_path / "test.conll"
    other.write_text("Otto O\nin O\nParis B-place\n\n" * 4, encoding="utf-8")
    columns = {"words": "tokens", "tags": "ner"}
    output = tmp_path / "run"
    albert.finetune(train=path, dev=path, **columns, model=MODEL, output=output, frozen=True, device="cpu")
    result = albert.evaluate(model=output, dev=other, device="cpu")
    assert len(result.predictions) == 4
