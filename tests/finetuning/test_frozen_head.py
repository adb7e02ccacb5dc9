"""The head solved on frozen features: as a start of fine-tuning, and alone; the threshold of several labels."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tests.finetuning.conftest import NOUNS, PLAIN_WORDS, weights_of
from tests.refusals import refusal
from threadpoolctl import threadpool_info, threadpool_limits

import albert
from albert.checkpoints.config_json import read_config
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run
from albert.columns.read import read_task
from albert.finetuning import probe
from albert.finetuning.batches import prepare_split
from albert.finetuning.evaluation import ComputeOptions, evaluate_directory, evaluate_model
from albert.finetuning.initial_model import PretrainedEncoder, initial_model
from albert.finetuning.probe import solve_head
from albert.finetuning.selection import BestModel
from albert.finetuning.task_run import finetune, task_batches
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForPreTraining
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.files import new_directory
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.progress import Bar
from albert.tasks.label_threshold import LabelThreshold, choose_label_threshold
from albert.tasks.single_label import SingleLabel
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import TableTask
from albert.tasks.task import LinearTask

COMPUTE = ComputeOptions(torch.device("cpu"))


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def classes(tmp_path) -> Path:
    """120 texts with one of four labels, the noun that they name."""
    rows = [
        {"text": f"the {NOUNS[i % 4]} and a {PLAIN_WORDS[8 + i % 7]}", "label": f"about {NOUNS[i % 4]}"}
        for i in range(120)
    ]
    return write_rows(tmp_path / "classes.jsonl", rows)


@pytest.fixture
def several(tmp_path) -> Path:
    """200 texts with every noun that they name as a label, none of them empty."""
    rows = []
    for i in range(200):
        pair = sorted({NOUNS[i % 4], NOUNS[(i // 4) % 4]})
        rows.append({"text": f"the {' and the '.join(pair)}", "labels": pair})
    return write_rows(tmp_path / "several.jsonl", rows)


@pytest.fixture
def also_untrained(monkeypatch):
    """Solve the head of an encoder with random weights, too, which these tests have."""
    monkeypatch.setattr(probe, "UNTRAINED_DEVIATION", 0.0)


def test_solved_head_is_better_than_a_constant(task, task_data, start, also_untrained):
    """On its training rows, without any update, for every kind of head that is one linear map."""
    if not isinstance(task.target, LinearTask):
        pytest.skip("spans have no such head")
    initial = initial_model(start, task.target, task.recipe, seed=0)
    split = prepare_split(task, task_data, "train", initial.tokenizer, task.recipe)
    batches = task_batches(task, split, task.recipe, FinetuningSettings())
    model = initial.model.eval()
    solved = solve_head(model, task.target, batches, COMPUTE, cross_validate=True)
    assert solved is not None
    assert solved.cross_validated is not None
    assert solved.inverse_regularisation in solved.cross_validated
    solve_head(model, task.target, batches, COMPUTE)
    first = [parameter.clone() for parameter in model.classifier.parameters()]
    solve_head(model, task.target, batches, COMPUTE)
    assert all(torch.equal(*pair) for pair in zip(first, model.classifier.parameters(), strict=True))
    evaluation = evaluate_model(model, task, split, COMPUTE)
    name, score = next(iter(evaluation.scores.items()))
    assert evaluation.baseline is not None
    assert score is not None
    assert score > (evaluation.baseline[name] or 0.0)


def test_frozen_is_an_ordinary_model_directory(classes, pretrained, tmp_path, capsys):
    output = tmp_path / "run"
    table = ["--train", str(classes), "--text", "text", "--label", "label", "--device", "cpu"]
    run(["finetune", *table, "--model", str(pretrained), "--output", str(output), "--frozen"])
    shown = capsys.readouterr().out
    assert "frozen model with a linear head: accuracy" in shown
    results = json.loads((output / "results.json").read_text())
    assert results["training"]["steps"] == 0
    assert results["frozen_head"]["scores"] == results["scores"]
    assert results["scores"]["accuracy"] > 90
    before = open_model(pretrained, "encoder").model.state_dict()
    after = open_model(output, "encoder").model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("pooler"))
    assert f"head solved on {results['training']['examples']} of" in shown
    assert "updates" not in shown and "epochs" not in shown and "learning rate" not in shown
    assert "learning rate" not in (output / "report.html").read_text()
    assert "replaced by one that standardises [CLS]" in shown  # the outputs of a pooler with random weights hardly vary
    assert Predictor.open(output, "cpu").classify("the sailor and a stone")[0]["label"] == "about sailor"
    run(["evaluate", "--model", str(output), "--device", "cpu"])
    assert f"{results['scores']['accuracy']:.2f}" in capsys.readouterr().out
    opened = transformers.AlbertForSequenceClassification.from_pretrained(output / "model")
    assert opened.config.id2label[1] == "about sailor"


def test_frozen_learns_from_all_rows_or_says_how_many(classes, pretrained, tmp_path, capsys, monkeypatch):
    command = ["finetune", "--train", str(classes), "--text", "text", "--label", "label", "--device", "cpu"]
    command += ["--model", str(pretrained), "--frozen"]
    monkeypatch.setattr(probe, "MAX_EXAMPLES", 20)
    assert run([*command, "--output", str(tmp_path / "all")]) == 0
    results = json.loads((tmp_path / "all/results.json").read_text())
    n_rows = results["training"]["rows"]
    assert results["training"]["examples"] == results["frozen_head"]["examples"] == n_rows > 20
    width = json.loads((pretrained / "config.json").read_text())["hidden_size"]
    monkeypatch.setattr(probe, "MAX_FEATURES", 30 * width)
    capsys.readouterr()
    assert run([*command, "--output", str(tmp_path / "some"), f"max_train_examples={n_rows - 1}"]) == 0
    shown = capsys.readouterr().out
    assert f"solved on 30 of {n_rows - 1} training rows" in shown and f"head solved on 30 of {n_rows} training" in shown
    assert f"{n_rows - 1} of these {n_rows} rows are drawn" in shown
    assert json.loads((tmp_path / "some/results.json").read_text())["training"]["examples"] == 30


def test_run_that_is_killed_after_the_head_was_solved_resumes_exactly(
    classes, start, tmp_path, interrupted, also_untrained
):
    task = read_task(TableTask(train=classes, text="text", label="label")).check().task
    settings = FinetuningSettings(device="cpu", checkpoint_every=2)
    changes = RecipeChanges(steps=6, batch_size=4, max_length=16)
    whole = finetune(task, start, Path(), tmp_path / "whole", changes, settings)
    line = whole.report["frozen_head"]["line"]
    assert line.startswith("head solved on frozen features: accuracy")
    for name, after in (("before a checkpoint", 1), ("after a checkpoint", 4)):
        with interrupted(after):
            finetune(task, start, Path(), tmp_path / name, changes, settings)
        resumed = finetune(task, start, Path(), tmp_path / name, changes, settings)
        assert weights_of(resumed) == weights_of(whole)
        assert resumed.scores == whole.scores
        assert resumed.report["frozen_head"]["scores"] == whole.report["frozen_head"]["scores"]
    with refusal(CannotCreate, "another"):
        finetune(task, start, Path(), tmp_path / "whole", changes, replace(settings, solve_head=False))


def test_head_is_not_solved_on_states_that_hardly_depend_on_the_text(classes, start, tmp_path):
    task = read_task(TableTask(train=classes, text="text", label="label")).check().task
    changes = RecipeChanges(steps=1, batch_size=4, max_length=16)
    settings = FinetuningSettings(device="cpu")
    result = finetune(task, start, Path(), tmp_path / "run", changes, settings)
    assert result.report["frozen_head"] is None
    assert any("the head was not solved" in note for note in result.report["notes"])


@pytest.fixture
def hardly_varying(config, tokenizer_directory, tmp_path) -> PretrainedEncoder:
    """An encoder as after a short pre-training with LAMB: [CLS] depends on the text, in some dimensions hardly or not
    at all, and the pooler is unused."""
    torch.manual_seed(2)
    model = AlbertForPreTraining(replace(config, initializer_range=0.3))
    with torch.no_grad():
        model.albert.encoder.feed_forwards[0].layer_norm.weight[:4] = torch.tensor([0.0, 1e-4, 1e-3, 1e-2])
        model.albert.pooler.weight *= 0.001
    directory = tmp_path / "hardly-varying"
    save_model_directory(directory, model, tokenizer_directory)
    return PretrainedEncoder(str(directory))


def test_dimensions_that_hardly_vary_are_not_amplified(classes, hardly_varying, tmp_path):
    """Amplified 5,000 times they gave gradients of 100,000, and every run ended below its probe."""
    task = read_task(TableTask(train=classes, text="text", label="label")).check().task
    settings = FinetuningSettings(device="cpu", select="last")
    changes = RecipeChanges(epochs=8.0, batch_size=16, max_length=16, learning_rate=2e-3)
    result = finetune(task, hardly_varying, Path(), tmp_path / "run", changes, settings)
    solved = result.report["frozen_head"]
    assert solved["replaced_pooler"] is not None
    updates = [event for event in read_journal(tmp_path / "run/journal.jsonl") if event["event"] == "train"]
    assert max(update["gradient_norm"] for update in updates) < 50
    assert result.scores["accuracy"] > max(90, solved["scores"]["accuracy"])


@pytest.mark.parametrize("setting", ["frozen", "solve_head"])
def test_heads_that_cannot_be_solved_are_refused(setting, start, data, tmp_path):
    settings = replace(FinetuningSettings(device="cpu"), **{setting: True})
    with refusal(InvalidConfiguration, setting):
        finetune(DECLARED["squad-1.1"], start, data, tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


IGNORED = {"epochs": 3, "head_dropout": 0.0, "select": "best", "optimizer": "lamb", "solve_head": False}


@pytest.mark.parametrize("name", [*IGNORED, "--teacher"])
@pytest.mark.parametrize("command", ["finetune", "sweep"])
def test_what_a_solved_head_ignores_is_refused(command, name, classes, pretrained, tmp_path, refused):
    words = [name, str(pretrained)] if name == "--teacher" else [f"{name}={IGNORED[name]}".lower()]
    rows = ["--train", str(classes), "--text", "text", "--label", "label", "--model", str(pretrained), "--frozen"]
    output = ["--output", str(tmp_path / "run"), *(["--seeds", "2"] if command == "sweep" else [])]
    refused([command, *rows, *words, *output], 2, f"{name}: has no effect with --frozen")
    given = {"teacher": pretrained} if name == "--teacher" else {name: IGNORED[name]}
    columns = {"train": classes, "text": "text", "label": "label", "model": pretrained, "frozen": True}
    columns |= {"seeds": 2} if command == "sweep" else {}
    refused(lambda: getattr(albert, command)(**columns, **given, output=tmp_path / "run"), 2, name.strip("-"), "frozen")
    assert not (tmp_path / "run").exists()


def test_a_negative_seed_is_refused(classes, pretrained, tmp_path):
    with refusal(InvalidConfiguration, "seed", "-1"):
        columns = {"text": "text", "label": "label", "model": pretrained}
        albert.finetune(train=classes, **columns, output=tmp_path / "run", seed=-1)
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------------------------------------
# The threshold of several labels.


def test_threshold_maximises_micro_f1_and_forbids_empty_sets_unless_they_help():
    gold = np.array([[1, 0], [0, 1], [1, 1], [0, 1]], np.bool_)
    probabilities = np.array([[0.3, 0.1], [0.05, 0.35], [0.4, 0.3], [0.1, 0.2]])
    threshold = choose_label_threshold(gold, probabilities, "four rows")
    assert not threshold.may_be_empty
    assert (threshold.predicted(probabilities) == gold).all()
    some_empty = np.concatenate([gold, np.zeros((4, 2), np.bool_)])
    low = np.concatenate([probabilities, np.full((4, 2), 0.01)])
    assert choose_label_threshold(some_empty, low, "eight rows").may_be_empty
    assert LabelThreshold(0.9, may_be_empty=False).predicted(probabilities).sum() == 4
    assert not LabelThreshold(0.9).predicted(probabilities).any()


def test_threshold_is_tuned_on_held_out_rows_saved_and_used(several, pretrained, tmp_path, capsys):
    output = tmp_path / "run"
    table = ["--train", str(several), "--text", "text", "--label", "labels", "--device", "cpu", "--frozen"]
    run(["finetune", *table, "--model", str(pretrained), "--output", str(output)])
    results = json.loads((output / "results.json").read_text())
    n_held = results["training"]["held_out"]
    assert 0 < n_held < results["training"]["rows"] // 4
    assert f"chosen on {n_held} rows held out of the training set" in capsys.readouterr().out
    _, extra = read_config(output / "model")
    saved = LabelThreshold(extra["label_threshold"], extra["label_set_may_be_empty"])
    entries = [json.loads(line) for line in (output / "predictions-dev.jsonl").read_text().splitlines()]
    probabilities = np.array([list(entry["probabilities"].values()) for entry in entries])
    names = np.array(list(entries[0]["probabilities"]))
    expected = [names[row].tolist() for row in saved.predicted(probabilities)]
    assert [entry["prediction"] for entry in entries] == expected
    run(["evaluate", "--model", str(output), "--device", "cpu", "--precision", "fp32"])
    assert f"{results['scores']['micro_f1']:.2f}" in capsys.readouterr().out
    for value, many in (("1e-9", True), ("0.999999", False)):
        run(["predict", str(output), "--device", "cpu", "--json", "--classify", "the ship", "--threshold", value])
        predicted = [json.loads(line)["predicted"] for line in capsys.readouterr().out.splitlines()]
        assert all(predicted) if many else sum(predicted) <= 1
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "the ship and the storm"}])
    run(["predict", str(output), "--device", "cpu", "--input", str(rows), "--threshold", "1e-9"])
    assert len(json.loads(capsys.readouterr().out)["predicted_labels"]) == 4


def test_threshold_of_one_label_is_refused(classes, pretrained, tmp_path, capsys):
    table = ["--train", str(classes), "--text", "text", "--label", "label", "--device", "cpu"]
    output = ["--output", str(tmp_path / "run")]
    assert run(["finetune", *table, "--model", str(pretrained), *output, "threshold=0.3"]) != 0
    assert "threshold" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_frozen_head_is_solved_on_one_thread(classes, pretrained, tmp_path, monkeypatch, capsys):
    """Two threads of BLAS wait for each other: 296 s instead of 6 on 1,775 texts of 12 classes."""
    threads = []
    solve = SingleLabel.solve

    def counted(*arguments):
        threads.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return solve(*arguments)

    monkeypatch.setattr(SingleLabel, "solve", counted)
    with threadpool_limits(2, user_api="blas"):
        albert.finetune(train=classes, model=pretrained, output=tmp_path / "run", frozen=True, device="cpu")
        assert {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"} == {2}
    assert set(threads) == {1}


def test_choice_of_the_regularisation_shows_its_progress(classes, pretrained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Bar, "every", 0.0)
    monkeypatch.setattr(Bar, "first_after", 0.0)
    command = ["finetune", "--train", str(classes), "--model", str(pretrained), "--frozen", "--device", "cpu"]
    assert run([*command, "--output", str(tmp_path / "run")]) == 0
    assert "Choosing the regularisation: 40/40 heads" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------------
# The solved head is a candidate of the selection.


def test_run_never_ends_below_its_own_probe(classes, start, tmp_path, interrupted, also_untrained):
    task = read_task(TableTask(train=classes, text="text", label="label")).check().task
    settings = FinetuningSettings(device="cpu", checkpoint_every=2, select="best", evaluate_every=2)
    changes = RecipeChanges(steps=6, batch_size=4, max_length=16, learning_rate=0.5)
    whole = finetune(task, start, Path(), tmp_path / "whole", changes, settings)
    events = read_journal(tmp_path / "whole/journal.jsonl")
    later = [event["accuracy"] for event in events if event["event"] == "evaluation"]
    probe = whole.report["frozen_head"]["scores"]
    assert len(later) == 3 and max(later) < probe["accuracy"]  # so large a rate destroys the model
    assert whole.scores == probe
    selection = whole.report["selection"]
    assert (selection["step"], selection["evaluations"]) == (0, 3)
    assert "the best of 3 evaluations and the head solved before them by accuracy" in selection["note"]
    assert "which fine-tuning did not improve" in selection["note"]
    assert evaluate_directory(task, str(tmp_path / "whole"), Path(), device="cpu").scores == probe
    assert whole.report["advice"] is None  # of so few rows
    step = whole.report["next_step"]
    assert "after fine-tuning, which lost what the head had" in step["why"] and step["try"] == "learning_rate=0.12"
    for name, after in (("before a checkpoint", 1), ("after a checkpoint", 4)):
        with interrupted(after):
            finetune(task, start, Path(), tmp_path / name, changes, settings)
        resumed = finetune(task, start, Path(), tmp_path / name, changes, settings)
        assert weights_of(resumed) == weights_of(whole)
        assert resumed.report["selection"] == selection


def test_evaluation_that_equals_the_probe_takes_its_place(tmp_path):
    best = BestModel(tmp_path / "best")
    with new_directory(best.directory, replace=True) as directory:
        best.write_score(directory, {"accuracy": 80.0}, is_probe=True)
    assert not best.is_improved_by({"accuracy": 79.0})
    assert not best.is_improved_by({"accuracy": None})
    assert best.is_improved_by({"accuracy": 80.0})
    with new_directory(best.directory, replace=True) as directory:
        best.write_score(directory, {"accuracy": 80.0})
    assert not best.is_improved_by({"accuracy": 80.0})


def test_a_head_that_fine_tuning_spoils_is_said_with_a_lower_rate(pretrained, tmp_path, capsys, also_untrained):
    rows = [f"the {NOUNS[i % 2]} {PLAIN_WORDS[i % 7]} {i},{'ab'[i % 2]}" for i in range(120)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--dev", "0.3", "--model", str(pretrained)]
    spoiled = [*command, "--output", str(tmp_path / "run"), "select=last", "steps=6", "batch_size=4"]
    assert run([*spoiled, "learning_rate=0.5", "max_length=16", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    report = read_json_object(tmp_path / "run/results.json")
    lost = f"{report['frozen_head']['scores']['accuracy']:.1f} with the head solved first"
    assert lost in shown and "which lost what the head had" in shown
    assert report["next_step"]["try"] == "learning_rate=0.12, or --frozen"
    assert "try learning_rate=0.12, or --frozen" in shown and shown.count("--frozen") == 1
