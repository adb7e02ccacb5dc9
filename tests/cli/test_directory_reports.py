"""`albert info` describes the head of a pre-trained model."""

import json

import pytest
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining

HEADS = {
    "sop": "masked tokens, and two segments' order",
    "nsp": "masked tokens, and next sentences",
    "none": "masked tokens",
}


@pytest.mark.parametrize("objective", HEADS)
def test_report_describes_the_pretraining_head(tmp_path, objective, capsys):
    model = AlbertForPreTraining(tiny_config(200, max_position_embeddings=20))
    save_model_directory(tmp_path / "m", model, None, extra={"sentence_objective": objective})
    assert run(["info", str(tmp_path / "m"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["head"] == HEADS[objective]
