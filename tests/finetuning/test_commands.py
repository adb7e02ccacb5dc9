"""`albert finetune` and `albert evaluate`: from files to scores, and errors in one line with their exit code."""

import json
import re
import shlex
from dataclasses import replace

import pytest
from tests.finetuning.conftest import NOUNS, SMALL

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.finetuning.fill_in import rate_for_width
from albert.model.albert import AlbertForPairClassification
from albert.runtime.json_files import read_journal, read_json_object
from albert.tables.split_files import SplitFiles, read_rows
from albert.tasks.glue import SST2
from albert.tasks.metrics import accuracy, f1
from albert.tasks.submission import DECLARED


def test_declared_task(command, data, tmp_path, capsys):
    assert run(command("SST-2", data / "choice", "run")) == 0
    out = capsys.readouterr().out
    assert "4 steps over 16 of 16 training rows" in out
    assert "newly initialised" not in out
    [loaded] = [event for event in read_journal(tmp_path / "run/journal.jsonl") if event["event"] == "model"]
    assert "newly initialised: classifier.weight, classifier.bias" in loaded["notes"]
    assert "majority baseline" in out and re.search(r"^accuracy +[\d.]+ +50\.00\b", out, re.MULTILINE)
    results, predictions = tmp_path / "scores.json", tmp_path / "p.jsonl"
    evaluate = ["evaluate", "sst2", "--model", str(tmp_path / "run"), "--data", str(data / "choice")]
    files = ["--results", str(results), "--predictions", str(predictions)]
    assert run([*evaluate, "--device", "cpu", *files]) == 0
    report = read_json_object(tmp_path / "run/results.json")
    assert read_json_object(results)["scores"] == report["scores"]
    assert report["recipe"]["max_length"] == 32
    assert len(predictions.read_text().splitlines()) == 16


def test_a_new_task_is_one_declaration(command, data, tmp_path, monkeypatch, capsys):
    """As docs/tour.md says: files, columns, target, metrics and recipe, and nothing else."""
    source = SplitFiles("choice", {"train": "train.tsv", "dev": "dev.tsv"}, lambda path, split: read_rows(path))
    task = replace(SST2, name="my-reviews", source=source, metrics=(f1, accuracy), published=())
    monkeypatch.setitem(DECLARED, task.name, task)
    assert run(command("my-reviews", data, "run")) == 0
    assert run(["evaluate", "My_Reviews", "--model", str(tmp_path / "run"), "--data", str(data)]) == 0
    assert read_json_object(tmp_path / "run/results.json")["scores"].keys() == {"f1", "accuracy"}
    assert run(command("my-review", data, "no")) == 2
    assert "did you mean 'my-reviews'" in capsys.readouterr().err


def test_several_seeds(command, data, tmp_path, capsys):
    options = ["--seeds", "2", "select=best", "evaluate_every=2"]
    assert run(["sweep", *command("sts-b", data / "score", "runs", *options)[1:]]) == 0
    out = capsys.readouterr().out
    assert "selection: the best of 2 evaluations by pearson on the development set" in out
    assert "seed 0" in out and "median" in out and "deviation" in out
    runs = read_json_object(tmp_path / "runs/summary.json")["runs"]
    assert [run["directory"] for run in runs] == ["seed-0", "seed-1"]
    for run_ in runs:
        assert run_["failure"] is None or f"{run_['name']}: {run_['failure']}" in " ".join(out.split())


def test_multiple_choice_with_groups_and_the_recipe_of_version_2(command, data, tmp_path, capsys):
    assert run(command("race-v2", data, "run", "question_length=8")) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("accuracy_middle", "accuracy_high", "--choose"))
    recipe = read_json_object(tmp_path / "run/recipe.json")["recipe"]
    assert (recipe["learning_rate"], recipe["encoder_dropout"]) == (rate_for_width(1e-5, 32), 0.0)


def test_further_splits_are_scored_if_their_files_exist(command, tmp_path, capsys):
    header = "index\tsentence1\tsentence2\tgold_label\n"
    rows = "".join(f"{i}\ta ship\tthe sea\t{label}\n" for i, label in enumerate(("neutral", "entailment") * 3))
    for name in ("train", "dev_matched"):
        (tmp_path / f"{name}.tsv").write_text(header + rows)
    assert run(command("mnli", tmp_path, "one")) == 0
    assert "dev_mismatched is not scored: " in capsys.readouterr().out
    (tmp_path / "dev_mismatched.tsv").write_text(header + rows)
    assert run(command("mnli", tmp_path, "two")) == 0
    assert re.search(r"^dev_mismatched +score +majority baseline", capsys.readouterr().out, re.MULTILINE)
    report = read_json_object(tmp_path / "two/results.json")
    assert report["further_scores"] == {"dev_mismatched": report["scores"]}
    assert len((tmp_path / "two/predictions-dev_mismatched.jsonl").read_text().splitlines()) == 6
    ax = "Premise\tHypothesis\tLabel\na ship\ta sea\tneutral\na ship\ta sea\tcontradiction\n"
    (tmp_path / "diagnostic-full.tsv").write_text(ax)
    assert run(["evaluate", "ax", "--model", str(tmp_path / "two"), "--data", str(tmp_path)]) == 0
    assert "matthews_correlation" in capsys.readouterr().out


@pytest.mark.parametrize("regression", [False, True])
def test_own_files(regression, pretrained, tmp_path):
    rows = "".join(f'"the ship, {word}",{stars}\n' for word, stars in (("good", 10), ("bad", 2)) * 4)
    path, output = tmp_path / "my.csv", str(tmp_path / "run")
    path.write_text("review,stars\n" + rows)
    dev = ["--dev", str(path), "--text", "review", "--label", "stars"]
    kind = ["--kind", "number"] if regression else []
    command = ["finetune", "--train", str(path), *dev, *kind, "--model", str(pretrained), "--output", output, *SMALL]
    assert run(command) == 0
    id2label = json.loads((tmp_path / "run/model/config.json").read_text())["id2label"]
    assert id2label == ({"0": "stars"} if regression else {"0": "2", "1": "10"})
    assert run(["evaluate", *dev, "--model", output, "--device", "cpu"]) == 0


SST2_RUN = "finetune sst-2 --model MODEL --data DATA --output OUT"
TEXT_PAIRS = "finetune-vectors --train TABLE --text a --pair b --model MODEL --output OUT"


@pytest.mark.parametrize(
    ("command", "codes", "message"),
    [
        ("finetune sst3 --model MODEL --data / --output OUT", (2,), "did you mean 'sst-2'"),
        ("finetune --model MODEL --output OUT", (2,), "no task"),
        ("finetune sst-2 --model MODEL --output OUT", (2,), "--data: is missing"),
        ("finetune sst-2 --model MODEL --data / --output OUT", (66,), "has no train.tsv"),
        ("finetune sst-2 --model absent/m --data / --output OUT", (66, 69), "no such directory"),
        ("finetune --train x.csv --model MODEL --output OUT", (66,), "x.csv: No such file"),
        ("finetune ax --model MODEL --data DATA --output OUT", (78,), "has no training set"),
        (f"{SST2_RUN} --text a", (2,), "own columns"),
        (f"{SST2_RUN} epochs=-1", (78,), "epochs: is -1, a number above 0"),
        (f"{SST2_RUN} epochs=1 steps=1", (2,), "say the same thing twice"),
        (f"{SST2_RUN} span_head=joint", (2,), "span_head: requires a task whose answers are spans"),
        (f"{SST2_RUN} question_length=8", (2,), "question_length: requires a task with questions, sst-2 has none"),
        (f"{SST2_RUN} stride=4", (2,), "stride: requires a task whose answers are spans, sst-2 has none"),
        ("finetune --train TABLE --data / --model MODEL --output OUT", (2,), "--data: requires a declared task"),
        # Changes of the model.
        (f"{SST2_RUN} keep_head=true", (78,), "has no head to keep"),
        (f"{SST2_RUN} keep_head=true init=random", (2,), "keep_head: and init=random contradict each other"),
        (f"{SST2_RUN} architecture.sharing=some", (2,), "albert finetune: "),
        (f"{SST2_RUN} architecture.num_hidden_groups=5", (78,), "num_hidden_groups: 5 groups for 2 layers"),
        (f"{SST2_RUN} --extend-position", (2,), "unknown option; did you mean architecture.extend_positions=true?"),
        # Exits, teachers and frozen encoders.
        (f"{SST2_RUN} --teacher nowhere/at/all", (66,), "nowhere/at/all"),
        (f"{SST2_RUN} distillation.weight=0.3", (2,), "distillation.weight: requires --teacher"),
        (f"{SST2_RUN} --teacher-revision v2", (2,), "write OWNER/NAME@REVISION as the teacher"),
        (f"{SST2_RUN} freeze_encoder=true encoder_dropout=0.1", (2,), "has no effect with freeze_encoder"),
        # Benchmarks.
        ("finetune glue --model MODEL --output OUT", (2,), "task glue: is a benchmark of several tasks: cola, sst-2"),
        ("evaluate GLUE --model MODEL --data DATA", (2,), "name one of them; in a checkout python -m experiments.glue"),
        # Contrastive learning.
        (f"{TEXT_PAIRS} --pair reply", (65,), "has no column 'reply'"),
        (f"{TEXT_PAIRS} --pair None", (2,), "--pair: is missing: the columns of the two texts must be named"),
        (f"{TEXT_PAIRS} temperature=0", (78,), "temperature: is 0, a number above 0 is needed"),
        (f"{TEXT_PAIRS} batch_size=1", (78,), "batch_size: 1 leaves a process fewer than 2 pairs"),
        (f"{TEXT_PAIRS} --dev 0.9", (78,), "too few"),
        (f"{TEXT_PAIRS} --dev 0", (2,), "--dev: is 0; give a share above 0 and below 1, or a file"),
        (f"{TEXT_PAIRS} --teacher MODEL", (2,), "--pair: is about pairs of texts"),
        # Evaluation.
        ("evaluate sst-2 --model MODEL --data DATA", (78,), "has no head for this task"),
        ("evaluate sst-2 --model MODEL", (2,), "--data: is missing"),
        ("evaluate --model MODEL", (78,), "without a head for a task; albert finetune trains a model with a head"),
        ("evaluate pretraining --model MODEL", (2,), "--data: is missing"),
        ("evaluate sst-2 --model PAIRS --data DATA", (78,), "compares two texts"),
        ("predict PAIRS --classify ship", (2,), "was trained on pairs of texts"),
        # Pairs of texts.
        (f"{SST2_RUN} encode_pairs=separately", (78,), "needs pairs of texts, sst-2 has none"),
        (
            "finetune sts-b --data / --model PAIRS --output OUT encode_pairs=together keep_head=true",
            (78,),
            "reads pairs separately",
        ),
    ],
)
def test_errors_are_one_line_with_their_exit_code(
    command, codes, message, data, pretrained, config, tokenizer_directory, tmp_path, capsys
):
    pairs, empty, table = (tmp_path / name for name in ("pairs", "empty", "table.csv"))
    paths = {"MODEL": pretrained, "DATA": data / "choice", "OUT": tmp_path / "run", "EMPTY": empty, "PAIRS": pairs}
    paths["TABLE"] = table
    empty.mkdir()
    table.write_text("a,b\n" + "".join(f"question {i},answer {i}\n" for i in range(8)))
    if "PAIRS" in command:
        save_model_directory(pairs, AlbertForPairClassification(config, 2), tokenizer_directory)
    code = run([str(paths.get(word, word)) for word in shlex.split(command)])
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error and error.startswith("albert: error: ")
    assert code in codes
    assert not (tmp_path / "run").exists()


TABLES = {
    "two classes": ("text,label\n", [f"the ship {i} and {NOUNS[i % 7]},{'ab'[i % 2]}" for i in range(400)]),
    "numbers": ("text,label\n", [f"the ship {i} and {NOUNS[i % 7]},{i / 8}" for i in range(400)]),
    "tags": ("", [f"Anna B-PER\nsaw O\nthe O\n{NOUNS[i % 7]} O\nof O\nRome B-LOC\n{i} O\n" for i in range(150)]),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_a_run_prints_before_its_scores_fits_on_half_a_screen(name, pretrained, tmp_path, capsys):
    head, rows = TABLES[name]
    path = tmp_path / ("rows.conll" if name == "tags" else "rows.csv")
    path.write_text(head + "\n".join(rows) + "\n")
    command = ["finetune", "--train", str(path), "--model", str(pretrained), *SMALL, "--output", str(tmp_path / "run")]
    command += [] if name == "tags" else ["--label", "label"]
    assert run(command) == 0
    constant = "best constant" if name == "numbers" else "majority baseline"
    before = capsys.readouterr().out.partition(constant)[0].splitlines()
    assert len(before) <= 20, "\n".join(before)
    assert before[0].split()[:2] == ["inferred", "is"]


def test_numbers_are_compared_with_the_best_constant_everywhere(pretrained, tmp_path, capsys):
    head, rows = TABLES["numbers"]
    (tmp_path / "rows.csv").write_text(head + "\n".join(rows) + "\n")
    output = tmp_path / "run"
    model = ["--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--label", "label", *SMALL]
    assert run(["finetune", *model, "--test", str(tmp_path / "rows.csv"), "--output", str(output)]) == 0
    evaluate = ["evaluate", "--model", str(output), "--results", str(tmp_path / "e.json")]
    assert run([*evaluate, "--report", str(tmp_path / "e.html")]) == 0
    assert run(["sweep", *model, "--output", str(tmp_path / "seeds"), "--seeds", "1"]) == 0
    shown = capsys.readouterr().out
    files = ("run/results.json", "run/report.html", "run/model/README.md", "e.json", "e.html", "seeds/summary.json")
    for text in (shown, *((tmp_path / name).read_text() for name in files)):
        assert "best constant" in text and "majority" not in text
    assert "together" not in shown  # one model


def test_help_begins_with_a_table_of_ones_own(capsys):
    with pytest.raises(SystemExit):
        run(["finetune", "--help"])
    shown = capsys.readouterr().out
    assert shown.index("your table") < shown.index("declared task")
    assert "--train my.csv" in shown.partition("Example")[2].splitlines()[1]
