"""transformers' only sentence head means sentence order; a head that learnt something else is never taken for it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from albert.checkpoints.model_directory import kind_of, open_model, read_config, write_model
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration

HEAD = ("sop_classifier.classifier.weight", "sop_classifier.classifier.bias")
POOLER = ("albert.pooler.weight", "albert.pooler.bias")


@pytest.fixture
def written(tmp_path: Path, config: AlbertConfig) -> Callable[[str], tuple[AlbertForPreTraining, Path]]:
    """Writes a model that was pre-trained with an objective."""

    def write(objective: str) -> tuple[AlbertForPreTraining, Path]:
        model = AlbertForPreTraining(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3)
        write_model(tmp_path, model, None, extra={"sentence_objective": objective})
        return model, tmp_path

    return write


def test_a_next_sentence_head_comes_back_and_is_no_order_to_transformers(written: Callable, config: AlbertConfig):
    model, path = written("nsp")
    assert json.loads((path / "config.json").read_text())["architectures"] == ["AlbertForMaskedLM"]
    opened = open_model(path, kind_of(read_config(path)[1]))
    assert isinstance(opened.model, AlbertForPreTraining)
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, opened.model.state_dict()[name])
    _, report = transformers.AlbertForPreTraining.from_pretrained(path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(HEAD)
    assert set(report["unexpected_keys"]) == {name.replace("sop", "nsp") for name in HEAD}
    masked, report = transformers.AlbertForMaskedLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == {*POOLER, *(name.replace("sop", "nsp") for name in HEAD)}
    _assert_the_same_masked_tokens(masked, model, config)


def test_heads_that_nothing_trained_are_not_written(written: Callable, config: AlbertConfig):
    model, path = written("none")
    assert not {*HEAD, *POOLER} & load_file(path / "model.safetensors").keys()
    assert kind_of(read_config(path)[1]) == "masked_lm"
    report = open_model(path, "masked_lm").loading_report
    assert report.missing == report.unexpected == ()
    drawn = open_model(path, "pretraining").loading_report.newly_initialised
    assert set(drawn) == {*HEAD, *POOLER}
    masked, report = transformers.AlbertForMaskedLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    _assert_the_same_masked_tokens(masked, model, config)


def test_a_sentence_order_head_stays_one(written: Callable):
    _, path = written("sop")
    _, report = transformers.AlbertForPreTraining.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert kind_of(read_config(path)[1]) == "pretraining"


def test_names_in_the_report_are_those_of_the_file(written: Callable):
    _, path = written("nsp")
    assert "nsp_classifier.classifier.bias" in open_model(path, "masked_lm").loading_report.unexpected


def test_the_objective_of_pre_training_takes_nothing_from_a_model_of_a_task(tmp_path: Path, config: AlbertConfig):
    model = AlbertForSequenceClassification(config, 2)
    write_model(tmp_path, model, None, extra={"sentence_objective": "none"})
    assert read_config(tmp_path)[1]["architectures"] == ["AlbertForSequenceClassification"]
    assert set(POOLER) < load_file(tmp_path / "model.safetensors").keys()


def test_an_unknown_objective_is_refused_before_anything_is_written(tmp_path: Path, config: AlbertConfig):
    with pytest.raises(InvalidConfiguration, match=r"sentence_objective: is 'nps'; known: sop, nsp, none"):
        write_model(tmp_path, AlbertForPreTraining(config), None, extra={"sentence_objective": "nps"})
    assert list(tmp_path.iterdir()) == []


def _assert_the_same_masked_tokens(theirs: torch.nn.Module, ours: AlbertForPreTraining, config: AlbertConfig) -> None:
    ids = torch.arange(5, 17)
    packed = pack([ids.numpy()], [torch.zeros_like(ids).numpy()])
    alone = AlbertForMaskedLM(config)
    alone.load_state_dict(ours.state_dict(), strict=False)
    with torch.inference_mode():
        expected = theirs.eval()(ids[None]).logits[0]
        found = ours(packed, torch.arange(12)).masked_tokens
        assert torch.equal(alone.eval()(packed, torch.arange(12)), found)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
