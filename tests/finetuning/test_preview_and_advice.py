"""What is said about the rows before training, and about the scores after it."""

import html
import json
import re

import pytest

import albert
from albert.cli.main import run
from albert.columns.read import read_task
from albert.runtime.json_files import read_json_object
from albert.runtime.progress import Bar
from albert.tasks.table_task import TableTask
from albert.text.unknown import is_english

UNLEARNED = {"steps": 1, "learning_rate": 1e-9, "batch_size": 8, "solve_head": False, "device": "cpu"}


def test_shares_of_several_labels_are_of_the_rows(pretrained, tmp_path, capsys):
    rows = [f"the ship {i},{int(i % 2 == 0)},{int(i % 4 == 0)},0" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,toxic,rude,threat\n" + "\n".join(rows) + "\n")
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--text", "text", "--model", str(pretrained)]
    assert run([*command, "--label", "toxic", "rude", "threat", "--dev", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "inferred" in shown and "multi-label" in shown and "--kind", "classification" in shown
    assert "no row has the label threat" in shown
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines() if line}
    assert lines["threat"][1:5] == ["0", "0.0%", "0", "0.0%"]
    toxic = lines["toxic"]
    assert float(toxic[2].rstrip("%")) == pytest.approx(100 * int(toxic[1]) / 20)
    empty = lines["(no label)"]
    assert int(empty[2]) == 20 - int(toxic[1]) and int(empty[4]) == 20 - int(toxic[3])  # those with toxic have all


def test_different_texts_are_counted_as_folds_count_them(pretrained, tmp_path, capsys, refused):
    rows = [f'"the ship {i % 9}{" " * (i % 2)}",{"ab"[i % 2]}' for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    assert run(["finetune", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained)]) == 0
    assert "9 different texts" in capsys.readouterr().out
    folds = ["sweep", "--folds", "1", "--train", tmp_path / "rows.csv", "--model", pretrained]
    refused([*folds, "--output", tmp_path / "sweep"], 78, "from 2 to 9 are possible (different texts)")


def test_few_different_texts_are_said(pretrained, tmp_path, capsys):
    rows = [f"the ship {i % 12},{'ab'[i % 2]}" for i in range(240)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    result = albert.finetune(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "run", **UNLEARNED)
    said = capsys.readouterr().err
    assert "dev: 40 rows have 2 different texts" in said and "17% are held out" in said
    assert any("2 different texts in 40 rows" in note for note in result.report["notes"])


def test_rows_whose_texts_differ_in_blanks_around_them_stay_together(pretrained, tmp_path, capsys):
    labels = ("Billing", "billing", "billing", "bug")
    plain = [(f"the ship {i % 40}", labels[i % 4]) for i in range(480)]
    blanks = ["{}", " {}", "{}\t", "  {} "]
    padded = [(blanks[i % 7 % 4].format(text), label) for i, (text, label) in enumerate(plain)]
    held_out = {}
    for name, rows in {"plain": plain, "padded": padded}.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
        tables = read_task(TableTask(train=path, text="text", label="label")).tables
        train = {row.fields["text"].strip() for row in tables["train"].rows}
        assert not any(row.fields["text"].strip() in train for row in tables["dev"].rows)
        held_out[name] = [row.identifier for row in tables["dev"].rows]
    assert held_out["padded"] == held_out["plain"]
    result = albert.finetune(train=tmp_path / "padded.csv", model=pretrained, output=tmp_path / "run", **UNLEARNED)
    said = capsys.readouterr().err
    n_dev = len(held_out["plain"])
    n_train = 480 - n_dev
    assert f"train: {n_train} rows have {n_train // 12} different texts" in said
    assert any(f"{n_dev // 12} different texts in {n_dev} rows" in note for note in result.report["notes"])
    similar = "the labels 'Billing' and 'billing' are different classes"
    assert any(note.startswith(similar) for note in result.report["notes"])
    page = html.unescape((tmp_path / "run/report.html").read_text())
    assert similar in page


def test_the_first_score_of_rare_classes_is_explained(tmp_path):
    rows = ["the ship,bug"] * 90 + ["the bill,billing"] * 90 + ["fine,praise"] * 15 + ["the card,Billing"] * 2
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    task = TableTask(train=tmp_path / "rows.csv", text="text", label="label")
    inferred = {each.what: each for each in read_task(task, hold_out=False).inferred}
    assert inferred["first score"].value == "macro_f1"
    why = inferred["first score"].why
    assert (
        re.match(r"7\.6% of all \d+ rows with a label have the label 'praise'", why)
        and "fewer than 10 rows do not count" in why
    )


def test_few_development_rows_and_another_language(pretrained, tmp_path):
    rows = [f"der Hund und das Schiff nummer {i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    options = {"train": tmp_path / "rows.csv", "model": pretrained, **UNLEARNED}
    notes = albert.finetune(**options, output=tmp_path / "run").report["notes"]
    assert any("albert sweep --folds 5" in note for note in notes)
    albert.sweep(**options, output=tmp_path / "folds", folds=2)
    assert not any("--folds" in note for note in read_json_object(tmp_path / "folds/fold-1/results.json")["notes"])
    german = [row.partition(",")[0] for row in rows]
    english = [f"what was the name of the ship that they saw, number {i}" for i in range(40)]
    assert is_english(english)
    assert not is_english(german)
    assert not is_english(english + german) and not is_english(german * 300 + english * 300)
    assert not is_english(["他 的 船 在 海 上"] * 10)
    assert not is_english(english + ["это был очень хороший корабль в море"] * 40)


def test_names_of_tags_say_whether_they_are_entities(pretrained, tmp_path):
    rows = [{"tokens": ["the", "ship", "Anna", str(i)], "tags": [0, 0, 1, 2]} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TableTask(train=tmp_path / "rows.jsonl", words="tokens", tags="tags")
    plain = read_task(task, hold_out=False)
    assert plain.table_task.metrics == ("word_scores",)
    result = albert.finetune(
        train=tmp_path / "rows.jsonl", dev=tmp_path / "rows.jsonl", words="tokens", tags="tags", model=pretrained,
        label_names=["0=O", "1=B-PER", "2=I-PER"], output=tmp_path / "run", frozen=True, device="cpu",
    )  # fmt: skip
    assert result.scores["entity_f1"] == 100.0
    constant, linear = result.baselines.values()
    assert linear["entity_f1"] == 100.0
    assert constant == {"entity_f1": 0.0, "entity_precision": 0.0, "entity_recall": 0.0, "tag_accuracy": 50.0}
    first = json.loads((tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()[0])
    assert first["gold"] == ["0", "0", "1", "2"]
    assert first["entities"] == [{"type": "PER", "start": 2, "end": 4}]
    evaluated = albert.evaluate(model=str(tmp_path / "run"), dev=tmp_path / "rows.jsonl", device="cpu")
    assert evaluated.scores["entity_f1"] == 100.0


def test_progress_of_training_says_accuracy(pretrained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Bar, "every", 0.0)
    monkeypatch.setattr(Bar, "first_after", 0.0)
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"the ship {i},{'ab'[i % 2]}\n" for i in range(40)))
    albert.finetune(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "run", **UNLEARNED)
    shown = capsys.readouterr().err
    assert re.search(r" accuracy [\d.]+% in training,", shown)
    assert "choice" not in shown


def test_majority_baseline_of_tags_tries_every_tag(pretrained, tmp_path):
    """Sentences of one rare entity: its tag for every word is right there, and `O` and the frequent `I-` are not."""
    rows = [{"tokens": ["the", "ship", "saw", "Anna"], "tags": ["B-A", "I-A", "I-A", "O"]} for _ in range(8)]
    rows += [{"tokens": ["Anna"], "tags": ["B-C"]} for _ in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train": tmp_path / "rows.jsonl", "dev": tmp_path / "rows.jsonl"}
    result = albert.finetune(**files, model=pretrained, output=tmp_path / "run", **UNLEARNED)
    constant = result.baselines["majority baseline"]
    found = 8 * 4 + 6  # `B-C` for every word is an entity for each of them
    assert constant["entity_f1"] == pytest.approx(100 * 2 * 6 / (found + 14))
    assert constant["entity_recall"] == pytest.approx(100 * 6 / 14)


def test_rows_with_an_empty_text_are_left_out_with_a_count(pretrained, tmp_path, capsys):
    texts = ["" if i % 4 == 0 else " \t" if i % 4 == 1 else f"the ship {i}" for i in range(80)]
    rows = "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--device", "cpu"]
    command += ["steps=1", "batch_size=8", "solve_head=false", "--test", str(tmp_path / "rows.csv")]
    for seed in (0, 1):
        output = tmp_path / f"run{seed}"
        assert run([*command, f"seed={seed}", "--output", str(output)]) == 0
        shown = capsys.readouterr().out
        line = next(line for line in shown.splitlines() if line.startswith("train: 36 rows"))
        assert "36 rows, 4 kept back for dev, 40 left out (no text)" in line
        assert "40 rows without text" not in shown  # it was said
        for page in ("report.html", "model/README.md"):
            assert "training: 40 rows without text left out" in (output / page).read_text()
        results = read_json_object(output / "results.json")
        assert (results["training"]["rows"], results["evaluation"]["examples"]) == (36, 4)  # whatever the seed
        assert len((output / "predictions-test.jsonl").read_text().splitlines()) == 40
        assert all(error["text"].startswith("the ship") for error in results["errors"])
    capsys.readouterr()
    assert run(["evaluate", "--model", str(output), "--dev", str(tmp_path / "rows.csv"), "--device", "cpu"]) == 0
    assert "40 rows without text left out" in capsys.readouterr().out
    assert run(["predict", str(output), "--input", str(tmp_path / "rows.csv"), "--device", "cpu"]) == 0
    predicted = capsys.readouterr()
    assert len(predicted.out.splitlines()) == 80 and "40 of 80 texts are empty" in predicted.err


@pytest.mark.parametrize("kind", ["classes", "several labels", "numbers"])
def test_an_error_of_repeated_rows_is_shown_once(kind, pretrained, tmp_path):
    labels = {"classes": "ab", "several labels": (["a"], ["b"]), "numbers": (1.5, 7.5)}[kind]
    rows = [{"text": f"the ship {i}", "label": labels[i % 2]} for i in range(12)]
    dev = [{"text": "the sea", "label": label} for label in labels] * 6
    result = albert.finetune(
        train=rows, dev=dev, model=pretrained, text="text", label="label", output=tmp_path / "run", **UNLEARNED
    )
    shown = [(each["text"], str(each["gold"])) for each in result.errors]
    assert 0 < len(shown) == len(set(shown)) <= 2


def test_rows_without_a_label_are_said_once(pretrained, tmp_path, capsys):
    rows = "".join(f"the ship {i},{'' if i % 10 == 0 else 'ab'[i % 2]}\n" for i in range(80))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--device", "cpu"]
    command += ["steps=1", "batch_size=8", "solve_head=false", "--output", str(tmp_path / "run")]
    assert run(command) == 65
    shown = "".join(capsys.readouterr())
    assert shown.count("reading.drop_unlabelled=true") == 1 and "rows.csv:2: empty label" in shown
    assert run([*command, "reading.drop_unlabelled=true"]) == 0
    shown = capsys.readouterr().out
    assert "8 left out (no label)" in shown and "without a label" not in shown
    assert "training: 8 rows without a label left out" in (tmp_path / "run" / "model" / "README.md").read_text()
    assert run([*command, "reading.drop_unlabelled=true"]) == 0  # complete: nothing was said before
    assert "training: 8 rows without a label left out" in capsys.readouterr().out


def test_a_table_without_any_text_is_refused(pretrained, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("text,label\n" + " ,a\n,b\n" * 20)
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--text", "text"]
    assert run([*command, "--output", str(tmp_path / "run")]) != 0
    assert "every text in column 'text' is empty" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_pairs_with_one_text_are_kept_and_an_empty_text_is_shown_as_one(pretrained, tmp_path):
    rows = [{"a": f"the ship {i}", "b": "" if i % 2 else "it sank", "label": "xy"[i % 3 > 0]} for i in range(40)]
    rows += [{"a": "", "b": " ", "label": "x"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train": tmp_path / "rows.jsonl", "dev": tmp_path / "rows.jsonl", "text": "a", "pair": "b"}
    report = albert.finetune(**files, model=pretrained, output=tmp_path / "run", **UNLEARNED).report
    assert (report["training"]["rows"], report["evaluation"]["rows_without_text"]) == (40, 1)
    assert any(error["text"].endswith("\n(empty text)") for error in report["errors"])
    assert "(empty text)" in (tmp_path / "run/report.html").read_text()


def test_the_line_of_the_solved_head_is_printed_once_with_the_name_of_the_score(tmp_path, capsys):
    rows = [f"the ship {i},bug" for i in range(45)] + [f"the storm {i},billing" for i in range(45)]
    rows += [f"the captain {i},praise" for i in range(12)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", "tiny", "--device", "cpu"]
    assert run([*command, "steps=1", "max_length=16", "--output", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("head solved on frozen features: macro_f1 ") == 1
    assert (shown.out + shown.err).count("head solved on frozen features") == 1


def test_what_a_run_prints_before_its_scores_fits_on_half_a_screen(tmp_path, capsys):
    """How the model was loaded is in the journal."""
    rows = [f"the ship {i},{['bug', 'billing', 'praise'][i % 3]}" for i in range(90)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", "tiny", "--device", "cpu"]
    assert run([*command, "steps=1", "max_length=16", "--output", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    before = lines[: next(number for number, line in enumerate(lines) if "majority baseline" in line)]
    assert 10 < len(before) <= 25
    assert not [line for line in before if "manifest" in line or "newly initialised" in line]
    assert "newly initialised" in (tmp_path / "run" / "journal.jsonl").read_text()


def test_rows_without_a_text_have_no_part_in_the_first_score(tmp_path):
    rows = [f"the ship {i},{'bug' if i % 2 else 'billing'}" for i in range(80)] + [" ,bug"] * 400
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    read = read_task(TableTask(train=tmp_path / "rows.csv", text="text", label="label"), hold_out=False)
    assert "first score" not in {each.what for each in read.inferred}
    assert read.tables["train"].counts["rows_without_text"] == 400


SEEN = "the model was trained on: these scores do not hold for other rows"


def test_rows_that_were_trained_on_are_said_beside_the_scores(pretrained, tmp_path, capsys):
    rows = [f"the ship {i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "few.csv").write_text("text,label\n The  SHIP 3,b\nthe ship 77,b\n")
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--device", "cpu"]
    command += ["steps=1", "learning_rate=1e-9", "batch_size=8", "solve_head=false"]
    files = ["--dev", str(tmp_path / "rows.csv"), "--test", str(tmp_path / "few.csv")]
    assert run([*command, *files, "--output", str(tmp_path / "seen")]) == 0
    shown = capsys.readouterr().out
    assert "40 of 40 rows of dev have a text that was trained on: these scores do not hold for other rows" in shown
    assert "1 of 2 rows of test has a text that was trained on" in shown
    assert run([*command, "--output", str(tmp_path / "held-out")]) == 0
    assert "a text that was trained on" not in capsys.readouterr().out


def test_evaluate_says_which_rows_of_the_training_file_it_scores(pretrained, tmp_path, capsys):
    rows = [f"the ship {i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "copy.csv").write_bytes((tmp_path / "rows.csv").read_bytes())
    (tmp_path / "dev.csv").write_text("text,label\n" + "\n".join(f"a storm {i},{'ab'[i % 2]}" for i in range(8)) + "\n")
    mixed = [*(f"  THE  ship {i},a" for i in range(3)), *(f"a cloud {i},b" for i in range(9)), " ,b"]
    (tmp_path / "mixed.csv").write_text("label,text\n" + "".join(f"{row[-1]},{row[:-2]}\n" for row in mixed))
    (tmp_path / "new.csv").write_text("text,label\nanother,a\nthe ship,b\n")
    held_out = albert.finetune(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "a", **UNLEARNED)
    files = {"train": tmp_path / "rows.csv", "dev": tmp_path / "dev.csv"}
    with_dev = albert.finetune(**files, model=pretrained, output=tmp_path / "b", **UNLEARNED)
    for model, seen in ((held_out.model, 36), (with_dev.model, 40)):
        line = f"{seen} of 40 rows have a text of {tmp_path / 'rows.csv'}, which {SEEN}"
        capsys.readouterr()
        assert run(["evaluate", "--model", str(model), "--dev", str(tmp_path / "copy.csv")]) == 0
        shown = capsys.readouterr()
        assert line in shown.out.splitlines() and "trained on" not in shown.err
        assert albert.evaluate(model=str(model), dev=tmp_path / "copy.csv").report["reading"] == [line]
        assert capsys.readouterr().err.count(f"albert: note: {line}\n") == 1
        # Without the difference in blanks and capitals; the row without a text is not scored.
        rows_seen = albert.evaluate(model=str(model), dev=tmp_path / "mixed.csv").report["reading"]
        assert f" of 12 rows have a text of {tmp_path / 'rows.csv'}, which {SEEN}" in rows_seen[-1]
        assert "reading" not in albert.evaluate(model=str(model), dev=tmp_path / "new.csv").report
    report = albert.evaluate(model=str(held_out.model)).report
    assert report["reading"] == [f"the rows of {tmp_path / 'rows.csv'} that were held out of training"]
    assert "reading" not in albert.evaluate(model=str(with_dev.model)).report


def test_evaluate_says_nothing_of_a_training_file_that_is_gone_or_was_changed(pretrained, tmp_path, capsys):
    rows = [f"the ship {i},{'ab'[i % 2]}" for i in range(40)]
    for name in ("rows.csv", "copy.csv"):
        (tmp_path / name).write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "part.csv").write_text("text,label\n" + "\n".join(rows[:9]) + "\n")
    found = albert.finetune(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "a", **UNLEARNED)
    for change in ("text,label\nother,a\n", None):
        (tmp_path / "rows.csv").write_text(change) if change else (tmp_path / "rows.csv").unlink()
        assert "reading" not in albert.evaluate(model=str(found.model), dev=tmp_path / "part.csv").report
        (line,) = albert.evaluate(model=str(found.model), dev=tmp_path / "copy.csv").report["reading"]
        assert line == f"{tmp_path / 'copy.csv'} is the file that {SEEN}"


def test_evaluate_counts_seen_rows_of_pairs_and_words_and_before_tables_of_depths(pretrained, tmp_path, capsys):
    pairs = [{"a": f"ship {i}", "b": f"storm {i}", "label": "xy"[i % 2]} for i in range(20)]
    words = [{"words": ["the", f"ship{i}"], "tags": ["O", "B-X"]} for i in range(20)]
    for name, rows, columns in (
        ("pairs", pairs, {"text": "a", "pair": "b", "label": "label"}),
        ("words", words, {"words": "words", "tags": "tags"}),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / f"{name}-4.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
        files = {"train": tmp_path / f"{name}.jsonl", "dev": tmp_path / f"{name}.jsonl"}
        albert.finetune(**files, **columns, model=pretrained, output=tmp_path / name, **UNLEARNED)
        line = f"4 of 4 rows have a text of {tmp_path / name}.jsonl, which {SEEN}"
        typed = ["evaluate", "--model", str(tmp_path / name), "--dev", str(tmp_path / f"{name}-4.jsonl")]
        assert run(typed) == 0 and line in capsys.readouterr().out.splitlines()
        assert run([*typed, "--depth", "1", "2"]) == 0 and f"albert: note: {line}\n" in capsys.readouterr().err


def test_evaluate_asks_for_rows_that_it_cannot_find_again(pretrained, tmp_path, refused):
    rows = [f"the ship {i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    albert.sweep(train=tmp_path / "rows.csv", model=pretrained, output=tmp_path / "folds", folds=2, epochs=0.1)
    fold = tmp_path / "folds" / "fold-1"
    refused(["evaluate", "--model", fold], 2, "--dev", "which rows of", "rows.csv", "fold", "predictions-dev.jsonl")
    refused(lambda: albert.evaluate(model=str(fold)), 2, "dev", "which rows of")
    assert run(["quantize", str(fold), "--output", str(tmp_path / "int8")]) == 0
    refused(["evaluate", "--model", tmp_path / "int8"], 2, "--dev", "is a copy of a model", "rows.csv")
    assert run(["evaluate", "--model", str(tmp_path / "int8"), "--dev", str(tmp_path / "rows.csv")]) == 0
