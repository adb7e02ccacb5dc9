"""`albert finetune --objective contrastive`: vectors of texts that belong together come closer."""

import json
import random

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import PLAIN_WORDS

import albert
from albert.cli.main import dispatch, run
from albert.finetuning.contrastive import contrastive_loss, hold_out_pairs, read_text_pairs, retrieval_accuracy

WORDS = PLAIN_WORDS[:12]
PARTNERS = (
    "horse",
    "silver",
    "winter",
    "music",
    "bread",
    "forest",
    "market",
    "engine",
    "paper",
    "cheese",
    "ocean",
    "tree",
)
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
    return ["finetune", "--objective", "contrastive", *files, "--batch-size", "32", "--max-length", "16", *more]


def test_texts_that_belong_together_find_each_other(table, pretrained, tmp_path, capsys):
    learn = command(table, pretrained, tmp_path / "run", "--steps", "100", "--learning-rate", "3e-3")
    assert dispatch(learn) == 0
    said = capsys.readouterr().out
    assert "training: 1 rows without text left out" in said
    assert "is ready" in said and "export sentence-transformers" in said
    report = json.loads((tmp_path / "run/results.json").read_text())
    before, after = (report[name]["retrieval_accuracy"] for name in ("before", "scores"))
    assert after > 50 > 25 > before
    # The saved model gives these vectors, and the score can be had from them.
    pairs, scored = hold_out_pairs(read_text_pairs(table, "question", "answer"), 0.1, 0)
    assert report["training"]["examples"] == len(pairs)
    predictor = albert.load(tmp_path / "run", precision="fp32")
    vectors = predictor.embed([*scored.firsts, *scored.seconds])
    texts = np.unique([*scored.firsts, *scored.seconds], return_inverse=True)[1]
    assert retrieval_accuracy(vectors, texts) == pytest.approx(after)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["architectures"] == ["AlbertModel"]
    assert "retrieval_accuracy among 40 pairs" in (tmp_path / "run/model/README.md").read_text()
    # The same call finds the run complete; another one is refused.
    assert dispatch(learn) == 0
    assert "complete already" in capsys.readouterr().out
    assert run([*learn, "--temperature", "0.1"]) != 0
    assert "another" in capsys.readouterr().err


def test_both_doors_write_the_same_model_and_it_starts_another(table, pretrained, tmp_path):
    assert dispatch(command(table, pretrained, tmp_path / "command", "--steps", "3")) == 0
    result = albert.finetune(
        objective="contrastive",
        train=table,
        text="question",
        pair="answer",
        model=pretrained,
        output=tmp_path / "python",
        steps=3,
        batch_size=32,
        max_length=16,
        device="cpu",
    )
    assert 0 <= result.scores["retrieval_accuracy"] <= 100
    assert "contrastive" in repr(result)
    weights = [(tmp_path / door / "model/model.safetensors").read_bytes() for door in ("command", "python")]
    assert weights[0] == weights[1]
    assert dispatch(command(table, tmp_path / "python", tmp_path / "again", "--steps", "1")) == 0


def test_the_loss_is_that_of_its_formula_and_equal_texts_are_not_wrong():
    torch.manual_seed(0)
    vectors = torch.randn(6, 4)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    scores = unit[:3] @ unit[3:].T / 0.05
    wanted = -scores.log_softmax(1).diagonal().sum()
    sums = contrastive_loss(vectors, torch.arange(6), 0.05)
    assert torch.allclose(sums.losses["pairs"], wanted)
    # The second texts of the first two pairs are one text: neither is the other's wrong answer.
    scores[0, 1] = scores[1, 0] = -torch.inf
    sums = contrastive_loss(vectors, torch.tensor([0, 1, 2, 3, 3, 5]), 0.05)
    assert torch.allclose(sums.losses["pairs"], -scores.log_softmax(1).diagonal().sum())


def test_no_text_is_both_learnt_and_scored(tmp_path):
    rows = [f"question {i},answer {i // 4}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    pairs = read_text_pairs(tmp_path / "t.csv", "a", "b")
    learnt, scored = hold_out_pairs(pairs, 0.1, 0)
    assert not {*learnt.firsts, *learnt.seconds} & {*scored.firsts, *scored.seconds}
    counts = learnt.counts
    kept = len(learnt) + counts["kept_back_for_dev"] + counts["rows_that_share_a_text_with_dev"]
    assert kept == counts["rows"] == 40


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--label", "answer"], "--label: has no meaning with --objective contrastive"),
        (["--seeds", "2"], "--seeds: has no meaning"),
        (["--pair", "reply"], "has no column 'reply'"),
        (["--pair", "None"], "--pair: is missing: the columns of the two texts must be named"),
        (["--temperature", "0"], "temperature: is 0.0, it must be above 0"),
        (["--batch-size", "1"], "batch_size: 1 leaves a process fewer than 2 pairs"),
        (["--held-out", "1"], "too few"),
        (["sts-b"], "contrastive learns from your own table, not from sts-b"),
    ],
)
def test_what_cannot_be_is_said_on_one_line(more, message, table, pretrained, tmp_path, capsys):
    assert run([*command(table, pretrained, tmp_path / "no", "--steps", "1"), *more]) != 0
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "no").exists()
