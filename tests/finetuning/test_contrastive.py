"""`albert finetune-vectors`, from pairs: vectors of texts that belong together become similar."""

import json
import random

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import PLAIN_WORDS

import albert
from albert.cli.main import run
from albert.finetuning.contrastive import contrastive_loss, hold_out_pairs, read_text_pairs, retrieval_accuracy
from albert.runtime.json_files import read_journal, read_json_object

WORDS = PLAIN_WORDS[:12]
PARTNERS = "horse silver winter music bread forest market engine paper cheese ocean tree".split()  # noqa: SIM905
COLUMNS = ["--text", "question", "--pair", "answer"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Questions and answers: an answer holds the partner of each of its question's words."""
    path, draw = tmp_path_factory.mktemp("table") / "pairs.csv", random.Random(0)
    partner = dict(zip(WORDS, PARTNERS, strict=True))
    rows = [draw.sample(WORDS, 3) for _ in range(400)]
    lines = [f"{' '.join(row)},{' '.join(partner[word] for word in row)}" for row in rows]
    path.write_text("\n".join(["question,answer", *lines, " ,nothing asked"]) + "\n")
    return path


def command(table, model, output, *more):
    files = ["--train", str(table), *COLUMNS, "--model", str(model), "--output", str(output), "--device", "cpu"]
    size = [] if any(word.startswith("batch_size=") for word in more) else ["batch_size=32"]
    return ["finetune-vectors", *files, *size, "max_length=16", *more]


def test_texts_that_belong_together_are_found(table, pretrained, tmp_path, capsys):
    finetune = command(table, pretrained, tmp_path / "run", "steps=100", "learning_rate=3e-3")
    assert run(finetune) == 0
    out = capsys.readouterr().out
    assert "training: 1 row without text left out" in out
    assert "scored on 40 pairs that are not trained on" in out
    about_model = next(each for each in read_journal(tmp_path / "run/journal.jsonl") if each["event"] == "model")
    assert any("manifest" in note for note in about_model["notes"]) and "manifest" not in out
    assert "is ready" in out and "export sentence-transformers" in out
    report = read_json_object(tmp_path / "run/results.json")
    before, after = (report[name]["retrieval_accuracy"] for name in ("before", "scores"))
    assert after > 50 > 25 > before
    # The vectors of the saved model have the reported score.
    pairs, scored = hold_out_pairs(read_text_pairs(table, "question", "answer"), 0.1, 0)
    assert report["training"]["examples"] == len(pairs.texts)
    predictor = albert.load(tmp_path / "run", precision="fp32")
    texts = [*(first for first, _ in scored.texts), *(second for _, second in scored.texts)]
    numbers = np.unique(texts, return_inverse=True)[1].reshape(2, -1).T
    assert retrieval_accuracy(predictor.embed(texts), numbers) == pytest.approx(after)
    assert read_json_object(tmp_path / "run/model/config.json")["architectures"] == ["AlbertModel"]
    card = (tmp_path / "run/model/README.md").read_text()
    assert "retrieval_accuracy among 40 texts" in card and "| the same, random choice | 2.5 |" in card
    headings = next(line for line in out.splitlines() if "before training" in line)
    assert "random choice" in headings and "majority" not in out
    # The same command finds the run complete; another one is refused.
    assert run(finetune) == 0
    assert "complete already" in capsys.readouterr().out
    assert run([*finetune, "temperature=0.1"]) != 0
    assert "another" in capsys.readouterr().err


def test_a_batch_has_at_most_all_rows_and_few_updates_and_rows_are_said(table, pretrained, tmp_path, capsys):
    few = tmp_path / "few.csv"
    few.write_text("".join(table.read_text().splitlines(keepends=True)[:61]))
    assert run(command(few, pretrained, tmp_path / "run", "learning_rate=1e-9", "batch_size=64")) == 0
    shown = capsys.readouterr().out
    assert "batch size 54, 1 epoch of 54 examples: 1 update" in shown
    assert "batch size 54, not 64: there are 54 pairs" in shown
    assert "1 update: a model hardly learns from so few, try epochs=10" in shown
    assert "the development set has 6 pairs: scores on it prove nothing" in shown
    assert read_json_object(tmp_path / "run/results.json")["recipe"]["batch_size"] == 54
    assert run(command(few, pretrained, tmp_path / "more", "steps=10", "learning_rate=1e-9")) == 0
    shown = capsys.readouterr().out
    assert "hardly learns" not in shown and "not 32" not in shown


def test_development_rows_that_are_not_scored_are_counted(table, pretrained, tmp_path, capsys):
    lines = ["question,answer", " ,b", f"{'a ' * 20},b", *(f"a {n},b {n}" for n in range(1004))]
    (tmp_path / "dev.csv").write_text("\n".join(lines) + "\n")
    dev = ("--dev", str(tmp_path / "dev.csv"), "steps=1")
    (tmp_path / "seeds/seed-0").mkdir(parents=True)
    (tmp_path / "seeds/seed-0/recipe.json").write_text("{}")
    assert run(command(table, pretrained, tmp_path / "seeds", *dev)) == 73
    assert run(command(table, pretrained, tmp_path / "run", *dev)) == 0
    out = capsys.readouterr().out
    for line in ("1 example cut", "1 row without text left out", "5 rows beyond the first 1,000 not scored"):
        assert f"development set: {line}" in out
    counts = read_json_object(tmp_path / "run/results.json")["evaluation"]
    assert counts["rows"] == counts["examples"] + counts["rows_without_text"] + counts["rows_not_scored"] == 1006


def test_command_and_python_write_the_same_model_and_it_can_be_a_start(table, pretrained, tmp_path):
    assert run(command(table, pretrained, tmp_path / "command", "steps=3")) == 0
    options = {"steps": 3, "batch_size": 32, "max_length": 16, "device": "cpu"}
    columns = {"train": table, "text": "question", "pair": "answer"}
    output = tmp_path / "python"
    result = albert.finetune_vectors(**columns, **options, model=pretrained, output=output)
    assert 0 <= result.scores["retrieval_accuracy"] <= 100
    assert "vectors of pairs" in repr(result)
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("command", "python")]
    assert weights[0] == weights[1]
    assert run(command(table, output, tmp_path / "again", "steps=1", "depth=1")) == 0
    assert read_json_object(tmp_path / "again/model/config.json")["num_hidden_layers"] == 1


def test_loss_by_its_formula_and_equal_texts_are_not_negatives():
    torch.manual_seed(0)
    vectors = torch.randn(6, 4)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    scores = unit[:3] @ unit[3:].T / 0.05
    expected = -scores.log_softmax(1).diagonal().sum()
    sums = contrastive_loss(vectors, torch.arange(6).reshape(2, 3).T, 0.05)
    assert torch.allclose(sums.losses["pairs"], expected)
    # The second texts of the first two pairs are equal.
    scores[0, 1] = scores[1, 0] = -torch.inf
    sums = contrastive_loss(vectors, torch.tensor([[0, 1, 2], [3, 3, 5]]).T, 0.05)
    assert torch.allclose(sums.losses["pairs"], -scores.log_softmax(1).diagonal().sum())


def test_rows_with_a_missing_text_are_left_out_like_those_with_an_empty_one(tmp_path):
    rows = [{"a": "x", "b": "y"}, {"a": None, "b": "y"}, {"b": "y"}, {"a": " ", "b": "y"}, {"a": "z", "b": "y"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_text_pairs(tmp_path / "t.jsonl", "a", "b")
    assert pairs.texts == [("x", "y"), ("z", "y")] and pairs.counts["rows_without_text"] == 3


def test_training_and_scored_pairs_have_no_text_in_common(tmp_path):
    rows = [f"question {i},answer {i // 4}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    pairs = read_text_pairs(tmp_path / "t.csv", "a", "b")
    train, scored = hold_out_pairs(pairs, 0.1, 0)
    assert not {text for pair in train.texts for text in pair} & {text for pair in scored.texts for text in pair}
    counts = train.counts
    kept = len(train.texts) + counts["kept_back_for_dev"] + counts["rows_that_share_a_text_with_dev"]
    assert kept == counts["rows"] == 40


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(f"q {i}", "yes") for i in range(160)], "160 pairs have 160 different first texts and 1 second ones"),
        ([(f"q {i}", ["yes", "no"][i % 2]) for i in range(160)], "160 different first texts and 2 second ones"),
        ([("q", f"a {i}") for i in range(12)], "12 pairs have 1 different first texts and 12 second ones"),
        ([("q", "a")] * 5, "5 pairs have 1 different first texts and 1 second ones: without those that share a text"),
        ([("q 1", "a 1"), ("q 2", "a 2"), ("q 3", "a 3")], "development set: 3 pairs are too few to hold some out"),
    ],
)
def test_pairs_that_repeat_their_texts_are_refused_with_the_reason(rows, why, pretrained, tmp_path, refused):
    path = tmp_path / "pairs.csv"
    path.write_text("".join(f"{first},{second}\n" for first, second in [("question", "answer"), *rows]))
    refused(command(path, pretrained, tmp_path / "run"), 78, why, "give pairs of more different texts, or --dev")
    columns = {"train": path, "text": "question", "pair": "answer"}
    output = tmp_path / "run"
    refused(lambda: albert.finetune_vectors(**columns, model=pretrained, output=output), 78, why, "texts, or dev")
    assert not output.exists()


def test_loss_with_negatives_by_its_formula():
    torch.manual_seed(0)
    vectors = torch.randn(8, 4)  # three pairs, and negatives of the first and the last
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    scores = unit[:3] @ unit[3:].T / 0.05
    numbers = torch.tensor([[0, 3, 6], [1, 4, -1], [2, 5, 7]])
    sums = contrastive_loss(vectors, numbers, 0.05)
    assert torch.allclose(sums.losses["pairs"], -scores.log_softmax(1).diagonal().sum())
    # The negative of the first row is the second text of the third row, whose first text equals that of the second.
    numbers = torch.tensor([[0, 3, 5], [1, 4, -1], [1, 5, 7]])
    scores[1, 2] = scores[1, 3] = scores[2, 1] = scores[2, 3] = -torch.inf
    sums = contrastive_loss(vectors, numbers, 0.05)
    assert torch.allclose(sums.losses["pairs"], -scores.log_softmax(1).diagonal().sum())


def test_hard_negatives_are_read_said_and_learned_from(table, pretrained, tmp_path, capsys):
    draw = random.Random(1)
    lines = table.read_text().splitlines()[1:-1][:60]
    answers = [line.split(",")[1] for line in lines]
    rows = [f"{line},{draw.choice(answers) if number % 4 else ''}" for number, line in enumerate(lines)]
    path = tmp_path / "triplets.csv"
    path.write_text("\n".join(["question,answer,negative", *rows]) + "\n")
    assert run(command(path, pretrained, tmp_path / "run", "steps=2")) == 0
    out = capsys.readouterr().out
    assert "hard negatives: negative" in out and "rows without a negative" in out
    results = read_json_object(tmp_path / "run/results.json")
    assert results["training"]["rows_without_negative"] == 15
    assert results["baseline"]["retrieval_accuracy"] < 100 / results["evaluation"]["examples"]
    # Both doors, with the column named: the same model. Another one without negatives.
    options = {"steps": 2, "batch_size": 32, "max_length": 16, "device": "cpu", "model": pretrained}
    columns = {"text": "question", "pair": "answer"}
    albert.finetune_vectors(train=path, **columns, negative=["negative"], output=tmp_path / "named", **options)
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("run", "named")]
    assert weights[0] == weights[1]
    path.write_text(path.read_text().replace("negative", "other"))
    albert.finetune_vectors(train=path, **columns, output=tmp_path / "without", **options)
    assert (tmp_path / "without/model/model.safetensors").read_bytes() != weights[0]


@pytest.mark.parametrize(
    ("more", "subject"),
    [
        (["--negative", "wrong"], "'wrong'"),
        (["--negative", "answer"], "'answer'"),
    ],
)
def test_wrong_columns_of_negatives_are_refused(table, pretrained, tmp_path, capsys, more, subject):
    assert run(command(table, pretrained, tmp_path / "run", *more)) != 0
    assert subject in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
