"""What lies in a directory is told as it is: heads by what they were trained for, tokenizers by what they do."""

from dataclasses import replace
from pathlib import Path

import pytest

from albert.checkpoints.model_directory import save_model_directory
from albert.experiments.quickstart import load_chapters
from albert.inference.inspection import model_report, tokenizer_report
from albert.model.albert import AlbertForMultipleChoice, AlbertForPreTraining, AlbertForTokenClassification, AlbertModel
from albert.model.config import AlbertConfig
from albert.text.sentencepiece import train_tokenizer

SMALL = AlbertConfig(
    vocab_size=200,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
)


@pytest.mark.parametrize(
    ("objective", "head"),
    [
        ("sop", "masked tokens, and two segments' order"),
        ("nsp", "masked tokens, and next sentences"),
        ("none", "masked tokens"),
    ],
)
def test_a_head_is_told_by_what_it_was_trained_for(tmp_path: Path, objective: str, head: str) -> None:
    save_model_directory(tmp_path / "m", AlbertForPreTraining(SMALL), None, extra={"sentence_objective": objective})
    assert model_report(tmp_path / "m").head == head


@pytest.mark.parametrize(
    ("model", "head", "labels"),
    [
        (AlbertModel(SMALL), "none", []),
        (AlbertForMultipleChoice(SMALL), "a score for each option", []),
        (AlbertForTokenClassification(SMALL, 2), "a label for each token", ["LABEL_0", "LABEL_1"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_head_is_told(tmp_path: Path, model, head: str, labels: list[str]) -> None:
    save_model_directory(tmp_path / "m", model, None)
    report = model_report(tmp_path / "m")
    assert (report.head, report.labels, report.architecture) == (head, labels, type(model).__name__)
    assert report.parameters == sum(p.numel() for p in model.parameters())
    assert report.verified and report.tokenizer is None


@pytest.mark.parametrize("sharing", ["attention", "none"])
def test_a_model_is_counted_as_it_is_shared_not_as_it_is_written(tmp_path: Path, sharing: str) -> None:
    model = AlbertModel(replace(SMALL, sharing=sharing))
    save_model_directory(tmp_path / "m", model, None)
    assert model_report(tmp_path / "m").parameters == sum(p.numel() for p in model.parameters())


def test_a_tokenizer_is_told_and_judged_by_the_fingerprint_beside_it(tmp_path: Path) -> None:
    assert tokenizer_report(tmp_path) is None
    tokenizer = train_tokenizer([load_chapters()[0].text[:20_000]], vocab_size=200)
    tokenizer.save(tmp_path)
    report = tokenizer_report(tmp_path)
    assert report is not None
    assert (report.kind, report.pieces, report.lower_case, report.belongs) == ("SentencePiece", 200, True, None)
    told = [tokenizer_report(tmp_path, made_with) for made_with in (tokenizer.fingerprint, "0" * 64)]
    assert [one.belongs for one in told if one is not None] == [True, False]
