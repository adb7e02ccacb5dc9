"""`albert predict` prints one prediction as a table or as JSON lines."""

import json
import shlex
from dataclasses import replace

import pytest
from tests.refusals import refusal

import albert
from albert.cli.main import run
from albert.runtime.errors import UsageError

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
    expected, arguments = method(albert.load(path, "cpu")), shlex.split(arguments)
    assert run(["predict", path, *arguments, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == expected
    assert run(["predict", path, *arguments]) == 0
    shown = capsys.readouterr().out
    assert all(entry[key] in shown for entry in expected)


def test_an_empty_text_is_noted(classifier, capsys, caplog):
    meaningless = "an answer to an empty text means nothing"
    assert run(["predict", classifier, "--classify", "", "--device", "cpu"]) == 0
    written = capsys.readouterr().err + caplog.text
    assert written.count(f"note: the text is empty; {meaningless}") == 1
    predictor = albert.load(classifier, "cpu")
    for texts, pairs, said in (
        (["", "He came.", " \n"], None, "2 of 3 texts are empty"),
        (["He came."], None, None),
        (["", ""], ["He saw.", " "], "1 of 2 texts is empty"),
    ):
        caplog.clear()
        predictor.classify_batch(texts, pairs)
        assert [f"{said}; {meaningless}" in record.getMessage() for record in caplog.records] == [True] * bool(said)


def test_an_empty_text_to_embed_is_noted(saved, caplog):
    path = saved("pretraining")
    said = "1 of 2 texts is empty; the vector of an empty text means nothing"
    for embed in (albert.load(path, "cpu").embed, albert.AlbertEmbedding(str(path), device="cpu").transform):
        caplog.clear()
        embed(["He came.", " "])
        assert [said in record.getMessage() for record in caplog.records] == [True]


def test_masks_are_filled(saved, capsys):
    path = str(saved("pretraining"))
    assert run(["predict", path, "--fill-mask", "The [MASK] sat.", "--top-k", "3"]) == 0
    shown = capsys.readouterr().out
    assert "sequence" in shown and shown.count("sat.") == 3
    assert run(["predict", path, "--fill-mask", "The [MASK] sat on [MASK].", "--top-k", "2", "--json"]) == 0
    masks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(mask) for mask in masks] == [2, 2]
    assert masks[0][0].keys() == {"score", "token", "token_str", "sequence"}


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (["--classify", "a", "--fill-mask", "b"], "--fill-mask, --classify"),
        (["--question", "a"], "--context"),
        (["--context", "a", "--classify", "b"], "--context"),
        (["--choose", "a", "b"], "--choose"),
        (["--choose", "a", "--context", "b"], "two options"),
        (["--choose", "a", "b", "--tag", "c"], "--tag, --choose"),
        (["--pair", "a", "--fill-mask", "b"], "--pair"),
        (["--output", "a", "--classify", "b"], "--output"),
        (["--input", "a.jsonl", "--output", "b.tsv"], "b.tsv"),
        (["--classify", "a", "--top-k", "3"], "--top-k"),
        (["--tag", "a", "--text", "b"], "--text"),
        (["--classify", "a", "--normalize"], "--normalize"),
        (["--input", "a.jsonl", "--options"], "--options"),
        (["--classify", "a", "--words"], "--words"),
        (["--input", "a.txt", "--task", "embed", "--words"], "--words"),
    ],
)
def test_contradictory_options_are_refused_before_the_model_is_read(arguments, subject, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "a.txt"):
        (tmp_path / name).write_text("")
    refused(["predict", "/no/such/model", *arguments], 2, subject)


@pytest.mark.parametrize(
    ("option", "tasks"),
    [
        ("--words", "tag"),
        ("--top-k 3", "answer or fill-mask"),
        ("--pooling cls", "embed"),
        ("--normalize", "embed"),
        ("--question q", "answer or choose"),
        ("--context c", "answer or choose"),
        ("--options a b", "choose"),
    ],
)
def test_option_of_another_task_is_refused(option, tasks, classifier, tmp_path, refused):
    (tmp_path / "in.txt").write_text("a\n")
    words = option.split()
    refused(["predict", classifier, "--input", tmp_path / "in.txt", *words], 2, words[0].removesuffix("-field"), tasks)


@pytest.mark.parametrize(("task", "reads_pairs"), [("sst-2", False), ("mrpc", True), ("unknown", None)])
def test_number_of_texts_unlike_in_training_is_refused(task, reads_pairs, saved, tmp_path, refused, capsys):
    path = str(saved("classification", 2, finetuning={"task": task}))
    for arguments, is_pair in ((["--classify", "a"], False), (["--classify", "a", "--pair", "b"], True)):
        if reads_pairs is (not is_pair):
            assert "trained on" in refused(["predict", path, *arguments], 2, "--pair")
        else:
            assert run(["predict", path, *arguments]) == 0
    for name, columns in (("single", '{"text": "a"}'), ("pairs", '{"text": "a", "text_pair": "b"}')):
        (tmp_path / f"{name}.jsonl").write_text(f"{columns}\n")
    single, pairs = (["predict", path, "--input", str(tmp_path / f"{name}.jsonl")] for name in ("single", "pairs"))
    capsys.readouterr()
    if reads_pairs:
        assert "--pair" in refused(single, 65, "'text_pair'")
    else:
        assert run(single) == 0
    alone = capsys.readouterr().out
    assert run(pairs) == 0
    both = capsys.readouterr()
    score = "predicted_score"
    if reads_pairs is False:  # the column is not read, and a named one is refused
        assert "albert: note: the column 'text_pair' is not read" in both.err
        assert json.loads(both.out)[score] == json.loads(alone)[score]
        refused([*pairs, "--pair", "text_pair"], 2, "--pair")
    elif reads_pairs is None:
        assert "not read" not in both.err and json.loads(both.out)[score] != json.loads(alone)[score]
    refused(["predict", saved("pair_classification", 2), "--classify", "a"], 2, "--pair")


@pytest.mark.parametrize(("task", "is_pair"), [("sst-2", True), ("mrpc", False)])
def test_number_of_texts_unlike_in_training_is_refused_in_python(task, is_pair, saved):
    second = "b" if is_pair else None
    for labels in (1, 2):
        model = albert.load(saved("classification", labels, finetuning={"task": task}), precision="fp32")
        calls = [(model.classify, "pair", False), (model.classify_batch, "pairs", True)]
        calls += [(model.score, "pair", False), (model.score_batch, "pairs", True)] if labels == 1 else []
        for call, name, is_batch in calls:
            with refusal(UsageError, f"{name}: the model was trained on"):
                call(["a"], [second] if is_pair else None) if is_batch else call("a", second)


def test_text_without_words_is_noted(saved, capsys):
    assert run(["predict", str(saved("token_classification", 3)), "--tag", " "]) == 0
    assert "albert: note: the text has no words\n" in capsys.readouterr().err


def test_ambiguous_activation_is_noted_and_can_be_overridden(saved, config, refused, capsys):
    path = str(saved("pretraining", config=replace(config, hidden_act="gelu"), net_structure_type=0))
    arguments = ["predict", path, "--fill-mask", "The [MASK] sat.", "--json"]
    assert run(arguments) == 0
    first = capsys.readouterr()
    assert first.err.startswith('albert: note: hidden_act "gelu" is the exact form')
    changed = ["--hidden-act", "gelu_new", "--num-attention-heads", "2", "--precision", "fp32", "--depth", "3"]
    assert run([*arguments, *changed]) == 0
    second = capsys.readouterr()
    assert second.err == f"{path}: fp32 on cpu, 3 layers\n"
    assert second.out != first.out
    refused([*arguments, "--num-attention-heads", "5"], 78, "5 heads")


@pytest.mark.parametrize(
    ("kind", "arguments", "subject"),
    [
        ("pretraining", "--fill-mask 'no mask'", "--fill-mask: has no [MASK]"),
        ("pretraining", "--fill-mask ''", "--fill-mask: has no [MASK]"),
        ("multiple_choice", f"{CONTEXT} --choose a ''", "--choose: one of them is empty"),
        ("question_answering", "--question Who? --context ' '", "--context: holds no text"),
    ],
)
def test_what_a_model_cannot_answer_is_refused_by_the_name_of_the_option(kind, arguments, subject, saved, refused):
    refused(["predict", saved(kind), *shlex.split(arguments), "--device", "cpu"], 2, subject)


def test_the_order_of_an_empty_segment_is_noted(saved, capsys):
    assert run(["predict", str(saved("pretraining")), "--order", "He came.", " ", "--device", "cpu"]) == 0
    assert "note: a segment is empty; its order means nothing" in capsys.readouterr().err
