"""`albert evaluate`: notes on doubtful models, settings that weights do not show, pre-training figures, precisions."""

import io
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

import albert
from albert.checkpoints.model_directory import open_model, write_model
from albert.cli.main import run
from albert.cli.render import print_result
from albert.commands.evaluate_precisions import PrecisionScore, check_precisions, compare_precisions
from albert.finetuning.evaluation import Evaluation
from albert.inference.engine import check_int8
from albert.model.albert import AlbertForPreTraining
from albert.runtime.errors import CheckFailed, Unavailable
from albert.tasks.single_label import SingleLabel
from albert.tasks.submission import DECLARED

try:
    check_int8(torch.device("cpu"))
    LACKS_INT8 = False
except Unavailable:
    LACKS_INT8 = True


def on_table(scene, model: Path, *flags: object) -> list[str]:
    """The command for a model on the table of the scene."""
    table = ["--dev", scene.tables / "dev.csv", "--text", "review", "--label", "stars", "--device", "cpu"]
    return [*map(str, ["evaluate", *table, "--model", model, *flags])]


def on_corpus(scene, *models: Path, flags: tuple[str, ...] = ("--sequences", "40")) -> list[str]:
    """The command for models on the tasks of pre-training."""
    words = ["evaluate", "pretraining", "--data", str(scene.corpus), "--device", "cpu", *flags]
    return [*words, "--model", *map(str, models)]


@pytest.fixture
def changed(scene, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a model without its manifest, with other keys in its configuration."""

    def change(model: Path, **keys: object) -> Path:
        path = tmp_path / "changed"
        shutil.copytree(model, path)
        (path / "MANIFEST.json").unlink()
        content = json.loads((path / "config.json").read_text()) | keys
        (path / "config.json").write_text(json.dumps(content))
        return path

    return change


@pytest.fixture
def with_objective(scene, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the pre-trained model whose sentence head was trained with an objective."""

    def save(objective: str) -> Path:
        model = open_model(scene.pretrained, "pretraining").model
        assert isinstance(model, AlbertForPreTraining)
        (tmp_path / objective).mkdir()
        write_model(tmp_path / objective, model, scene.tokenizer, extra={"sentence_objective": objective})
        return tmp_path / objective

    return save


@pytest.mark.parametrize("door", ["predict", "evaluate", "pretraining", "python"])
def test_a_missing_manifest_is_reported_once(scene, changed, door, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's; without them logging writes to stderr
    model = changed(scene.pretrained if door == "pretraining" else scene.classifier)
    commands = {
        "predict": ["predict", str(model), "--classify", "It was good"],
        "evaluate": on_table(scene, model),
        "pretraining": on_corpus(scene, model),
    }
    for _ in range(2):
        if door == "python":
            albert.load(model)
        else:
            assert run(commands[door]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "unverified" in line]
    assert notes == [
        f"albert: note: {model}/model.safetensors: unverified: there is no MANIFEST.json to check it against"
    ]
    albert.load(scene.classifier)
    assert "unverified" not in capsys.readouterr().err


def test_a_doubtful_activation_is_reported_and_settings_change_the_scores(scene, changed, tmp_path, capsys):
    model = changed(scene.classifier, hidden_act="gelu", net_structure_type=0)
    probabilities = []
    for flags in ([], ["--hidden-act", "gelu_new", "--num-attention-heads", "4"]):
        out = tmp_path / f"predictions-{len(flags)}.jsonl"
        assert run(on_table(scene, model, "--precision", "fp32", "--predictions", out, *flags)) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
        probabilities.append([json.loads(line)["probabilities"] for line in out.read_text().splitlines()])
    assert probabilities[0] != probabilities[1]


def test_a_doubtful_activation_is_reported_for_pretraining(scene, changed, capsys):
    model = changed(scene.pretrained, hidden_act="gelu", down_scale_factor=1)
    for flags in ((), ("--hidden-act", "gelu_new")):
        assert run(on_corpus(scene, model, flags=("--sequences", "4", *flags))) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
    assert run(on_corpus(scene, model, flags=("--num-attention-heads", "5"))) == 78
    assert "5 heads do not divide" in capsys.readouterr().err


def test_several_models_are_compared_in_one_table(scene, with_objective, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(on_corpus(scene, scene.run, with_objective("nsp"), with_objective("none"))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["accuracy,", "%", "objective", "MLM", "NSP", "SOP", "loss"]
    rows = [line.split()[1:] for line in lines[2:] if line[:1] == "/"]
    assert [row[0] for row in rows] == ["sop", "nsp", "none"]
    has_score = [[cell != "-" for cell in row[1:]] for row in rows]
    assert all(has_score[0]) and all(has_score[1]) and has_score[2] == [True, False, False, True]
    assert any(line.startswith("majority baseline") for line in lines)
    assert "no sentence head; the paper's 52.4 (NSP) and 53.3 (SOP)" in lines[-1]


def test_json_and_results_have_the_same_figures(scene, with_objective, tmp_path, capsys):
    command = on_corpus(scene, scene.pretrained, with_objective("none"))
    assert run([*command, "--json", "--results", str(tmp_path / "figures.json")]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "figures.json").read_text()) == {"task": "pretraining", **figures}


def test_sequences_without_a_second_segment_are_reported(scene, capsys):
    assert run([*on_corpus(scene, scene.pretrained), "--max-length", "8"]) == 0
    assert "none of these sequences has two segments" in capsys.readouterr().out


def test_a_model_of_another_tokenizer_is_refused_by_name(scene, tmp_path, capsys):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    write_model(foreign, open_model(scene.pretrained, "pretraining").model, scene.other_corpus)
    assert run(on_corpus(scene, scene.pretrained, foreign)) == 78
    output = capsys.readouterr()
    assert f"{foreign}: has tokenizer" in output.err and not output.out


def test_a_classifier_with_a_random_pooler_is_refused(scene, changed, capsys):
    model = changed(scene.classifier)
    tensors = load_file(model / "model.safetensors")
    for name in ("albert.pooler.weight", "albert.pooler.bias"):
        del tensors[name]
    save_file(tensors, model / "model.safetensors")
    assert run(on_table(scene, model)) == 78
    refusal = capsys.readouterr().err
    assert "has no head for this task (albert.pooler.weight, albert.pooler.bias would be random)" in refusal
    assert run(["predict", str(model), "--classify", "a"]) == 78
    assert "has no trained head to classify texts" in capsys.readouterr().err


def test_a_model_without_a_head_is_refused_before_options_are_asked_for(scene, capsys):
    for words in (["--dev", str(scene.tables / "dev.csv")], []):
        assert run(["evaluate", "--model", str(scene.pretrained), *words]) == 78
        said = capsys.readouterr().err
        assert "is a pre-trained model without a head for a task; albert finetune trains" in said
    assert run(on_table(scene, scene.pretrained)) == 78
    assert "without a head for a task" in capsys.readouterr().err


def test_a_model_with_a_foreign_tokenizer_is_refused(scene, changed, capsys):
    model = changed(scene.classifier, tokenizer_fingerprint="pieces-0")
    assert run(on_table(scene, model)) == 65
    assert "the model was trained with pieces-0" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------------
# Precisions.


@pytest.mark.parametrize("words", [["--rounds", "3"], ["--tolerance", "1"]])
def test_an_option_of_comparisons_is_refused_without_one(scene, words, capsys):
    assert run(on_table(scene, scene.classifier, *words)) == 2
    assert words[0] in capsys.readouterr().err


def test_outputs_replace_no_input_and_no_other_table(scene, tmp_path, capsys):
    dev, other, depths = tmp_path / "dev.csv", tmp_path / "other.csv", ("--depth", "1", "2", "--curve")
    shutil.copy(scene.tables / "dev.csv", dev)
    other.write_text("a,b\n")
    content = dev.read_bytes()
    for flags in (("--predictions", dev), ("--results", dev), (*depths, tmp_path / "dev.png")):
        assert run(on_table(scene, scene.classifier, "--dev", dev, *flags)) == 73
        assert "dev.csv: is an input, which would be replaced" in capsys.readouterr().err
    assert run(on_table(scene, scene.classifier, *depths, tmp_path / "other.png")) == 73
    assert "other.csv: is another table, the curve's figures would replace it" in capsys.readouterr().err
    assert dev.read_bytes() == content and other.read_text() == "a,b\n"
    for _ in range(2):  # its own figures are replaced
        assert run(on_table(scene, scene.classifier, *depths, tmp_path / "own.png")) == 0


@pytest.mark.skipif(LACKS_INT8, reason="no 8-bit products on this processor")
def test_one_table_compares_precisions(scene, tmp_path, capsys):
    results = tmp_path / "scores.json"
    flags = ("--precision", "bf16", "int8", "--tolerance", "100", "--results", results)
    assert run(on_table(scene, scene.classifier, *flags)) == 0
    first = [line.split()[:1] for line in capsys.readouterr().out.splitlines()]
    assert [words for words in first if words in (["fp32"], ["bf16"], ["int8"])] == [["fp32"], ["bf16"], ["int8"]]
    written = json.loads(results.read_text())
    assert list(written["precisions"]) == ["fp32", "bf16", "int8"]
    assert written["precisions"]["fp32"]["answers_changed"] == 0
    assert all(row["holds"] for row in written["precisions"].values())


def precision_score(precision: str, score: float, answers: str) -> PrecisionScore:
    predictions = [{"id": str(number), "prediction": letter} for number, letter in enumerate(answers)]
    evaluation = Evaluation({"accuracy": score}, None, predictions, {}, 1.0, SingleLabel(("a", "b"), "label"))
    changed, holds = answers.count("b"), abs(score - 90) <= 0.5
    return PrecisionScore(precision, evaluation, "accuracy", score, score - 90, changed, holds)


def test_a_score_that_moves_beyond_the_tolerance_fails():
    results = [
        precision_score("fp32", 90.0, "aaaa"),
        precision_score("bf16", 90.4, "aaab"),
        precision_score("int8", 88.0, "abba"),
    ]
    screen = Console(width=120, file=io.StringIO())
    print_result(screen, compare_precisions(results, DECLARED["sst-2"], "model", "dev", 0.5))
    rows = [line.split() for line in screen.file.getvalue().splitlines()]
    assert ["bf16", "90.40", "+0.40", "1", "of", "4", "1.0", "ok"] in rows
    assert ["int8", "88.00", "-2.00", "2", "of", "4", "1.0", "lower"] in rows
    with pytest.raises(CheckFailed):
        check_precisions(results, 0.5)
    check_precisions(results[:2], 0.5)


@pytest.mark.parametrize(("flags", "precision"), [((), "fp32"), (("--precision", "bf16"), "bf16")])
def test_the_precision_is_that_of_predict(scene, tmp_path, capsys, monkeypatch, flags, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    results, predictions = tmp_path / "scores.json", tmp_path / "predictions.jsonl"
    assert run(on_table(scene, scene.classifier, *flags, "--results", results, "--predictions", predictions)) == 0
    assert f" s, in {precision}" in capsys.readouterr().out
    assert json.loads(results.read_text())["precision"] == precision
    model = albert.load(scene.classifier, "cpu", precision=precision)
    rows = [line.split(",")[0] for line in (scene.tables / "dev.csv").read_text().splitlines()[1:]]
    scored = [json.loads(line)["probabilities"] for line in predictions.read_text().splitlines()]
    for answers, probabilities in zip(model.classify_batch(rows), scored, strict=True):
        assert probabilities == pytest.approx({answer["label"]: answer["score"] for answer in answers}, abs=1e-5)


def test_bf16_keeps_the_score_within_the_tolerance(scene, tmp_path):
    results = tmp_path / "scores.json"
    assert run(on_table(scene, scene.classifier, "--precision", "fp32", "bf16", "auto", "--results", results)) == 0
    written = json.loads(results.read_text())
    assert set(written["precisions"]) == {"fp32", "bf16"}
    assert abs(written["precisions"]["bf16"]["difference"]) <= written["tolerance"]


def test_pretraining_figures_name_their_precision_and_hardly_depend_on_it(scene, capsys):
    losses = []
    for precision in ("fp32", "bf16"):
        assert run(on_corpus(scene, scene.pretrained, flags=("--json", "--precision", precision))) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["precision"] == precision
        losses.append(report["models"][0]["scores"]["masked_tokens"]["loss"])
    assert losses[1] == pytest.approx(losses[0], abs=5e-3) and losses[1] != losses[0]
