"""`albert predict` prints one prediction as a table or as JSON lines."""

import json
import shlex
from dataclasses import replace

import pytest

from albert.cli.commands import predict_main as main
from albert.inference.predictor import Predictor
from albert.runtime.errors import InvalidConfiguration, UsageError

CONTEXT, PAIR, WORDS = "--context Ada.", "'He came.' 'He saw.'", ["He", "saw,", "."]


@pytest.mark.parametrize(
    ("kind", "arguments", "method", "key"),
    [
        ("pretraining", f"--order {PAIR}", lambda p: [p.order("He came.", "He saw.")], "label"),
        (
            "classification",
            "--classify 'He came.' --pair 'He saw.'",
            lambda p: p.classify("He came.", "He saw."),
            "label",
        ),
        ("question_answering", f"--question Who? {CONTEXT} --top-k 2", lambda p: p.answer("Who?", "Ada.", 2), "answer"),
        (
            "multiple_choice",
            f"{CONTEXT} --question Did? --choose a b",
            lambda p: p.choose("Ada.", ["a", "b"], "Did?"),
            "option",
        ),
        ("token_classification", "--tag 'He came.'", lambda p: p.tag("He came."), "entity"),
        ("token_classification", "--tag 'He  saw, .' --words", lambda p: p.tag_sentences([WORDS])[0], "word"),
    ],
)
def test_prediction_is_that_of_the_method(kind, arguments, method, key, saved, capsys):
    labelled = kind.endswith("classification")
    path = str(saved(kind, 3, id2label={0: "O", 1: "[B-X]", 2: "I-X"}) if labelled else saved(kind))
    expected, arguments = method(Predictor.open(path, "cpu")), shlex.split(arguments)
    assert main([path, *arguments, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == expected
    assert main([path, *arguments]) == 0
    shown = capsys.readouterr().out
    assert all(entry[key] in shown for entry in expected)


def test_masks_are_filled(saved, capsys):
    path = str(saved("pretraining"))
    assert main([path, "--fill-mask", "The [MASK] sat.", "--top-k", "3"]) == 0
    shown = capsys.readouterr().out
    assert "sequence" in shown and shown.count("sat.") == 3
    main([path, "--fill-mask", "The [MASK] sat on [MASK].", "--top-k", "2", "--json"])
    masks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(mask) for mask in masks] == [2, 2]
    assert masks[0][0].keys() == {"score", "token", "token_str", "sequence"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--classify", "a", "--fill-mask", "b"], "--fill-mask, --classify together"),
        (["--question", "a"], "give --context"),
        (["--context", "a", "--classify", "b"], "--context: requires --question or --choose"),
        (["--choose", "a", "b"], "--choose: needs a text to answer from; give --context"),
        (["--choose", "a", "--context", "b"], "needs at least two options"),
        (["--choose", "a", "b", "--tag", "c"], "--tag, --choose together"),
        (["--pair", "a", "--fill-mask", "b"], "--pair: requires --classify"),
        (["--output", "a", "--classify", "b"], "--output: requires --input"),
        (["--input", "a.jsonl", "--output", "b.tsv"], "b.tsv: unknown kind of output; use .jsonl, .csv"),
        (["--classify", "a", "--top-k", "3"], "--top-k: requires --fill-mask or --question or --input"),
        (["--tag", "a", "--text-field", "b"], "--text: requires --input, not --tag"),
        (["--classify", "a", "--normalize"], "--normalize: requires --input, not --classify"),
        (["--input", "a.jsonl", "--options-field"], "names no field"),
        (["--classify", "a", "--words"], "--words: requires --tag or --input, not --classify"),
        (["--input", "a.txt", "--task", "embed", "--words"], "--words: requires --task tag, not embed"),
    ],
)
def test_contradictory_options_are_refused_before_the_model_is_read(arguments, message):
    with pytest.raises(UsageError, match=message):
        main(["/no/such/model", *arguments])


@pytest.mark.parametrize(
    ("option", "tasks"),
    [
        ("--words", "tag"),
        ("--top-k 3", "fill-mask or answer"),
        ("--pooling cls", "embed"),
        ("--normalize", "embed"),
        ("--question-field q", "answer or choose"),
        ("--context-field c", "answer or choose"),
        ("--options a b", "choose"),
    ],
)
def test_option_of_another_task_is_refused(option, tasks, classifier, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(UsageError, match=f"{option.split()[0]}: requires --task {tasks}, not classify"):
        main([classifier, "--input", str(tmp_path / "in.txt"), *option.split()])


@pytest.mark.parametrize(("task", "reads_pairs"), [("sst-2", False), ("mrpc", True), ("unknown", None)])
def test_number_of_texts_unlike_in_training_is_noted(task, reads_pairs, saved, tmp_path, capsys):
    path = str(saved("classification", 2, finetuning={"task": task}))
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "a", "text_pair": "b"}\n')
    single, pairs = "trained on single texts: leave out", "trained on pairs: "
    inputs = [(["--classify", "a"], True), (["--classify", "a", "--pair", "b"], False)]
    for arguments, alone in [*inputs, (["--input", str(tmp_path / "in.jsonl")], reads_pairs)]:
        main([path, *arguments])
        noted = capsys.readouterr().err
        assert (single in noted, pairs in noted) == (reads_pairs is alone is False, reads_pairs is alone is True)
    assert ("1 of 2 rows have" in noted) == (reads_pairs is not None)
    with pytest.raises(UsageError, match="give a second text with each .--pair on the command line"):
        main([str(saved("pair_classification", 2)), "--classify", "a"])


def test_text_without_words_is_noted(saved, capsys):
    main([str(saved("token_classification", 3)), "--tag", " "])
    assert "note: the text has no words\n" in capsys.readouterr().err


def test_ambiguous_activation_is_noted_and_can_be_overridden(saved, config, capsys):
    path = str(saved("pretraining", config=replace(config, hidden_act="gelu"), net_structure_type=0))
    arguments = [path, "--fill-mask", "The [MASK] sat.", "--json"]
    main(arguments)
    first = capsys.readouterr()
    assert first.err.startswith('note: hidden_act "gelu" is the exact form')
    main([*arguments, "--hidden-act", "gelu_new", "--num-attention-heads", "2", "--precision", "fp32", "--depth", "3"])
    second = capsys.readouterr()
    assert second.err == f"{path}: fp32 on cpu, 3 layers\n"
    assert second.out != first.out
    with pytest.raises(InvalidConfiguration, match="5 heads do not divide"):
        main([*arguments, "--num-attention-heads", "5"])
