"""Bad input to fine-tuning and evaluation: tasks, heads, seeds, submissions, spans. See test_bad_input.py."""

import json
import re

import pytest
from tests.cli.test_bad_input import EVALUATE, GLUE, ROWS, Case, arrange, error_of, everything_below, expected

from albert.cli.main import run

SQUAD = "finetune squad-1.1 --model {pretrained} --data {here} --output {here}/out --max-length 32 --device cpu"
SST2 = {"SST-2/train.tsv": "sentence\tlabel\ngood\t1\nbad\t0\n", "SST-2/dev.tsv": "sentence\tlabel\ngood\t1\nbad\t0\n"}
SENTENCES = "evaluate sst-2 --model {here}/model --data {here} --device cpu"


def squad(*questions):
    """Both files of SQuAD 1.1, with these questions on one context: (id, question, answer)."""
    qas = [
        {"id": name, "question": asked, "answers": [{"text": answer, "answer_start": 0}]}
        for name, asked, answer in questions
    ]
    content = json.dumps({"data": [{"paragraphs": [{"context": "Old ships sank.", "qas": qas}]}]})
    return {f"{split}-v1.1.json": content for split in ("train", "dev")}


def save(scene, here, kind, spoil=None):
    """A model directory of a kind, its tensors changed before."""
    import torch

    from albert.checkpoints.huggingface import build_model
    from albert.checkpoints.model_directory import read_config, save_model_directory

    model = build_model(kind, read_config(scene.classifier)[0], 2 if kind == "classification" else None)
    if spoil is not None:
        with torch.no_grad():
            spoil(model)
    labels = {"id2label": {0: "negative", 1: "positive"}} if kind == "classification" else {}
    save_model_directory(here / "model", model, scene.tokenizer, extra=labels)


def _span_model(scene, here):
    save(scene, here, "question_answering")


def _weights_that_are_no_numbers(scene, here):
    save(scene, here, "classification", lambda model: model.classifier.weight.fill_(float("nan")))


def _outputs_that_are_no_numbers(scene, here):
    def overflow(model):
        model.albert.pooler.bias.fill_(100.0)  # every state is 1
        model.classifier.weight.fill_(3e38)

    save(scene, here, "classification", overflow)


CASES = [
    Case("head for spans on sentences", GLUE + " --span-head joint", 2, "--span-head: goes with tasks whose answers"),
    Case("a task without a training set", GLUE.replace("sst-2", "ax"), 78, "ax: has no training set; albert evaluate"),
    Case(
        "seeds in one run's directory", GLUE + " --seeds 2", 73, "{here}/out: holds one run", {"out/recipe.json": "{}"}
    ),
    Case(
        "no such part to hand in",
        EVALUATE + " --submission {here}/dev.csv",
        73,
        "is not a directory",
        {"dev.csv": ROWS},
    ),
    Case(
        "one file for the results of two splits",
        "evaluate mnli --model {classifier} --data {here} --submission {here}/hand-in --results {here}/r.json",
        2,
        "--results: is one file, there are the splits test, test_mismatched; name one with --split",
    ),
    Case(
        "JSON and CSV at once",
        "evaluate pretraining --model {pretrained} --data {corpus} --json --csv",
        2,
        "--csv: goes without --json",
    ),
    Case("JSON of a task", "evaluate sst-2 --model {classifier} --data {here} --json", 2, "--json: goes with pretrain"),
    Case("a limit without its unit", "info albert-base --memory --memory-limit 8", 2, ".*memory.*8"),
    Case(
        "a figure of another kind",
        "plot {run} --output {here}/x.pdf",
        2,
        r"--output {here}/x\.pdf: must end in .png; choose",
    ),
    Case("a span model for sentences", SENTENCES, 78, "{here}/model: has no head for this task", SST2, _span_model),
    Case(
        "weights that are no numbers",
        SENTENCES,
        65,
        r"{here}/model/model\.safetensors: classifier\.weight holds numbers that are not finite",
        SST2,
        _weights_that_are_no_numbers,
    ),
    Case(
        "outputs that are no numbers",
        SENTENCES,
        3,
        "model: its outputs are not finite numbers; train it again",
        SST2,
        _outputs_that_are_no_numbers,
    ),
    Case(
        "two questions of one name",
        SQUAD,
        65,
        r"{here}/train-v1\.1\.json: data\[0\]\.paragraphs\[0\]\.qas\[1\]: a second question has the id 'a'",
        squad(("a", "What sank?", "Old ships"), ("a", "What did they do?", "Old")),
    ),
    Case(
        "no answer in any context",
        SQUAD + " --question-length 8 --stride 8",
        78,
        "squad-1.1: no window of the training set holds an answer",
        squad(("a", "What sank?", "submarines")),
    ),
    Case(
        "questions that fill the window",
        SQUAD + " --question-length 31",
        78,
        "stride: 128 exceeds the -2 context tokens that fit beside a question of 31; use a smaller",
        squad(("a", "What sank?", "Old ships")),
    ),
    Case(
        "no answers in the training file",
        SQUAD,
        65,
        r"qas\[0\]: has no 'answers'; expected the SQuAD JSON layout",
        {
            name: content.replace('"answers"', '"answer"')
            for name, content in squad(("a", "What sank?", "Old ships")).items()
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_line_its_code_and_nothing_left(case, scene, tmp_path, capfd):
    words = arrange(case, scene, tmp_path)
    before = everything_below(tmp_path)
    capfd.readouterr()
    code = run(words)
    said = error_of(capfd.readouterr().err)
    assert re.search(expected(case, scene, tmp_path), said), said
    assert code == case.code, said
    assert everything_below(tmp_path) == before


def test_what_is_cut_or_not_found_is_counted_and_nothing_is_dropped(scene, tmp_path, capsys):
    files = squad(
        ("a", "a?", "Old ships"),
        ("b", "What sank? " * 30, "Old ships"),
        ("c", "c?", "submarines"),
    )
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    lengths = "--question-length 8 --stride 8 --steps 1 --batch-size 2"
    words = [scene.fill(word, tmp_path) for word in f"{SQUAD} {lengths}".split()]
    assert run(words) == 0
    said = capsys.readouterr().out
    for part in ("training", "development set"):
        assert f"{part}: 1 questions cut" in said
        assert f"{part}: 1 answers not in their context, or there more than once" in said
    assert len((tmp_path / "out/predictions-dev.jsonl").read_text().splitlines()) == 3
