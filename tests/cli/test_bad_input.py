"""Bad input to every command: one line with subject, reason and remedy, the documented exit code, and no files left."""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from albert.checkpoints.huggingface import build_model
from albert.checkpoints.model_directory import read_config, save_model_directory
from albert.cli.main import run

PROGRESS = re.compile(r"(Reading|Preparing|Pre-training|Evaluating|Fine-tuning)\b.*/s\b|albert serve: listening")
"""Lines that a slow machine may print before the error."""

TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
PREPARE = "prepare {here}/text --tokenizer {tokenizer} --output {here}/out --workers 1"
PRETRAIN = "pretrain quickstart --data {corpus} --output {here}/out --sequences.max-length 32"
OF_FILE = PRETRAIN.replace("quickstart", "{here}/r.json")
FINETUNE = "finetune --train {here}/train.csv --dev {tables}/dev.csv --text review --label stars --output {here}/out"
TUNED = FINETUNE + " --model {pretrained}"
EVALUATE = "evaluate --model {classifier} --text review --label stars --dev {here}/dev.csv"
SCORED = EVALUATE.replace("{here}", "{tables}") + " --device cpu"
ONNX = "export onnx {pretrained} --output {here}/out"
VECTORS = "export sentence-transformers {pretrained} --output {here}/out"
GLUE = "finetune sst-2 --model {pretrained} --data {here} --output {here}/out"
SENTENCES = "evaluate sst-2 --model {here}/model --data {here} --device cpu"
SQUAD = "finetune squad-1.1 --model {pretrained} --data {here} --output {here}/out --max-length 32 --device cpu"
TASK_FILE = "finetune --task-file {here}/ask.json --model {pretrained} --output {here}/out"
RUN_AGAIN = "pretrain {run}/recipe.json --data {corpus} --output {here}/out --device cpu"

GOOD = {"text/a.txt": "It was a day. It was another day."}
ROWS = "review,stars\nIt was good,positive\nIt was bad,negative\n"
TABLE, DEV = {"train.csv": ROWS}, {"dev.csv": ROWS}
SST2 = {f"SST-2/{split}.tsv": "sentence\tlabel\ngood\t1\nbad\t0\n" for split in ("train", "dev")}


class Case(NamedTuple):
    """A command that fails.

    Attributes:
        words: added to the command; `{here}` and the fields of `Scene` stand for paths.
        code: the exit code in docs/troubleshooting.md.
        message: regular expression for the line on stderr, after "albert: error: ".
        setup: name below `{here}` -> content, or a function of the scene and the folder.
    """

    words: str
    code: int
    message: str
    setup: dict[str, bytes | str] | Callable = {}


def text(content: bytes | str, name: str = "a.txt") -> dict[str, bytes | str]:
    return {f"text/{name}": content}


def squad(*questions: tuple[str, str, str], answers: str = "answers") -> dict[str, str]:
    """Both files of SQuAD 1.1 with questions on one context: (id, question, answer)."""
    qas = [
        {"id": name, "question": question, answers: [{"text": answer, "answer_start": 0}]}
        for name, question, answer in questions
    ]
    content = json.dumps({"data": [{"paragraphs": [{"context": "Old ships sank.", "qas": qas}]}]})
    return {f"{split}-v1.1.json": content for split in ("train", "dev")}


def task_file(**values: object) -> dict[str, str]:
    content = {"train": "my.csv", "text": "review", **values}
    table = "review,stars\n" + "".join(f"it was {n},{n % 3 + 1}\n" for n in range(24))
    return {"ask.json": json.dumps(content), "my.csv": table}


def damaged_corpus(scene, here: Path) -> None:
    """A copy of the corpus with a flipped bit in its tokens."""
    shutil.copytree(scene.corpus, here / "corpus")
    tokens = next((here / "corpus" / "train").glob("*.tokens.bin"))
    content = bytearray(tokens.read_bytes())
    content[len(content) // 2] ^= 1
    tokens.write_bytes(content)


def damaged_checkpoint(scene, here: Path) -> None:
    """A copy of the run without its model and with a truncated newest checkpoint."""
    shutil.copytree(scene.run, here / "out")
    shutil.rmtree(here / "out" / "model")
    weights = here / "out" / "checkpoints" / "step-00000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])


def finished_run(scene, here: Path) -> None:
    shutil.copytree(scene.run, here / "out")
    (here / "train.csv").write_text(ROWS)


def link_to_itself(scene, here: Path) -> None:
    (here / "text").mkdir()
    (here / "text" / "self").symlink_to(".")


def model_for_sst2(scene, here: Path, kind: str = "classification", change: Callable | None = None) -> None:
    """SST-2 and a model for it, with changed tensors."""
    write(SST2, here)
    model = build_model(kind, read_config(scene.classifier)[0], 2 if kind == "classification" else None)
    with torch.no_grad():
        if change is not None:
            change(model)
    labels = {"id2label": {0: "negative", 1: "positive"}} if kind == "classification" else {}
    save_model_directory(here / "model", model, scene.tokenizer, extra=labels)


def span_model(scene, here: Path) -> None:
    model_for_sst2(scene, here, "question_answering")


def nan_weights(scene, here: Path) -> None:
    model_for_sst2(scene, here, change=lambda model: model.classifier.weight.fill_(float("nan")))


def infinite_outputs(scene, here: Path) -> None:
    def overflow(model):
        model.albert.pooler.bias.fill_(100.0)  # every state is 1
        model.classifier.weight.fill_(3e38)

    model_for_sst2(scene, here, change=overflow)


SINK = ("a", "What sank?", "Old ships")
CASES: dict[str, list[tuple]] = {
    PREPARE: [
        ("", 66, "{here}/text: No such file or directory"),
        ("", 66, r"{here}/text: holds no \.txt", text("a,b", "table.pdf")),
        ("", 66, r"{here}/text: holds no \.txt", link_to_itself),
        ("", 66, r"{here}/text: no document with text \(1 read, 1 dropped: empty\)", text("")),
        ("", 65, r"a\.txt: is not text: NUL byte at byte 3; UTF-8", text(b"abc\0\1\2")),
        ("", 65, r"a\.txt: is not UTF-8: byte 7; ", text(b"A good\n\xff day.")),
        ("", 65, r"a\.txt\.gz: damaged gzip file \(.+\); ", text(gzip.compress(b"a day" * 99)[:-20], "a.txt.gz")),
        ("", 65, r"a\.txt\.gz: damaged gzip", text(b"It was no gzip.", "a.txt.gz")),
        ("", 65, r"a\.jsonl:2: has no field 'text'; did you", text('{"text": "a"}\n{"txet": "b"}\n', "a.jsonl")),
        ("", 65, r"a\.jsonl:1: is not JSON", text("{text: 1}\n", "a.jsonl")),
        ("--held-out 1.5", 78, "held-out share: 1.5 is out of range", GOOD),
        ("--workers 0", 78, "workers: 0 is out of range", GOOD),
        ("--helt-out 0", 2, ".+--helt-out: unknown option; did you mean '--held"),
        ("", 73, "{here}/out: exists already; choose", GOOD | {"out": "m"}),
    ],
    "prepare": [
        ("--tokenizer {tokenizer} --output {here}/out", 2, "albert prepare: CORPUS... is missing"),
        ("{here}/a.pdf --tokenizer {tokenizer} --output {here}/out", 2, "a.pdf: cannot tell its", {"a.pdf": "%PDF"}),
        ("{here}/text --tokenizer {here}/t --output {here}/out", 66, "{here}/t: .+tokenizer", GOOD),
        (
            "{here}/text --tokenizer {here}/spiece.model --output {here}/out",
            65,
            r"spiece\.model: is not a SentencePiece model",
            GOOD | {"spiece.model": b"no model"},
        ),
        ("{here}/text --tokenizer {tokenizer} --output /proc/out --workers 1", 73, "^/proc/", GOOD),
    ],
    TRAIN: [
        ("", 66, "{here}/text: No such file or directory"),
        ("", 65, r"a\.txt: is not UTF-8: byte 7", text(b"A good\n\xff day.")),
        ("", 78, "vocabulary of 300 pieces: this text supports 26 at most; ask for", GOOD),
        ("--character-coverage 2", 78, "character_coverage: ", GOOD),
        ("", 73, "{here}/out: exists already", GOOD | {"out/mine.txt": "m"}),
    ],
    TRAIN.replace("300", "0"): [("", 78, "vocab_size: 0 is not positive", GOOD)],
    "": [
        ("tokenizer tran", 2, "albert tokenizer: tran: no such command; did you"),
        ("prepair", 2, "prepair: no such command; did you mean 'prepare'"),
    ],
    OF_FILE: [
        ("", 78, r"r\.json: batchsize: unknown key; did you mean 'batch_size'", {"r.json": '{"batchsize": 3}'}),
        (
            "",
            78,
            r"r\.json: model: hiden_size: unknown key; did you mean 'hidden_size'",
            {"r.json": '{"model": {"hiden_size": 3}}'},
        ),
        ("", 65, "is not JSON", {"r.json": "{"}),
        ("", 65, r"{here}/r\.json: holds a list, an object is expected", {"r.json": "[]"}),
        ("", 78, r"r\.json: batch_size: is a string, int is expected", {"r.json": '{"batch_size": "eight"}'}),
        ("", 78, r"r\.json: precision: 'fp16' is not a choice", {"r.json": '{"precision": "fp16"}'}),
    ],
    "pretrain small --recipe {here}/bad.toml --data nowhere --output {here}/out": [
        ("", code, r"bad\.toml: (.*: )?" + message, {"bad.toml": content.encode("latin-1")})
        for content, code, message in (
            ("learning_rate = 3", 78, r"learning_rate: unknown key; did you mean 'optimizer.learning_rate'\?"),
            ("batch_size = 2020-01-01", 78, "batch_size: is date "),
            ("batch_size =", 65, r"is not TOML \(Invalid value"),
            ("\xff", 65, "is not UTF-8"),
        )
    ],
    PRETRAIN: [
        ("--model.hiden-size 8", 2, ".+ unknown option; did you mean '--model.hidden-size"),
        ("--total-step 3", 2, "albert pretrain quickstart: --total-step: unknown"),
        ("--on-divergence ignore", 2, "albert pretrain quickstart: .+on-divergence"),
        ("--batch-size many", 2, "albert pretrain quickstart: .+batch-size.+many"),
        ("--batch-size", 2, ".+batch-size"),
        ("--optimizer.beta1 1.5", 78, "beta1: is 1.5, a share from 0 to below 1 is needed"),
        ("--model.num-attention-heads 7", 78, "num_attention_heads: 7 heads do not divide"),
        ("--sequences.max-length 999", 78, "sequences.max_length: 999 is more than"),
        ("--batch-size 0", 78, "batch_size: is 0, at least 1 is needed"),
        ("--optimizer.learning-rate -1", 78, "learning_rate: is -1.0, a finite number above 0"),
        ("--optimizer.learning-rate nan", 2, ".+learning-rate: 'nan' is not a finite number"),
        ("--checkpoint-minutes inf", 2, ".+checkpoint-minutes: 'inf' is not a finite number"),
        ("--optimizer.weight-decay -1", 78, "weight_decay: is -1.0"),
        ("--max-minutes 0", 78, "max_minutes: is 0"),
        ("--scale-batch half", 2, "--scale-batch: 'half' is not a whole number"),
        ("--scale-batch=0", 2, "--scale-batch: is 0, a number of sequences from 1"),
        ("--hard-examples.focus -1", 78, "hard_examples.focus: is -1.0, a number from 0 to 10"),
        ("--sequences.objective none --evaluation-objectives sop", 78, "evaluation_objectives: need a sentence head"),
        ("--model.attention-window 0", 78, "attention_window: is 0"),
        ("--schedule.total-steps 0", 78, "total_steps: is 0"),
        ("--model.hidden-dropout-prob 1", 78, "hidden_dropout_prob: is 1.0"),
        ("--device tpu", 2, "--device: 'tpu' is not a choice; did you mean 'cpu'"),
        ("", 73, "{here}/out: File exists", {"out": "mine"}),
    ],
    "pretrain": [
        *(
            (f"{words} --data {{corpus}} --output {{here}}/out", code, message)
            for words, code, message in (
                ("smal", 2, "recipe smal: .+; did you mean 'small'"),
                ("no.json", 2, "recipe no.json: is neither a"),
                ("", 2, "albert pretrain: the first word is a recipe; one of"),
                ("continue", 2, "albert pretrain continue: no model to continue with; albert pretrain continue --init"),
                ("continue --init {here}/absent", 66, "{here}/absent: no such directory"),
                ("continue --init {tokenizer}", 66, "{tokenizer}/config.json: "),
                ("continue --init {run} --revision main", 2, "revision: 'main' of {run}, which is a directory"),
                ("quickstart --resize-vocabulary", 2, "--resize-vocabulary: requires --init MODEL"),
                ("quickstart --revision main", 2, "--revision: requires --init MODEL"),
                ("quickstart --init {run}", 78, "embedding_size: is 16 in the trained model and 64 here"),
                ("continue --init {run} --model.intermediate-size 96", 78, "intermediate_size: is 64 in the"),
                ("quickstart --change-dropout 0.1", 78, "--change-dropout: {here}/out has no checkpoint to go on from"),
                ("quickstart --dropout-changes 5 0.1 2 0", 78, r"dropout_changes: are at updates \[5, 2\]"),
            )
        ),
        ("quickstart --output {here}/out", 2, "--data: is missing"),
        ("quickstart --data {here}/c --output {here}/out", 66, "{here}/c: No such file"),
        ("quickstart --data {here}/c --output {here}/out", 66, r"{here}/c: holds no corpus\.json", {"c/a.txt": "a"}),
        ("quickstart --data {corpus} --output /proc/out", 73, "^/proc/out: "),
        ("quickstart --data {corpus} --output {here}/f/out", 73, "{here}/f/out: Not a directory", {"f": "mine"}),
        ("quickstart --data {here}/corpus --output {here}/out", 65, r".+tokens\.bin: SHA-256", damaged_corpus),
        ("small --data d --output o --num-train-epochs 3", 2, "pre-training counts updates: --steps"),
        ("small --data d --output o --warmup-ratio 0.1", 2, "pre-training counts updates: --warmup-steps"),
        ("small --data d --output o --hiden-size 3", 2, r"unknown option; did you mean '--hidden-size'\?"),
        ("small --lr-scheduler-type linear", 2, "leave it out; the rate rises, then falls linearly to 0"),
        ("small --fsdp full_shard", 2, "--parallelism sharded divides the model over processes"),
        ("small", 2, "--data: is missing; it is a corpus from `albert prepare`"),
    ],
    RUN_AGAIN: [
        (
            "",
            65,
            r"{here}/out/checkpoints/step-00000004/model\.safetensors: has \d+ bytes, .+; "
            r"remove {here}/out/checkpoints/step-00000004 to go on from step 2, which is intact",
            damaged_checkpoint,
        ),
        ("--seed 1", 78, "{here}/out: this run was started with seed 0, now it is 1; choose another", finished_run),
    ],
    "predict": [
        ("{pretrained} --classify x", 78, "{pretrained}: has no trained head to class"),
        ("{classifier} --fill-mask [MASK]", 78, "{classifier}: has no trained head to fill"),
        ("{classifier} --question a --context b", 78, ".+has no trained head to answer"),
        ("{here}/none --classify x", 66, "{here}/none: no such directory"),
        ("nobody/none --classify x", 69, "nobody/none: no such directory here"),
        ("{here}/a.bin --classify x", 66, r"{here}/a\.bin: is a file", {"a.bin": "a"}),
        ("{text} --classify x", 66, r"{text}/config\.json"),
        ("{pretrained} --fill-mask nothing", 2, r".+\[MASK\]"),
        ("{pretrained}", 2, "albert predict: there is no input; give one of --fill-mask"),
        ("{pretrained} --fill-mask [MASK] --top-k 0", 2, "--top-k: is 0"),
        ("{pretrained} --fill-mask [MASK] --device tpu", 2, "--device: 'tpu' is not a choice; did you mean 'cpu'"),
        ("{classifier} --input {tables}/dev.csv", 65, "{tables}/dev.csv:2: has no field 'text'; known: review, stars"),
        ("{classifier} --input {here}/a.png", 2, r"{here}/a\.png", {"a.png": "PNG"}),
        ("{classifier} --input {here}/in.txt", 66, r"{here}/in\.txt: No such file"),
        ("{classifier} --input {text}/00.txt --output {here}/f/out.jsonl", 73, "{here}/f", {"f": "m"}),
        ("--classify x", 2, "albert predict: MODEL is missing; see albert predict --help"),
        ("{classifier} --classify a --revision v1", 2, "is a directory; it goes with a Hub id"),
    ],
    TUNED: [
        ("", 66, r"{here}/train\.csv: No such file"),
        ("", 66, r"{here}/train\.csv: has no rows", {"train.csv": ""}),
        ("--text reviw", 65, ".+has no column 'reviw'; did you mean 'review'", TABLE),
        ("--label star", 65, ".+no column 'star'; did you mean 'stars'", TABLE),
        ("", 65, "{tables}/dev.csv:2: unknown label 'negative' in ", {"train.csv": ROWS.replace(",neg", ",poor")}),
        ("", 78, "every row has the label", {"train.csv": ROWS.replace("negative", "positive")}),
        ("", 65, r"{here}/train\.csv:3: empty label", {"train.csv": ROWS.replace("negative", "")}),
        ("", 65, r"{here}/train\.csv:4: has 3 fields where", {"train.csv": ROWS + "a,b,c\n"}),
        ("--format csv", 65, r"{here}/train\.csv:4: broken CSV", {"train.csv": ROWS + '"a"b,positive\n'}),
        ("--encoding utf-8", 65, r"train\.csv: is not UTF-8", {"train.csv": b"review,stars\n\xff,positive\n"}),
        ("--regression", 65, r".+train\.csv:2: 'positive'.+is not a number", TABLE),
        ("--learning-rate -1", 78, "learning_rate: is -1.0, a number above 0", TABLE),
        ("--learning-rate 5", 78, "learning_rate: is 5, no model learns at a rate above 1", TABLE),
        ("--batch-size 0", 78, "batch_size: is 0, a number above 0", TABLE),
        ("--steps 0", 78, "steps: is 0, a number above 0", TABLE),
        ("--max-length 3", 78, "max_length: must be at least 8", TABLE),
        ("--temperature 0.1", 2, "--temperature: requires --objective contrastive", TABLE),
        ("--micro-batch-tokens 0", 78, "micro_batch_tokens: is 0", TABLE),
        ("--workers -1", 78, "workers: is -1", TABLE),
        ("", 73, "{here}/out: File exists", TABLE | {"out": "m"}),
        ("", 73, "{here}/out: holds another run, its recipe.json has another task; ", finished_run),
    ],
    TUNED.replace("train.csv", "t.xlsx"): [("", 65, "t.xlsx: damaged Excel file", {"t.xlsx": "PK"})],
    "finetune": [
        ("glue --model {pretrained} --output {here}/out", 2, "--data: is missing"),
        ("sst-3 --model {pretrained} --data {here} --output out", 2, "task sst-3: unknown; did you mean 'sst-2'"),
        ("--model {pretrained} --output {here}/out", 2, "albert finetune: no task; name"),
        (FINETUNE.removeprefix("finetune ") + " --model {here}/none", 66, "{here}/none: no such directory", TABLE),
        ("ax --model {pretrained} --data {here} --output {here}/out", 78, "ax: has no training set; albert evaluate"),
        (
            "--recipe {here}/bad.toml --model tiny --output out",
            78,
            r"bad.toml: learning_rat: unknown key; did you mean 'learning_rate'\?",
            {"bad.toml": "learning_rat = 3\n"},
        ),
        ("--model m --lernrate 1", 2, r"--lernrate: unknown option; did you mean '--learning-rate'\?"),
        ("--model m --num-epoch 1", 2, r"--num-epoch: unknown option; did you mean '--epochs'\?"),
        ("--model m --max_sequence_len 1", 2, r"unknown option; did you mean '--max-length'\?"),
        ("--model m --fp16", 2, "--fp16: unknown option; --precision bf16"),
        ("--model m --gradient_accumulation_steps 2", 2, r"--micro-batch-tokens \(finetune\)"),
        ("--model m --resume-from-checkpoint c", 2, "the same command resumes from the last checkpoint"),
        ("--model m --tokenizer-name t", 2, "leave it out; the tokenizer is in the directory of --model"),
        ("sst-2", 2, "--model: is missing; it is a model directory, a run that made one, or a Hub id; see albert "),
    ],
    GLUE: [
        ("", 66, r"{here}: has no train\.tsv; expected .*SST-2/train\.tsv or"),
        ("--seeds 0", 78, "seeds: are 0"),
        ("--seeds 2", 73, "{here}/out: holds one run", {"out/recipe.json": "{}"}),
        ("--span-head joint", 2, "--span-head: requires a task whose answers"),
    ],
    TASK_FILE: [
        ("", 78, "ask.json: txt: unknown key; did you mean 'text'", task_file(txt="review")),
        ("--device cpu", 78, "held-out share: is 2", task_file(label="stars", held_out={"share": 2})),
        ("--seed 1", 78, "kind: 'class' is not a choice", task_file(label="stars", kind="class")),
        ("--classes --regression", 2, "contradict each other", task_file(label="stars")),
        ("--metrics f7", 78, "metric f7: cannot be used with classification", task_file(label="stars")),
    ],
    SQUAD: [
        (
            "",
            65,
            r"train-v1\.1\.json: data\[0\]\.paragraphs\[0\]\.qas\[1\]: a second question has the id 'a'",
            squad(SINK, ("a", "What did they do?", "Old")),
        ),
        (
            "--question-length 8 --stride 8",
            78,
            "squad-1.1: no window of the training",
            squad((*SINK[:2], "submarines")),
        ),
        ("--question-length 31", 78, "stride: 128 exceeds the -2 context tokens that fit beside a ques", squad(SINK)),
        ("", 65, r"qas\[0\]: has no 'answers'; expected the SQuAD", squad(SINK, answers="answer")),
    ],
    EVALUATE: [
        ("", 65, r"{here}/dev\.csv:3: unknown label", {"dev.csv": ROWS.replace("negative", "poor")}),
        ("--micro-batch-tokens 0", 78, "micro_batch_tokens: is 0", DEV),
        ("--results {here}/dev.csv/r", 73, "{here}/dev.csv", DEV),
        ("--submission {here}/dev.csv", 73, "is not a directory", DEV),
    ],
    EVALUATE.replace("{classifier}", "{pretrained}"): [("", 78, "{pretrained}: ", DEV)],
    EVALUATE.replace("--text review", ""): [("", 2, ".+your own file needs --text", DEV)],
    SENTENCES: [
        ("", 78, "{here}/model: has no head for this task", span_model),
        ("", 65, r"model\.safetensors: classifier\.weight holds numbers that are not finite", nan_weights),
        ("", 3, "model: its outputs are not finite numbers; train it again", infinite_outputs),
    ],
    "evaluate pretraining": [
        ("--model {pretrained} --data {here}/corpus", 65, r".+tokens\.bin: SHA-256 differs from MA", damaged_corpus),
        ("--model {classifier} --data {corpus}", 78, "{classifier}: has no masked-token head, it is"),
        (
            "--model {pretrained} --data {other_corpus}",
            78,
            "{pretrained}: has tokenizer v2:[0-9a-f]+, {other_corpus} was prepared with v2:[0-9a-f]+; prepare",
        ),
        ("--model {pretrained} --data {corpus} --split train", 2, "--split: requires another task"),
        ("--model {pretrained} --data {corpus} --max-ngram 0", 78, "masking.max_ngram: is 0, at least 1"),
    ],
    "evaluate": [
        ("sst-2 --model {classifier} --data {here} --split tset", 78, ".*split tset"),
        ("sst-2 --model {classifier} --data {here} --json", 2, "--json: requires the task pretrain"),
        ("sst-2 --data {tables} --model {classifier} --revision v1", 2, "is a directory; it goes with a Hub id"),
        ("--text review --label stars --dev {tables}/dev.csv --model", 2, "--model: is empty"),
        (
            "mnli --model {classifier} --data {here} --submission {here}/hand-in --results {here}/r.json",
            2,
            "--results: is one file, there are the splits test, test_mismatched; name one with --split",
        ),
    ],
    SCORED: [
        ("--json", 2, "--json: requires the task pretraining"),
        ("--csv", 2, "--csv: was removed"),
        ("--sequences 9", 2, "--sequences: requires the task pretraining"),
        ("--precision fp32 bf16 --predictions {here}/out.jsonl", 2, "--predictions: requires a single --precision"),
        ("--precision fp32 bf16 --tolerance -1", 78, "tolerance: is -1.0, a number of points from 0 on is needed"),
        ("--depth 2 99", 78, "depth: is 99, the model has 2 layers"),
        ("--depth 0", 78, "depth: is 0"),
        ("--patience 2", 78, "was trained to answer only after its last layer"),
        ("--depth 1 2 --predictions {here}/p.jsonl", 2, "--predictions: requires a single --depth"),
        ("--depth 1 2 --rounds 0", 2, "--rounds: is 0"),
    ],
    ONNX: [
        ("--opset 11", 78, "opset: is 11, .*17 to 24"),
        ("--precision int4", 2, "--precision: 'int4' is not a choice; did you mean 'int8'"),
        ("--depth 0", 78, "depth: is 0, .*choose one from 1"),
    ],
    VECTORS: [("--pooling median", 2, "median.*mean"), ("", 73, "exists already", {"out/mine": "m"})],
    "export": [
        ("tflite {pretrained} --output {here}/out", 2, "albert export: tflite: no such"),
        ("onnx {pretrained}", 2, "--output: is missing"),
        ("onnx {here}/none --output {here}/out", 66, "none: no such directory"),
        ("onnx {pretrained} --output {here}", 73, "exists already"),
        ("onnx {pretrained} --output {here}/out.onnx", 73, r"out\.onnx: exists already", {"out.onnx": "mine"}),
        ("onnx {corpus} --output {here}/out", 66, r"config\.json"),
        ("sentence-transformers {here}/none --output {here}/out", 66, "none: no such directory"),
    ],
    "quantize": [
        ("{corpus} --output {here}/out", 66, r"config\.json"),
        ("{pretrained} --output {here}", 73, "exists already"),
        ("m --output o --fp16", 2, "--fp16: unknown option; --help shows the usual options"),
        ("m --OUTPUT o", 2, r"did you mean '--output'\?"),
        ("m --output o --zzz", 2, "unknown option; --help shows the usual options"),
    ],
    "plot": [
        ("{here}/absent --output {here}/out.png", 66, "{here}/absent: "),
        ("{run} --output {here}/x.pdf", 2, r"--output {here}/x\.pdf: must end in .png; choose"),
    ],
    "info": [
        ("albert-bse", 69, "albert-bse: is not a preset; .+; did you mean 'albert-base'"),
        ("xyz", 69, "`albert info` lists the presets"),
        ("albert-base --max-length 0", 2, "--max-length: is 0, at least 1 is needed"),
        ("albert-base --batch-size 0 --measure", 2, "--batch-size: is 0, at least 1 is needed"),
        ("albert-base --batch-size 4", 2, "--batch-size: requires --measure or --memory; add one of them"),
        ("albert-base --memory-limit 8GB", 2, "--memory-limit: requires --memory; add --memory"),
        ("albert-base --memory --memory-limit 8", 2, "--memory-limit: '8' is not a valid size; write it as 24GB or 8"),
        ("albert-base --memory --max-length 513", 2, "--max-length: is 513, the model has 512 positions"),
        ("albert-base --memory --compare bert-base", 2, "--memory: cannot be combined with --compare; leave out --com"),
        ("{corpus} --memory", 2, "--memory: requires a model, {corpus} is a corpus"),
        ("--memory", 2, "--memory: needs a model or preset before it"),
        ("--self-check", 2, "--self-check: needs a model or preset before it"),
        ("albert-base --measure --max-length 513", 2, "--max-length: is 513, the model has 512 positions"),
        ("albert-base --self-check", 2, "--self-check: requires a model, albert-base is a preset"),
        ("albert-base --revision main", 2, "--revision: requires a model, albert-base is a preset"),
        ("{corpus} --compare albert-base", 2, "--compare: requires a model, {corpus} is a corpus"),
        ("{tokenizer} --measure", 2, "--measure: requires a model, {tokenizer} is a tokenizer"),
        ("albert-base --compare {corpus}", 2, "--compare: {corpus} is a corpus, an architecture is needed"),
        ("{pretrained} --revision main", 2, "revision: 'main' of {pretrained}, which is a directory"),
    ],
    "show": [
        ("{corpus} --first -1", 2, "--first: is -1, at least 0 is needed"),
        ("{corpus} --first 100000", 2, "--first: is 100000, the epoch has"),
        ("{corpus} --max-length 4", 78, "sequences.max_length: is 4"),
        ("{corpus} --split held_out --objectiv sop", 2, "did you mean '--objective'"),
        ("{here}/nothing", 66, r"{here}/nothing: holds no corpus\.json"),
    ],
    "verify": [
        ("{here}", 66, r"{here}: has no MANIFEST\.json"),
        ("{here}/nowhere", 66, "{here}/nowhere: no such directory"),
    ],
    "completion": [("ksh", 2, "ksh")],
    "analyze layers": [
        ("", 2, "MODEL... is missing"),
        ("{pretrained} --output layers.pdf", 2, "must end in .png"),
        ("{pretrained} --words 0", 2, "--words: is 0"),
        ("{pretrained} --text nowhere.txt", 66, "No such file"),
        ("nowhere/at/all", 66, "nowhere/at/all"),
    ],
    "serve": [
        ("./no-such-model --port 0", 66, "no-such-model"),
        ("m --port 70000", 78, "port 70000"),
        ("m --limits.queue-texts 0", 78, r"limits\.queue_texts 0"),
        ("m --limits.texts 300", 78, "would never fit"),
        ("m --drain-timeout 0", 78, "above zero"),
        ("m --threads 0", 78, "above zero"),
        ("m --host 192.0.2.1", 69, r"192\.0\.2\.1:8000"),
        ("m --depth deep", 2, "--depth"),
    ],
    "tables": [
        ("run 5 --output {here}/out", 2, "--data: is missing; give a corpus from `albert prepare`"),
        ("run 5 --output {here}/out --data {here}/absent", 66, "{here}/absent: "),
        ("run 55 --output {here}/out --data {corpus}", 2, r"table 55: unknown; did you mean '5'\?"),
        ("run --output {here}/out --data {corpus}", 2, "albert tables: no table is named"),
        ("run 5 --output {here}/out --data {corpus} --glue-data {here}/absent", 66, "{here}/absent: is not a folder"),
        ("run 5 --output {here}/out --data {corpus} --files sst-2", 2, "--files: 'sst-2' is not TASK/SPLIT=FILE"),
        ("run 5 --output {here}/out --data {corpus} --threads 0", 2, "--threads: is 0, at least 1 is needed"),
        ("export {here}/copy --output {here}/out", 66, r"{here}/out/study\.json: no tables were run here"),
        ("runs", 2, r"albert tables: runs: no such command; did you mean 'run'\?"),
    ],
}
"""Command -> `Case`s."""
ALL = [Case(f"{command} {case[0]}".strip(), *case[1:]) for command, cases in CASES.items() for case in cases]


def everything_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content and every folder, except the lock of a run, which stays."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


@pytest.fixture
def here(tmp_path) -> Path:
    return tmp_path


def write(files: dict[str, bytes | str], here: Path) -> None:
    for name, content in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def arrange(case: Case, scene, here: Path) -> list[str]:
    """Make the files of a case; its arguments."""
    if isinstance(case.setup, dict):
        write(case.setup, here)
    else:
        case.setup(scene, here)
    return [scene.fill(word, here) for word in case.words.split()]


def check_error(case: Case, stderr: str, scene, here: Path) -> None:
    """The error is one line with the message of the case, apart from notes, and from progress on slow machines."""
    lines = [line for line in stderr.splitlines() if not PROGRESS.match(line) and not line.startswith("albert: note: ")]
    assert len(lines) == 1 and stderr.endswith("\n"), stderr
    assert lines[0].startswith("albert: error: ") and "internal error" not in stderr
    pattern = re.sub(r"\{([a-z_]+)\}", lambda match: re.escape(scene.fill(match[0], here)), case.message)
    assert re.search(pattern, lines[0].removeprefix("albert: error: ")), stderr


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.words} {case.message}")
def test_one_line_its_code_and_no_files(case, scene, here, capfd):
    words = arrange(case, scene, here)
    before = everything_below(here)
    capfd.readouterr()
    code = run(words)
    check_error(case, stderr := capfd.readouterr().err, scene, here)
    assert code == case.code, stderr
    assert everything_below(here) == before


def test_a_port_in_use_is_reported(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert run(["serve", "m", "--port", str(server.getsockname()[1])]) == 69
    assert "in use" in capsys.readouterr().err


PIPES = [
    (PREPARE, "text/a.txt"),
    (TRAIN, "text/a.jsonl"),
    ("prepare {here}/a.txt --tokenizer {tokenizer} --output {here}/out", "a.txt"),
    ("tokenizer encode a --tokenizer {here}/spiece.model", "spiece.model"),
    (OF_FILE, "r.json"),
    (TUNED, "train.csv"),
    (TUNED.replace("train.csv", "train.parquet"), "train.parquet"),
    (TUNED.replace("train.csv", "train.jsonl.gz"), "train.jsonl.gz"),
    (f"{TUNED} --task-file {{here}}/task.json", "task.json"),
    (EVALUATE, "dev.csv"),
    ("predict {classifier} --input {here}/a.jsonl --text-field review", "a.jsonl"),
    ("predict {classifier} --input {here}/a.csv.gz", "a.csv.gz"),
    ("predict {classifier} --input {here}/a.parquet --output {here}/out.jsonl", "a.parquet"),
]


@pytest.mark.parametrize(("command", "name"), PIPES, ids=[f"{c.split()[0]} {name}" for c, name in PIPES])
def test_a_pipe_is_refused_without_waiting(command, name, scene, here, capfd):
    def interrupt(number, frame):
        raise TimeoutError("the command waited for a pipe")

    pipe = here / name
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    if name == "task.json":
        (here / "train.csv").write_text("review,stars\na,b\n")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(20)
    try:
        code = run([scene.fill(part, here) for part in command.split()])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    error = capfd.readouterr().err
    assert code == 66, error
    assert re.search(rf"^albert: error: .*{re.escape(name)}: is a pipe, a file is expected; ", error, re.MULTILINE)
    assert not (here / "out").exists()


def test_a_separate_process_prints_the_same(scene, here):
    case = next(case for case in ALL if "is not JSON" in case.message)
    words = arrange(case, scene, here)
    before = everything_below(here)
    done = subprocess.run([sys.executable, "-m", "albert", *words], capture_output=True, text=True, timeout=300)
    check_error(case, done.stderr, scene, here)
    assert done.returncode == case.code and done.stdout == ""
    assert everything_below(here) == before


def test_cut_and_missing_answers_are_counted_and_no_question_is_dropped(scene, here, capsys):
    write(squad(("a", "a?", "Old ships"), ("b", "What sank? " * 30, "Old ships"), ("c", "c?", "submarines")), here)
    words = f"{SQUAD} --question-length 8 --stride 8 --steps 1 --batch-size 2"
    assert run([scene.fill(word, here) for word in words.split()]) == 0
    printed = capsys.readouterr().out
    for part in ("training", "development set"):
        assert f"{part}: 1 questions cut" in printed
        assert f"{part}: 1 answers not in their context, or there more than once" in printed
    assert len((here / "out/predictions-dev.jsonl").read_text().splitlines()) == 3
