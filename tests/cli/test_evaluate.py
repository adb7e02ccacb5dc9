"""`albert evaluate` says what is doubtful about a model, scores no random head, and sets what weights do not show."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from albert.checkpoints.model_directory import open_model, write_model
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining

DEV = ["evaluate", "--text", "review", "--label", "stars", "--device", "cpu"]


@pytest.fixture
def changed(scene, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a model of the scene without its manifest, with other keys in its configuration."""

    def change(model: Path, **keys: object) -> Path:
        path = tmp_path / "changed"
        shutil.copytree(model, path)
        (path / "MANIFEST.json").unlink()
        content = json.loads((path / "config.json").read_text()) | keys
        (path / "config.json").write_text(json.dumps(content))
        return path

    return change


def test_doubts_are_said_and_settings_change_the_scores(scene, changed, tmp_path, capsys):
    model = changed(scene.classifier, hidden_act="gelu", net_structure_type=0)
    probabilities = []
    for flags in ([], ["--hidden-act", "gelu_new", "--num-attention-heads", "4"]):
        out = tmp_path / f"predictions-{len(flags)}.jsonl"
        command = [
            *DEV,
            "--dev",
            str(scene.tables / "dev.csv"),
            "--model",
            str(model),
            "--predictions",
            str(out),
            *flags,
        ]
        assert run(command) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
        probabilities.append([json.loads(line)["probabilities"] for line in out.read_text().splitlines()])
    assert probabilities[0] != probabilities[1]


def test_doubts_are_said_before_the_figures_of_pre_training(scene, changed, capsys):
    model = changed(scene.pretrained, hidden_act="gelu", down_scale_factor=1)
    command = ["evaluate", "pretraining", "--model", str(model), "--data", str(scene.corpus), "--sequences", "4"]
    for flags in ([], ["--hidden-act", "gelu_new"]):
        assert run([*command, "--device", "cpu", *flags]) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
    assert run([*command, "--device", "cpu", "--num-attention-heads", "5"]) == 78
    assert "5 heads do not divide" in capsys.readouterr().err


@pytest.mark.parametrize(("objective", "asked", "code"), [("nsp", "sop", 0), ("none", "sop", 78), ("none", "none", 0)])
def test_a_sentence_head_is_asked_for_what_it_learnt_or_said_to_be_asked_for_more(
    scene, tmp_path, capsys, objective, asked, code
):
    model = open_model(scene.pretrained, "pretraining").model
    assert isinstance(model, AlbertForPreTraining)
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model", model, scene.tokenizer, extra={"sentence_objective": objective})
    command = ["evaluate", "pretraining", "--model", str(tmp_path / "model"), "--data", str(scene.corpus)]
    assert run([*command, "--sequences", "4", "--objective", asked, "--device", "cpu"]) == code
    said = capsys.readouterr()
    assert ('learnt "nsp", it is asked for "sop"' in said.out) == (objective == "nsp")
    assert ("has no trained sentence-order head" in said.err) == (code == 78)
    assert ("sentence order" in said.out) == (objective == "nsp")


def test_a_classifier_on_a_random_pooler_is_not_scored(scene, changed, capsys):
    model = changed(scene.classifier)
    held = load_file(model / "model.safetensors")
    for name in ("albert.pooler.weight", "albert.pooler.bias"):
        del held[name]
    save_file(held, model / "model.safetensors")
    assert run([*DEV, "--dev", str(scene.tables / "dev.csv"), "--model", str(model)]) == 78
    refusal = capsys.readouterr().err
    assert "has no head for this task (albert.pooler.weight, albert.pooler.bias would be random)" in refusal
    assert run(["predict", str(model), "--classify", "a"]) == 78
    assert "has no trained head to classify texts" in capsys.readouterr().err


def test_a_foreign_tokenizer_is_not_scored(scene, changed, capsys):
    model = changed(scene.classifier, tokenizer_fingerprint="pieces-0")
    assert run([*DEV, "--dev", str(scene.tables / "dev.csv"), "--model", str(model)]) == 65
    assert "the model was trained with pieces-0" in capsys.readouterr().err


def test_a_revision_goes_with_a_hub_id(scene, capsys):
    for command in (["evaluate", "sst-2", "--data", "x", "--model", str(scene.classifier)],
                    ["predict", str(scene.classifier), "--classify", "a"]):  # fmt: skip
        assert run([*command, "--revision", "v1"]) == 2
        assert "is a directory; it goes with a Hub id" in capsys.readouterr().err
