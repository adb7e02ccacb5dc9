"""Reports on model directories."""

import pytest
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.inference.inspection import model_report
from albert.model.albert import AlbertForPreTraining

HEADS = {
    "sop": "masked tokens, and two segments' order",
    "nsp": "masked tokens, and next sentences",
    "none": "masked tokens",
}


@pytest.mark.parametrize("objective", HEADS)
def test_report_describes_the_pretraining_head(tmp_path, objective):
    model = AlbertForPreTraining(tiny_config(200, max_position_embeddings=20))
    save_model_directory(tmp_path / "m", model, None, extra={"sentence_objective": objective})
    assert model_report(tmp_path / "m").head == HEADS[objective]
