"""What lies in a directory is told as it is: heads by what they were trained for, tokenizers by what they do."""

from pathlib import Path

import pytest
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.inference.inspection import model_report
from albert.model.albert import AlbertForPreTraining

SMALL = tiny_config(200, max_position_embeddings=20)


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
