"""Early stopping, class weights, a test set, a search over learning rates, and folds."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score
from tests.finetuning.conftest import NOUNS, PLAIN_WORDS, filled_in, weights_of
from tests.refusals import refusal
from tests.tiny import short_task

import albert
from albert.cli.main import run
from albert.columns.read import read_task
from albert.finetuning import sweep
from albert.finetuning.batches import balanced_weights
from albert.finetuning.fill_in import evaluation_interval
from albert.finetuning.selection import evaluations_without_gain
from albert.finetuning.sweep import folds_of
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges
from albert.report.advice import advice
from albert.runtime.errors import Diverged, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.json_files import read_journal, read_json_object
from albert.tasks.examples import IGNORE_INDEX
from albert.tasks.single_label import SingleLabel
from albert.tasks.table_task import TableTask, load_table_task
from albert.tasks.task import MAJORITY


@pytest.fixture
def table(tmp_path) -> Path:
    """60 texts about one of two nouns, three quarters of them about the first."""
    path = tmp_path / "rows.jsonl"
    rows = [
        {
            "text": f"the {NOUNS[i % 4 == 0]} and a {PLAIN_WORDS[8 + i % 8]} {i % 5}",
            "label": f"about {NOUNS[i % 4 == 0]}",
        }
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# --------------------------------------------------------------------------------------------------------------------
# Early stopping.

WORSE = short_task("sts-b", steps=40, batch_size=8, learning_rate=2e-2)
"""A task whose scores rise and fall again: the rate is far too high."""
PATIENT = FinetuningSettings(encode_pairs="together", device="cpu", evaluate_every=2, patience=2, checkpoint_every=3)


def test_run_ends_early_keeps_the_best_and_resumes_exactly(data, start, tmp_path, interrupted):
    whole = finetune(WORSE, start, data / "score", tmp_path / "whole", settings=PATIENT)
    steps = whole.report["training"]["steps"]
    assert steps < 40
    assert evaluations_without_gain("pearson", tmp_path / "whole/journal.jsonl") == 2
    assert whole.report["selection"]["by"] == "best"
    assert whole.report["selection"]["step"] == steps - 4
    assert any("stopped after 2 evaluations without a better score" in note for note in whole.report["notes"])
    assert any("pearson on the development set by step: 2: " in note for note in whole.report["notes"])
    with interrupted(5):
        finetune(WORSE, start, data / "score", tmp_path / "resumed", settings=PATIENT)
    resumed = finetune(WORSE, start, data / "score", tmp_path / "resumed", settings=PATIENT)
    assert weights_of(resumed) == weights_of(whole)
    assert resumed.report["training"]["steps"] == steps


def test_run_that_dies_after_its_early_end_takes_no_further_update(data, start, tmp_path, monkeypatch):
    def die(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("albert.finetuning.task_run.write_predictions", die)
        finetune(WORSE, start, data / "score", tmp_path / "run", settings=PATIENT)
    before = [record for record in read_journal(tmp_path / "run/journal.jsonl") if record["event"] == "evaluation"]
    result = finetune(WORSE, start, data / "score", tmp_path / "run", settings=PATIENT)
    after = [record for record in read_journal(tmp_path / "run/journal.jsonl") if record["event"] == "evaluation"]
    assert before == after
    assert result.report["training"]["steps"] == after[-1]["step"]


def test_patience_does_not_keep_the_last_model(data, start, tmp_path):
    settings = replace(PATIENT, select="last")
    with refusal(InvalidConfiguration, "patience"):
        finetune(WORSE, start, data / "score", tmp_path / "run", settings=settings)


def test_updates_follow_classes_and_evaluations_the_development_rows(table):
    task = read_task(TableTask(train=table, text="text", label="label")).task
    few = filled_in(task, rows=4900)
    many = filled_in(replace(task, target=SingleLabel(tuple(map(str, range(77))), "label")), rows=4900)
    assert few.updates < 24 * 77 <= many.updates
    assert evaluation_interval(many, 10) == -(-many.updates // 10)
    assert evaluation_interval(many, 100_000) > many.updates


# --------------------------------------------------------------------------------------------------------------------
# Class weights.


def test_balanced_weights():
    weights = balanced_weights(np.array([0, 0, 0, 1, IGNORE_INDEX]), 3)
    assert weights.tolist() == pytest.approx([2 / 3, 2.0, 1.0])
    of_labels = balanced_weights(np.array([[1, 0], [1, 0], [1, 0], [0, 0]], np.float32), 2)
    assert of_labels[:, 0].tolist() == pytest.approx([2.0, 2 / 3])
    assert of_labels[1, 1] == 1.0


def test_class_weights_change_a_run_and_are_part_of_its_identity(table, start, data, tmp_path):
    task = read_task(TableTask(train=table, text="text", label="label")).check().task
    changes = RecipeChanges(steps=2, batch_size=8, max_length=16)
    settings = FinetuningSettings(device="cpu", solve_head=False)
    plain = finetune(task, start, Path(), tmp_path / "plain", changes, settings)
    balanced = replace(settings, class_weights="balanced")
    weighted = finetune(task, start, Path(), tmp_path / "weighted", changes, balanced)
    assert weights_of(plain) != weights_of(weighted)
    assert plain.report["identity"]["recipe"] != weighted.report["identity"]["recipe"]
    assert plain.report["settings"]["class_weights"] is None
    with refusal(InvalidConfiguration, "class_weights"):
        finetune(WORSE, start, data / "score", tmp_path / "numbers", settings=balanced)


# --------------------------------------------------------------------------------------------------------------------
# Rare classes.


@pytest.fixture
def rare(tmp_path) -> Path:
    """100 texts, ten of them with another class."""
    path = tmp_path / "rare.csv"
    rows = [
        f"the {NOUNS[i % 10 == 0]} {PLAIN_WORDS[i % 8]} {i},{'lost' if i % 10 == 0 else 'found'}" for i in range(100)
    ]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


UNLEARNED = {"steps": 1, "learning_rate": 1e-9, "batch_size": 8, "solve_head": False, "device": "cpu"}


def test_f1_of_a_rare_class_decides(rare, pretrained, tmp_path, capsys):
    options = {"train": rare, "dev": rare, "model": pretrained, **UNLEARNED}
    result = albert.finetune(**options, output=tmp_path / "plain")
    assert list(result.scores) == ["f1 (lost)", "accuracy", "macro_f1"]
    assert "rows with a label have the label 'found'" in capsys.readouterr().err
    assert result.report["selection"]["metric"] == "f1 (lost)"
    assert result.report["advice"].startswith("f1 (lost)") and "class_weights=balanced" in result.report["advice"]
    assert any("for accuracy" in note and "'found'" in note for note in result.report["notes"])
    weighted = albert.finetune(**options, output=tmp_path / "weighted", class_weights="balanced")
    assert weighted.report["linear_baseline"]["method"] == "TF-IDF with balanced logistic regression"
    assert "class_weights" not in weighted.report["advice"]
    by_accuracy = albert.finetune(**options, output=tmp_path / "accuracy", metrics=["accuracy", "f1"])
    assert list(by_accuracy.scores) == ["accuracy", "f1 (lost)"]
    assert by_accuracy.report["advice"].startswith("f1 (lost)") and "--metrics f1" in by_accuracy.report["advice"]


def test_first_score_follows_the_share_of_the_most_frequent_class(tmp_path):
    def scores(*labels, **settings):
        path = tmp_path / "rows.csv"
        path.write_text("text,label\n" + "".join(f"a {i},{label}\n" for i, label in enumerate(labels)))
        task = TableTask(train=path, text="text", label="label", **settings)
        return read_task(task, hold_out=False).table_task.metrics

    assert scores(*"aaaaaaaab") == ("f1 (b)", "accuracy", "macro_f1")
    assert scores(*"aaab") == ("accuracy", "f1 (b)", "macro_f1")
    assert scores(*"aaaaaaaabc") == ("macro_f1", "accuracy")
    assert scores(*"aaaaaaaab", positive="a") == ("accuracy", "f1 (a)", "macro_f1")
    assert scores(*"aaaaaaaab", label_names={"a": "no", "b": "yes"}, positive="yes")[0] == "f1 (yes)"


# --------------------------------------------------------------------------------------------------------------------
# A test set, a search, folds.


def test_rates_are_compared_on_the_development_set_and_the_test_set_chooses_nothing(
    table, pretrained, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("albert.finetuning.probe.UNTRAINED_DEVIATION", 0.0)  # the encoder has random weights
    output = tmp_path / "run"
    command = ["sweep", "--train", str(table), "--text", "text", "--label", "label", "--model", str(pretrained)]
    command += ["--output", str(output), "--test", str(table), "steps=2", "batch_size=8", "--device", "cpu"]
    assert run([*command, "--rates", "1e-9", "1e-3"]) == 0
    shown = capsys.readouterr().out
    assert "rate 1e-09" in shown and "accuracy/test" in shown
    assert "TF-IDF" in shown
    summary = read_json_object(output / "summary.json")
    assert summary["simpler_models"]["TF-IDF with logistic regression"]["accuracy/test"] == 100.0
    assert "on the test set does not beat" in summary["advice"]
    assert summary["advice"] in shown
    assert summary["chosen"] in ("rate 1e-09", "rate 0.001")
    scores = {entry["name"]: entry["scores"]["accuracy"] for entry in summary["runs"]}
    assert scores[summary["chosen"]] == max(scores.values())
    results = read_json_object(output / "rate-0.001/results.json")
    assert set(results["further_baselines"]["test"]) == {
        "majority baseline",
        "TF-IDF with logistic regression",
        "frozen model with a linear head",
    }
    assert (output / "rate-0.001/predictions-test.jsonl").read_text().count("\n") == 60

    # The comparison is opened as its best run.
    directories = {entry["name"]: entry["directory"] for entry in summary["runs"]}
    assert run(["predict", str(output), "--input", str(table), "--device", "cpu"]) == 0
    assert f"{directories[summary['chosen']]}/model: " in capsys.readouterr().err
    assert albert.load(output).name.endswith(f"{directories[summary['chosen']]}/model")


def test_folds_are_scored_by_models_that_did_not_see_them(table, pretrained, tmp_path):
    result = albert.sweep(
        train=table, text="text", label="label", model=pretrained, output=tmp_path / "run", folds=3, steps=1,
        learning_rate=1e-9, solve_head=False, device="cpu",
    )  # fmt: skip
    assert result.model is None
    assert "mean and standard deviation of 3 folds" in repr(result)
    runs = [read_json_object(tmp_path / f"run/fold-{number}/results.json") for number in (1, 2, 3)]
    assert sum(run["evaluation"]["examples"] for run in runs) == 60
    assert all(run["training"]["examples"] + run["evaluation"]["examples"] == 60 for run in runs)
    assert result.scores["accuracy"] == pytest.approx(np.mean([run["scores"]["accuracy"] for run in runs]))
    linear = [run["linear_baseline"]["scores"]["accuracy"] for run in runs]
    with refusal(MissingInput, "fold-1"):
        albert.load(tmp_path / "run")
    assert result.baselines["TF-IDF with logistic regression"]["accuracy"] == pytest.approx(np.mean(linear))
    assert result.baselines[MAJORITY]["accuracy"] == pytest.approx(
        np.mean([run["baseline"]["accuracy"] for run in runs])
    )
    assert "TF-IDF with logistic regression, mean" in repr(result)
    answers = [json.loads(line) for line in (tmp_path / "run/predictions-out-of-fold.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == sorted((answer["id"] for answer in answers), key=int)
    assert len(answers) == 60 and {answer["fold"] for answer in answers} == {"fold 1", "fold 2", "fold 3"}
    right = 100 * np.mean([answer["prediction"] == answer["gold"] for answer in answers])
    assert result.scores["accuracy"] == pytest.approx(right)  # the folds are equally large
    advice = read_json_object(tmp_path / "run/summary.json")["advice"]
    assert f"TF-IDF with logistic regression ({np.mean(linear):.2f})" in advice
    assert advice.partition(":")[0] in repr(result)


def test_a_class_that_a_fold_lacks_is_said_and_all_answers_are_scored_together(pretrained, tmp_path, capsys, recwarn):
    """Two rows of a class, in two of three folds."""
    rows = [f"the {NOUNS[i % 2]} {PLAIN_WORDS[i % 7]} {i},{'ab'[i % 2]}" for i in range(58)] + ["x y,c", "z w,c"]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    files = ["--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--device", "cpu"]
    settings = ["steps=1", "learning_rate=1e-9", "batch_size=8", "solve_head=false"]
    assert run(["sweep", *files, *settings, "--output", str(tmp_path / "run"), "--folds", "3"]) == 0
    shown = capsys.readouterr().out
    assert not any("least populated" in str(warning.message) for warning in recwarn)
    runs = [read_json_object(tmp_path / f"run/fold-{number}/results.json") for number in (1, 2, 3)]
    lacking = [
        f"fold {number}"
        for number, each in enumerate(runs, 1)
        if not {c["class"]: c for c in each["per_class"]}["c"]["count"]
    ]
    assert len(lacking) == 1 and shown.count("has no row with the label 'c'") == 1
    assert f"{lacking[0]} has no row with the label 'c': of macro_f1, read the column together" in shown
    assert "no row has the label" not in shown
    answers = [json.loads(line) for line in (tmp_path / "run/predictions-out-of-fold.jsonl").read_text().splitlines()]
    gold, predicted = ([answer[key] for answer in answers] for key in ("gold", "prediction"))
    macro = 100 * f1_score(gold, predicted, average="macro", zero_division=0.0)
    summary = read_json_object(tmp_path / "run/summary.json")
    assert summary["together"]["macro_f1"] == pytest.approx(macro)
    assert summary["together"]["accuracy"] == pytest.approx(100 * np.mean(np.array(gold) == np.array(predicted)))
    assert f"{summary['together'][next(iter(summary['scores']))]:.2f} of all answers together" in shown
    assert re.search(r"^score +fold 1 .*deviation +together +majority", shown, re.M)


def test_evaluate_says_which_classes_do_not_count(pretrained, tmp_path, capsys):
    rows = [f"the {NOUNS[i % 3]} {i},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "part.csv").write_text("text,label\n" + "\n".join(row for row in rows if not row.endswith("c")) + "\n")
    albert.finetune(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "run", device="cpu", steps=1)
    capsys.readouterr()
    scored = [
        "evaluate",
        "--model",
        str(tmp_path / "run"),
        "--device",
        "cpu",
        "--predictions",
        str(tmp_path / "p.jsonl"),
    ]
    assert run([*scored, "--dev", str(tmp_path / "part.csv")]) == 0
    shown = capsys.readouterr().out
    answers = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert not any(answer["prediction"] == "c" for answer in answers)
    assert "'c': no row has the label, which does not count in macro_f1" in shown
    assert run([*scored, "--dev", str(tmp_path / "rows.csv")]) == 0
    assert "no row has the label" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["classification", "multi-label", "number", "tags", "choice", "span"])
def test_saved_answers_have_the_scores_of_their_run(kind, pretrained, tmp_path):
    """One fold's answers give the scores of its run again; answers in a text are scored by rows."""
    path = tmp_path / "rows.jsonl"
    rows = []
    for i in range(40):
        text = f"the {NOUNS[i % 3]} {PLAIN_WORDS[i % 7]} {i}"
        rows.append(
            {
                "classification": {"text": text, "label": "abc"[i % 3]},
                "multi-label": {"text": text, "label": ["a", "b"][: i % 3]},
                "number": {"text": text, "label": i / 7},
                "tags": {"words": text.split(), "tags": ["O", "B-X" if i % 2 else "O", "I-X" if i % 2 else "B-Y", "O"]},
                "choice": {"text": text, "one": "yes", "two": f"no {i}", "label": i % 2},
                "span": {"question": "which?", "context": text, "answer": NOUNS[i % 3]},
            }[kind]
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"choice": {"text": "text", "options": ["one", "two"], "label": "label", "question_length": 16}}.get(
        kind, {}
    )
    if kind in ("multi-label", "number"):
        options["kind"] = kind
    if kind == "span":
        options |= {
            "question": "question",
            "context": "context",
            "answer": "answer",
            "stride": 16,
            "question_length": 16,
        }
    result = albert.sweep(
        train=path, **options, model=pretrained, output=tmp_path / "run", folds=2, steps=1, learning_rate=1e-9,
        solve_head=False, device="cpu",
    )  # fmt: skip
    together = result.report.get("together", {})
    assert bool(together) is (kind != "span")
    for number in (1, 2):
        fold = read_json_object(tmp_path / f"run/fold-{number}/results.json")
        lines = (tmp_path / f"run/fold-{number}/predictions-dev.jsonl").read_text().splitlines()
        task = read_task(load_table_task(tmp_path / f"run/fold-{number}/task.json"), hold_out=False).task
        found = task.target.of_entries([json.loads(line) for line in lines])
        if kind == "span":
            assert found is None
        else:
            again = task.scores(*found)
            known = {name: value for name, value in fold["scores"].items() if name in again}
            assert known == pytest.approx(again, nan_ok=True)


def test_rows_with_the_same_text_are_in_one_fold_and_classes_are_even(table):
    read = read_task(TableTask(train=table, text="text", label="label"), hold_out=False)
    rows = read.tables["train"]
    fold = folds_of(read.task, rows, 4, seed=0)
    of_text = {}
    for row, number in zip(rows.rows, fold, strict=True):
        assert of_text.setdefault(row.text("text"), number) == number
    assert np.bincount(fold).min() > 5
    with refusal(InvalidConfiguration, "folds"):
        folds_of(read.task, rows, 1, seed=0)


@pytest.mark.parametrize(
    ("runs", "diverged", "others"),
    [
        (["--rates", "1e-4", "2e-4"], "rate-0.0001", "chosen: rate 0.0002"),
        (["--rates", "1e-4", "2e-4"], "rate-0.0002", "chosen: rate 0.0001"),
        (["--folds", "2"], "fold-1", "accuracy undefined"),
        (["--folds", "2"], "fold-2", "accuracy undefined"),
    ],
)
def test_a_run_that_diverges_is_named_beside_the_others(
    runs, diverged, others, table, pretrained, tmp_path, capsys, monkeypatch
):
    def finetune_or_diverge(task, start, data, output, *more):
        if output.name == diverged:
            raise Diverged("step 3", "the loss is nan")
        return finetune(task, start, data, output, *more)

    monkeypatch.setattr(sweep, "finetune", finetune_or_diverge)
    command = ["sweep", "--train", str(table), "--model", str(pretrained), "--output", str(tmp_path / "run")]
    assert run([*command, *runs, "steps=1", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert f"{diverged.replace('-', ' ')}: diverged: the loss is nan" in shown
    assert others in shown


def test_runs_are_removed_only_for_a_sweep_that_is_possible(table, pretrained, tmp_path, capsys):
    command = ["sweep", "--train", str(table), "--model", str(pretrained), "--output", str(tmp_path / "run")]
    command += ["steps=1", "--device", "cpu"]
    assert run([*command, "--seeds", "1"]) == 0
    for impossible in (["--seeds", "0"], ["--folds", "1000"], ["--rates", "1e-4"], ["--rates", "1e-4", "1e-4", "2e-4"]):
        assert run([*command, "--replace", *impossible]) == 78
        assert (tmp_path / "run/seed-0/results.json").exists()
    assert run([*command, "--folds", "2"]) == 73
    assert "--replace" in capsys.readouterr().err
    assert run([*command, "--folds", "2", "--replace"]) == 0
    assert not (tmp_path / "run/seed-0").exists()
    alone = ["finetune", *command[1:]]
    assert run(alone) == 73
    assert "holds the runs of several folds, not one" in capsys.readouterr().err
    assert run([*command, "--rates", "1e-4", "2e-4"]) == 73
    assert "holds the runs of several folds, not of several learning rates" in capsys.readouterr().err
    assert run([*command, "--rates", "1e-4", "2e-4", "--replace"]) == 0
    for other in (alone, [*command, "--seeds", "1"]):
        assert run(other) == 73
        assert "holds the runs of several learning rates, not" in capsys.readouterr().err
    assert run([*alone, "--replace"]) == 0
    assert not (tmp_path / "run/rate-0.0001").exists()


SWEEP = "sweep --train TABLE --text text --label label --model MODEL --output OUT"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (SWEEP, "albert sweep: does not say how the runs differ; give one of --seeds 5"),
        (f"{SWEEP} --seeds 2 --folds 2", "--folds: cannot be combined with --seeds; give one of them"),
        (f"{SWEEP} --rates 1e-4 2e-4 --folds 2", "--rates: cannot be combined with --folds"),
        (f"{SWEEP} --seeds 2 --rates 1e-4 2e-4", "--rates: cannot be combined with --seeds"),
        (f"{SWEEP} --folds 2 --dev TABLE", "--dev: cannot be combined with --folds, each fold is a development set"),
        (f"{SWEEP} --folds 2 --dev 0.2", "--dev: cannot be combined with --folds"),
        (f"{SWEEP} --rates 1e-4 2e-4 learning_rate=1e-3", "learning_rate: cannot be combined with --rates"),
        (f"{SWEEP} --rates 1e-4", "rates: are fewer than two different ones; such as --rates 1e-4 2.5e-4"),
        (f"{SWEEP} --rates", "--rates: needs a value"),
        (f"{SWEEP} --rates 1e-4 -1", "learning_rate: is -1, a number above 0"),
        (f"{SWEEP} --rates 1e-4 2e-4 1.0000001e-4", "rates: 0.0001 is there twice, to six digits; give each rate once"),
        (f"{SWEEP} --rates 2e-4 1e-4 2e-4", "rates: 0.0002 is there twice"),
        (f"{SWEEP} --rates 1e-4 2e-4 --frozen", "--rates: has no effect with --frozen"),
        (f"{SWEEP} --folds 1", "folds: is 1, from 2 to"),
        (f"{SWEEP} --seeds 0", "--seeds: is 0, at least 1 is needed"),
        (f"{SWEEP} --seeds many", "'many' is not a whole number"),
        (f"{SWEEP} --try 1e-4 2e-4", "albert sweep: --try: unknown option"),
        (f"{SWEEP} --seeds 2 --statistics-only", "--statistics-only: unknown option"),
        ("sweep --train TABLE --model MODEL --seeds 2", "--output: is missing; it is the directory of the runs"),
        ("sweep --model MODEL --output OUT --seeds 2", "albert sweep: no task"),
        ("sweep sst-2 --model MODEL --data DATA --output OUT --folds 2", "--folds: requires your tables"),
        ("sweep sst-2 --model MODEL --data DATA --output OUT --rates 1 2 --seeds 2", "--rates: cannot be combined"),
        ("sweep glue --model MODEL --data DATA --output OUT --seeds 2", "is a benchmark of several tasks: cola, sst-2"),
        ("sweep sst3 --model MODEL --data DATA --output OUT --seeds 2", "did you mean 'sst-2'"),
        (SWEEP.replace("sweep", "finetune") + " --seeds 2", "albert finetune: --seeds: unknown option"),
        (SWEEP.replace("sweep", "finetune") + " --try 1e-4 2e-4", "albert finetune: --try: unknown option"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_line(command, message, table, pretrained, tmp_path, capsys):
    paths = {"TABLE": table, "MODEL": pretrained, "DATA": tmp_path, "OUT": tmp_path / "run"}
    assert run([str(paths.get(word, word)) for word in command.split()]) in (2, 78)
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error and error.startswith("albert: error: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("keywords", "subject", "message"),
    [
        ({}, "albert.sweep", "give one of seeds=5"),
        ({"seeds": 2, "folds": 2}, "folds", "cannot be combined with seeds"),
        ({"folds": 2, "dev": "rows"}, "dev", "cannot be combined with folds"),
        ({"rates": [1e-4]}, "rates", "fewer than two different ones"),
        ({"rates": 1e-4}, "rates", "fewer than two different ones"),
        ({"try_rates": [1e-4, 2e-4]}, "albert.sweep: try_rates", "unknown keyword"),
    ],
)
def test_python_names_keywords_of_sweeps(keywords, subject, message, table, pretrained, tmp_path):
    files = {"dev": table} if "dev" in keywords else {}
    with refusal((UsageError, InvalidConfiguration), subject, message):
        albert.sweep(train=table, label="label", model=pretrained, output=tmp_path / "run", **keywords | files)


def test_macro_f1_selects_and_the_advice_looks_at_every_score_of_the_test_set(pretrained, tmp_path, capsys):
    """Classes of 77, 17 and 6 %; the words say which, so that the linear model knows them all."""
    names = [("lost", 6), ("late", 17), ("fine", 77)]
    rows = [f"the {NOUNS[at]} {PLAIN_WORDS[i % 8]} {i},{name}" for at, (name, n) in enumerate(names) for i in range(n)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows * 2) + "\n")
    files = {"train": tmp_path / "rows.csv", "dev": tmp_path / "rows.csv", "test": tmp_path / "rows.csv"}
    result = albert.finetune(**files, model=pretrained, output=tmp_path / "run", **UNLEARNED)
    assert "first score: macro_f1, because: 6.0% of all " in capsys.readouterr().err
    assert list(result.scores) == ["macro_f1", "accuracy"]
    assert result.report["selection"]["metric"] == "macro_f1"
    advised = result.report["advice"]
    assert advised.startswith("macro_f1") and "class_weights=balanced" in advised
    assert "; accuracy" in advised and advised.count("on the test set does not beat") == 2


def test_advice_looks_at_scores_that_do_not_decide():
    linear = "TF-IDF with logistic regression"
    simpler = {MAJORITY: {"accuracy": 77.0, "macro_f1": 29.0}, linear: {"accuracy": 87.0, "macro_f1": 63.7}}
    text = advice({"accuracy": 88.0, "macro_f1": 61.8}, simpler)
    assert text is not None
    assert text.startswith(f"macro_f1 61.80 does not beat {linear} (63.70), although accuracy does: use {linear}")
    assert advice({"accuracy": 88.0, "macro_f1": 64.0}, simpler) is None
    on_test = {"accuracy": 88.0, "macro_f1": 64.0, "accuracy/test": 88.0, "macro_f1/test": 61.8}
    simpler[linear] |= {"accuracy/test": 87.0, "macro_f1/test": 63.7}
    assert "macro_f1 61.80 on the test set does not beat" in (advice(on_test, simpler) or "")


def test_the_accuracy_of_tags_is_no_reason_for_another_model_where_entities_are_found():
    words = "word forms with logistic regression"
    scores = {"entity_f1": 38.3, "tag_accuracy": 91.6}
    assert advice(scores, {words: {"entity_f1": 14.0, "tag_accuracy": 92.8}}) is None
    found = advice({"tag_accuracy": 91.6}, {words: {"tag_accuracy": 92.8}})
    assert found is not None and found.startswith(f"tag_accuracy 91.60 does not beat the {words} (92.80)")
