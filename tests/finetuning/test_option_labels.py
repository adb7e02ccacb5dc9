"""The answers of a multiple choice are called as the labels of the training file call them."""

import json

import pytest
from tests.finetuning.conftest import SMALL

from albert.cli.main import run


@pytest.mark.parametrize(
    ("meaning", "labels"),
    [("letter", "ABC"), ("from-1", "123"), ("text", ("ship", "storm", "doctor"))],
)
def test_predicted_labels_are_those_of_the_file(meaning, labels, pretrained, tmp_path):
    rows = []
    for number in range(12):
        row = {"question": f"letter {number}", "a": "ship", "b": "storm", "c": "doctor", "right": labels[number % 3]}
        rows.append(row)
    rows[0]["b"] = None  # an absent option
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["finetune", "--train", table, "--dev", table, "--question", "question", "--options", "a", "b", "c"]
    command += ["--label", "right", f"option_labels={meaning}", "--model", pretrained, "--output", tmp_path / "run"]
    assert run([str(each) for each in [*command, *SMALL, "question_length=16"]]) == 0
    predictions = tmp_path / "predictions.jsonl"
    evaluate = ["evaluate", "--model", tmp_path / "run", "--dev", table, "--predictions", predictions]
    assert run([*map(str, evaluate), "--device", "cpu"]) == 0
    scored = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert [entry["gold"] for entry in scored] == [row["right"] for row in rows]
    output = tmp_path / "out.jsonl"
    predict = ["predict", tmp_path / "run", "--input", table, "--output", output, "--device", "cpu"]
    assert run([*map(str, predict)]) == 0
    predicted = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["predicted_label"] for row in predicted] == [entry["prediction"] for entry in scored]
    assert predicted[0]["predicted_label"] in (labels[0], labels[2])
    texts = dict(zip(labels, ("ship", "storm", "doctor"), strict=True))
    assert all(texts[row["predicted_label"]] == row["predicted_option"] for row in predicted)
