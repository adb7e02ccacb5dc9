"""Bad input, wherever it is: one line that says what, where, why and what to do; its exit code; and nothing left."""

import gzip
import importlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from albert.cli.main import COMMANDS, run

TINY = (
    "--model.embedding-size 16 --model.hidden-size 32 --model.num-hidden-layers 2 --model.num-attention-heads 2 "
    "--model.intermediate-size 64 --sequences.max-length 32 --batch-size 2 --micro-batch-size 2 "
    "--evaluation-sequences 4 --schedule.total-steps 1 --schedule.warmup-steps 0 --precision fp32 --device cpu"
)
PROGRESS = re.compile(r"(Reading|Preparing|Pre-training|Evaluating|Fine-tuning)\b.*/s\b|albert serve: listening")
"""A line that a slow machine may see before the error; it is no part of it."""

TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
PREPARE = "prepare {here}/text --tokenizer {tokenizer} --output {here}/out --workers 1"
PRETRAIN = "pretrain quickstart --data {corpus} --output {here}/out --sequences.max-length 32"
FINETUNE = "finetune --train {here}/train.csv --dev {tables}/dev.csv --text review --label stars --output {here}/out"
TUNED = FINETUNE + " --model {pretrained}"
EVALUATE = "evaluate --model {classifier} --text review --label stars --dev {here}/dev.csv"
ONNX = "export onnx {pretrained} --output {here}/out"
VECTORS = "export sentence-transformers {pretrained} --output {here}/out"
GLUE = "finetune sst-2 --model {pretrained} --data {here} --output {here}/out"


@dataclass(frozen=True)
class Case:
    """One mistake.

    Args:
        name: what is wrong.
        command: the arguments, separated by blanks; `{here}` and the fields of `Scene` stand for paths.
        code: the exit code that docs/troubleshooting.md promises for it.
        says: regular expression for the line on stderr, after "albert: error: ".
        files: name below `{here}` -> content.
        make: does what files alone cannot.
    """

    name: str
    command: str
    code: int
    says: str
    files: dict[str, bytes | str] | None = None
    make: Callable | None = None


GOOD = "It was a day. It was another day."
JSON_LINES = '{"text": "It was a day."}\n{"txet": "It was another."}\n'
ROWS = "review,stars\nIt was good,positive\nIt was bad,negative\n"


def _text(content: bytes | str, name: str = "a.txt") -> dict[str, bytes | str]:
    return {f"text/{name}": content}


TEXT = [
    Case("missing corpus", PREPARE, 66, r"{here}/text: no such file or folder"),
    Case("missing corpus of a vocabulary", TRAIN, 66, r"{here}/text: no such file or folder"),
    Case("corpus not given", "prepare --tokenizer {tokenizer} --output {here}/out", 2, "corpus: no file"),
    Case("folder without text", PREPARE, 66, r"{here}/text: holds no \.txt", _text("a,b", "table.pdf")),
    Case(
        "folder with nothing but a link to itself",
        PREPARE,
        66,
        r"{here}/text: holds no \.txt",
        make=lambda scene, here: ((here / "text").mkdir(), (here / "text" / "self").symlink_to(".")),
    ),
    Case("empty file", PREPARE, 66, r"{here}/text: no document with text \(1 read\)", _text("")),
    Case("binary file", PREPARE, 65, r"a\.txt: is not text: NUL byte at byte 3; UTF-8", _text(b"abc\0\1\2")),
    Case("binary file by name", PREPARE.replace("/text", "/a.pdf"), 2, "a.pdf: cannot tell its", {"a.pdf": b"%PDF"}),
    Case("not UTF-8", PREPARE, 65, r"a\.txt: is not UTF-8: byte 7; convert", _text(b"A good\n\xff day.")),
    Case("not UTF-8, for a vocabulary", TRAIN, 65, r"a\.txt: is not UTF-8: byte 7", _text(b"A good\n\xff day.")),
    Case(
        "damaged gzip",
        PREPARE,
        65,
        r"a\.txt\.gz: damaged gzip file \(.+\); fetch or pack it again",
        _text(gzip.compress(GOOD.encode() * 99)[:-20], "a.txt.gz"),
    ),
    Case("gzip that is none", PREPARE, 65, r"a\.txt\.gz: damaged gzip", _text(b"It was no gzip.", "a.txt.gz")),
    Case("no text field", PREPARE, 65, r"a\.jsonl:2: has no field 'text'; did you", _text(JSON_LINES, "a.jsonl")),
    Case("no JSON", PREPARE, 65, r"a\.jsonl:1: is not JSON", _text("{text: 1}\n", "a.jsonl")),
    Case(
        "vocabulary larger than the text supports",
        TRAIN,
        78,
        "vocabulary of 300 pieces: this text supports 26 at most; ask for",
        _text(GOOD),
    ),
    Case("vocabulary of nothing", TRAIN.replace("300", "0"), 78, "vocab_size: 0 is not positive", _text(GOOD)),
    Case("coverage", TRAIN + " --character-coverage 2", 78, "character_coverage: ", _text(GOOD)),
    Case("missing tokenizer", PREPARE.replace("{tokenizer}", "{here}/t"), 66, r"{here}/t: .+tokenizer", _text(GOOD)),
    Case(
        "damaged tokenizer",
        PREPARE.replace("{tokenizer}", "{here}/spiece.model"),
        65,
        r"spiece\.model: is not a SentencePiece model",
        _text(GOOD) | {"spiece.model": b"no model"},
    ),
    Case("held-out share", PREPARE + " --held-out 1.5", 78, "held-out share: 1.5 is out of range", _text(GOOD)),
    Case("no workers", PREPARE + " --workers 0", 78, "workers: 0 is out of range", _text(GOOD)),
    Case("unknown flag of prepare", PREPARE + " --helt-out 0", 2, ".+--helt-out: unknown option; did you mean '--held"),
    Case("unknown stage of tokenizer", "tokenizer tran", 2, "albert tokenizer: tran: no such command; did you"),
    Case("unknown command", "prepair", 2, "prepair: no such command; did you mean 'prepare'"),
]

PRETRAINING = [
    Case("unknown recipe", PRETRAIN.replace("quickstart", "smal"), 2, "recipe smal: .+; did you mean 'small'"),
    Case(
        "unknown key of a recipe",
        PRETRAIN.replace("quickstart", "{here}/r.json"),
        78,
        r"{here}/r\.json: batchsize: unknown key; did you mean 'batch_size'",
        {"r.json": '{"batchsize": 3}'},
    ),
    Case(
        "unknown key inside a recipe",
        PRETRAIN.replace("quickstart", "{here}/r.json"),
        78,
        r"{here}/r\.json: model: hiden_size: unknown key; did you mean 'hidden_size'",
        {"r.json": '{"model": {"hiden_size": 3}}'},
    ),
    Case("recipe that is no JSON", PRETRAIN.replace("quickstart", "{here}/r.json"), 65, "is not JSON", {"r.json": "{"}),
    Case(
        "recipe that is a list",
        PRETRAIN.replace("quickstart", "{here}/r.json"),
        65,
        r"{here}/r\.json: holds a list, an object is expected",
        {"r.json": "[]"},
    ),
    Case(
        "word for a number in a recipe",
        PRETRAIN.replace("quickstart", "{here}/r.json"),
        78,
        r"{here}/r\.json: batch_size: is a string, int is expected",
        {"r.json": '{"batch_size": "eight"}'},
    ),
    Case(
        "unknown precision in a recipe",
        PRETRAIN.replace("quickstart", "{here}/r.json"),
        78,
        r"{here}/r\.json: precision: 'fp16' is not a choice",
        {"r.json": '{"precision": "fp16"}'},
    ),
    Case("recipe file that is not there", PRETRAIN.replace("quickstart", "no.json"), 2, "recipe no.json: neither a"),
    Case("no recipe", PRETRAIN.replace("quickstart ", ""), 2, "albert pretrain: the first word is a recipe; one of"),
    Case("unknown flag", PRETRAIN + " --model.hiden-size 8", 2, ".+ unknown option; did you mean '--model.hidden-size"),
    Case("unknown short name", PRETRAIN + " --total-step 3", 2, "albert pretrain quickstart: --total-step: unknown"),
    Case("unknown choice", PRETRAIN + " --on-divergence ignore", 2, "albert pretrain quickstart: .+on-divergence"),
    Case("word for a number", PRETRAIN + " --batch-size many", 2, "albert pretrain quickstart: .+batch-size.+many"),
    Case("beta", PRETRAIN + " --optimizer.beta1 1.5", 78, "beta1: is 1.5, a value from 0 to below 1 is needed"),
    Case("flag without its value", PRETRAIN + " --batch-size", 2, ".+batch-size"),
    Case("corpus not named", "pretrain quickstart --output {here}/out", 2, "--data: is missing"),
    Case("heads", PRETRAIN + " --model.num-attention-heads 7", 78, "num_attention_heads: 7 heads do not divide"),
    Case("length", PRETRAIN + " --sequences.max-length 999", 78, "sequences.max_length: 999 is more than"),
    Case("no batch", PRETRAIN + " --batch-size 0", 78, "batch_size: is 0, at least 1 is needed"),
    Case("negative rate", PRETRAIN + " --optimizer.learning-rate -1", 78, "learning_rate: is -1.0, a number above 0"),
    Case("rate that is no number", PRETRAIN + " --optimizer.learning-rate nan", 78, "learning_rate: is nan"),
    Case("negative decay", PRETRAIN + " --optimizer.weight-decay -1", 78, "weight_decay: is -1.0"),
    Case("no minutes", PRETRAIN + " --max-minutes 0", 78, "max_minutes: is 0"),
    Case("unknown batch to scale to", PRETRAIN + " --scale-batch half", 2, "--scale-batch: is half, a number of seque"),
    Case("no batch to scale to", PRETRAIN + " --scale-batch=0", 2, "--scale-batch: is 0, a number of sequences from 1"),
    Case("focus", PRETRAIN + " --hard-examples.focus -1", 78, "hard_examples.focus: is -1.0, a number from 0 to 10"),
    Case(
        "a sentence head asked that is not trained",
        PRETRAIN + " --sequences.objective none --evaluation-objectives sop",
        78,
        "evaluation_objectives: ask a sentence head",
    ),
    Case("no window", PRETRAIN + " --model.attention-window 0", 78, "attention_window: is 0"),
    Case("a benchmark without data", "finetune glue --model {pretrained} --output {here}/out", 2, "--data: is missing"),
    Case("no seeds", GLUE + " --seeds 0", 78, "seeds: are 0"),
    Case("curves of nothing", "plot {here}/absent --output {here}/out.png", 66, r"{here}/absent: "),
    Case("no steps", PRETRAIN + " --schedule.total-steps 0", 78, "total_steps: is 0"),
    Case("warm-up past the end", PRETRAIN + " --schedule.total-steps 5", 78, "warmup_steps: "),
    Case("dropout", PRETRAIN + " --model.hidden-dropout-prob 1", 78, "hidden_dropout_prob: is 1.0"),
    Case("unknown device", PRETRAIN + " --device tpu", 2, "invalid choice 'tpu' for argument '--device'"),
    Case("missing corpus", PRETRAIN.replace("{corpus}", "{here}/c"), 66, r"{here}/c: holds no corpus\.json"),
]


def _damaged(scene, here: Path) -> None:
    """A copy of the corpus with one bit of its tokens flipped."""
    shutil.copytree(scene.corpus, here / "corpus")
    tokens = next((here / "corpus" / "train").glob("*.tokens.bin"))
    content = bytearray(tokens.read_bytes())
    content[len(content) // 2] ^= 1
    tokens.write_bytes(content)


def _damaged_checkpoint(scene, here: Path) -> None:
    """A copy of the run before its end, whose newest checkpoint has lost its end."""
    shutil.copytree(scene.run, here / "out")
    shutil.rmtree(here / "out" / "model")
    weights = here / "out" / "checkpoints" / "step-00000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])


def _finished(scene, here: Path) -> None:
    shutil.copytree(scene.run, here / "out")


def _own_table(scene, here: Path) -> None:
    shutil.copy(scene.tables / "train.csv", here / "train.csv")


def _table_and_a_run(scene, here: Path) -> None:
    _own_table(scene, here)
    _finished(scene, here)


RUN_AGAIN = "pretrain {run}/recipe.json --data {corpus} --output {here}/out --device cpu"
PLACES = [
    Case("damaged corpus", PRETRAIN.replace("{corpus}", "{here}/corpus"), 65, r".+tokens\.bin: SHA-256", make=_damaged),
    Case(
        "damaged corpus, for an evaluation",
        "evaluate pretraining --model {pretrained} --data {here}/corpus",
        65,
        r".+tokens\.bin: SHA-256 differs from MANIFEST\.json",
        make=_damaged,
    ),
    Case(
        "damaged newest checkpoint",
        RUN_AGAIN,
        65,
        r"{here}/out/checkpoints/step-00000004/model\.safetensors: has \d+ bytes, .+; "
        r"remove {here}/out/checkpoints/step-00000004 to go on from step 2, which is intact",
        make=_damaged_checkpoint,
    ),
    Case(
        "another run in the output",
        RUN_AGAIN + " --seed 1",
        78,
        "{here}/out: this run was started with seed 0, now it is 1; choose another output",
        make=_finished,
    ),
    Case(
        "a pre-training run in the output of a fine-tuning",
        TUNED,
        73,
        "{here}/out: holds another run, its recipe.json has another task; choose another output",
        make=_table_and_a_run,
    ),
    Case("output that is a file", PRETRAIN, 73, "{here}/out: File exists", {"out": "mine"}),
    Case(
        "output that is a file, for text", PREPARE, 73, "{here}/out: exists already; choose", _text(GOOD) | {"out": "m"}
    ),
    Case("output that exists", TRAIN, 73, "{here}/out: exists already", _text(GOOD) | {"out/mine.txt": "m"}),
    Case("output that is a file, for a task", TUNED, 73, "{here}/out: File exists", {"out": "m"}, _own_table),
    Case("output that cannot be made", PREPARE.replace("{here}/out", "/proc/out"), 73, "^/proc/", _text(GOOD)),
    Case("output that cannot be made, for a run", PRETRAIN.replace("{here}/out", "/proc/out"), 73, "^/proc/out: "),
    Case(
        "output below a file",
        PRETRAIN.replace("{here}/out", "{here}/file/out"),
        73,
        "{here}/file/out: Not a directory",
        {"file": "mine"},
    ),
]

MODELS = [
    Case("no head for classes", "predict {pretrained} --classify x", 78, "{pretrained}: has no trained head to class"),
    Case(
        "no head for masks", "predict {classifier} --fill-mask [MASK]", 78, "{classifier}: has no trained head to fill"
    ),
    Case("no head for answers", "predict {classifier} --question a --context b", 78, ".+has no trained head to answer"),
    Case(
        "no head for a task",
        EVALUATE.replace("{classifier}", "{pretrained}"),
        78,
        "{pretrained}: ",
        {"dev.csv": ROWS},
    ),
    Case(
        "no head for pre-training's figures",
        "evaluate pretraining --model {classifier} --data {corpus}",
        78,
        "{classifier}: has no head for the tasks of pre-training, it is an AlbertForSequence",
    ),
    Case(
        "corpus of another tokenizer",
        "evaluate pretraining --model {pretrained} --data {other_corpus}",
        78,
        "{pretrained}: has tokenizer v2:[0-9a-f]+, {other_corpus} was prepared with v2:[0-9a-f]+; prepare the corpus",
    ),
    Case("missing model", "predict {here}/none --classify x", 66, "{here}/none: no such directory"),
    Case("missing model, by a name", "predict nobody/none --classify x", 69, "nobody/none: no such directory here"),
    Case(
        "missing model of a task",
        FINETUNE + " --model {here}/none",
        66,
        "{here}/none: no such directory",
        {},
        _own_table,
    ),
    Case("file for a model", "predict {here}/a.bin --classify x", 66, r"{here}/a\.bin: is a file", {"a.bin": b"a"}),
    Case("folder that is no model", "predict {text} --classify x", 66, r"{text}/config\.json"),
    Case("unknown preset", "info albert-bse", 69, "albert-bse: is not a preset; .+; did you mean 'albert-base'"),
    Case("no mask", "predict {pretrained} --fill-mask nothing", 2, r".+\[MASK\]"),
    Case("nothing asked", "predict {pretrained}", 2, "albert predict: nothing is asked; give one of --fill-mask"),
    Case("no answers", "predict {pretrained} --fill-mask [MASK] --top-k 0", 2, "--top-k: is 0"),
    Case(
        "unknown device",
        "predict {pretrained} --fill-mask [MASK] --device tpu",
        2,
        "invalid choice 'tpu' for argument '--device'",
    ),
    Case(
        "table without a text",
        "predict {classifier} --input {tables}/dev.csv",
        65,
        r"{tables}/dev\.csv:2: has no field 'text'; known: review, stars",
    ),
    Case("picture as input", "predict {classifier} --input {here}/a.png", 2, r"{here}/a\.png", {"a.png": b"PNG"}),
    Case("missing input", "predict {classifier} --input {here}/in.txt", 66, r"{here}/in\.txt: No such file"),
    Case(
        "predictions into a missing folder's file",
        "predict {classifier} --input {text}/00.txt --output {here}/file/out.jsonl",
        73,
        "{here}/file",
        {"file": "m"},
    ),
]

TASKS = [
    Case("unknown task", GLUE.replace("sst-2", "sst-3"), 2, "task sst-3: unknown; did you mean 'sst-2'"),
    Case("no task", "finetune --model {pretrained} --output {here}/out", 2, "albert finetune: no task; name"),
    Case("missing task files", GLUE, 66, r"{here}: has no train\.tsv; expected {here}/SST-2/train\.tsv or"),
    Case("missing table", TUNED, 66, r"{here}/train\.csv: No such file"),
    Case("empty table", TUNED, 66, r"{here}/train\.csv: has no rows", {"train.csv": ""}),
    Case("wrong kind of table", TUNED.replace("train.csv", "t.xlsx"), 2, "t.xlsx: unknown kind of", {"t.xlsx": b"PK"}),
    Case(
        "wrong column", TUNED + " --text reviw", 65, r".+has no column 'reviw'; did you mean 'review'", {}, _own_table
    ),
    Case("wrong label column", TUNED + " --label star", 65, ".+no column 'star'; did you mean 'stars'", {}, _own_table),
    Case(
        "unknown label",
        TUNED,
        65,
        r"{tables}/dev\.csv:2: unknown label 'negative' in column 'stars'; ",
        {"train.csv": ROWS.replace(",negative", ",poor")},
    ),
    Case(
        "one label",
        TUNED,
        78,
        r"{here}/train\.csv: every row has the label",
        {"train.csv": ROWS.replace(",negative", ",positive")},
    ),
    Case("empty label", TUNED, 65, r"{here}/train\.csv:3: empty label", {"train.csv": ROWS.replace(",negative", ",")}),
    Case("ragged CSV", TUNED, 65, r"{here}/train\.csv:4: has 3 fields where", {"train.csv": ROWS + "a,b,c\n"}),
    Case("broken quotes", TUNED, 65, r"{here}/train\.csv:4: broken CSV", {"train.csv": ROWS + '"a"b,positive\n'}),
    Case(
        "not UTF-8",
        TUNED,
        65,
        r"{here}/train\.csv:2: is not UTF-8: byte 0; convert",
        {"train.csv": b"review,stars\n\xff,positive\n"},
    ),
    Case(
        "number that is none",
        TUNED + " --regression",
        65,
        r".+train\.csv:2: 'negative'.+is not a number",
        {},
        _own_table,
    ),
    Case("negative rate", TUNED + " --learning-rate -1", 78, "learning_rate: must be above 0", {}, _own_table),
    Case("no batch", TUNED + " --batch-size 0", 78, "batch_size: must be above 0", {}, _own_table),
    Case("no steps", TUNED + " --steps 0", 78, "steps: must be above 0", {}, _own_table),
    Case("no room", TUNED + " --max-length 3", 78, "max_length: must be at least 8", {}, _own_table),
    Case("unknown flag", TUNED + " --lerning-rate 1", 2, ".+unknown option; did you mean '--learning-rate"),
    Case(
        "temperature",
        TUNED + " --temperature 0.1",
        2,
        "--temperature: goes with --objective contrastive",
        {},
        _own_table,
    ),
    Case("no micro-batch", TUNED + " --micro-batch-tokens 0", 78, "micro_batch_tokens: is 0", {}, _own_table),
    Case("negative workers", TUNED + " --workers -1", 78, "workers: is -1", {}, _own_table),
    Case(
        "model of other labels",
        EVALUATE,
        65,
        r"{here}/dev\.csv:3: unknown label",
        {"dev.csv": ROWS.replace(",negative", ",poor")},
    ),
    Case("unknown split", "evaluate sst-2 --model {classifier} --data {here} --split tset", 78, ".*split tset"),
    Case("missing column of an evaluation", EVALUATE.replace("--text review", ""), 2, ".+your own file needs --text"),
    Case(
        "no tokens at a time", EVALUATE + " --micro-batch-tokens 0", 78, "micro_batch_tokens: is 0", {"dev.csv": ROWS}
    ),
    Case("results below a file", EVALUATE + " --results {here}/dev.csv/r", 73, "{here}/dev.csv", {"dev.csv": ROWS}),
]

EXPORTS = [
    Case("unknown format", "export tflite {pretrained} --output {here}/out", 2, "albert export: tflite: no such"),
    Case("no model", ONNX.replace("{pretrained}", "{here}/none"), 66, "none: no such directory"),
    Case("no output", "export onnx {pretrained}", 2, "--output: is missing"),
    Case("old opset", ONNX + " --opset 11", 78, "opset: is 11, .*17 to 24"),
    Case("unknown precision", ONNX + " --precision int4", 2, "int4.*fp32.*int8"),
    Case("no depth", ONNX + " --depth 0", 78, "depth: is 0, .*choose one from 1"),
    Case("directory exists", "export onnx {pretrained} --output {here}", 73, "exists already"),
    Case("file exists", ONNX + ".onnx", 73, r"out\.onnx: exists already", {"out.onnx": "mine"}),
    Case("a corpus", ONNX.replace("{pretrained}", "{corpus}"), 66, r"config\.json"),
    Case("vectors of no model", VECTORS.replace("{pretrained}", "{here}/none"), 66, "none: no such directory"),
    Case("vectors of a corpus", VECTORS.replace("{pretrained}", "{corpus}"), 66, r"config\.json"),
    Case("vectors exist", VECTORS.replace("/out", ""), 73, "exists already"),
    Case("no such pooling", VECTORS + " --pooling max", 2, "max.*cls"),
    Case("quantise a corpus", "quantize {corpus} --output {here}/out", 66, r"config\.json"),
    Case("quantise no model", "quantize {here}/none --output {here}/out", 66, "none: no such directory"),
    Case("quantised output exists", "quantize {pretrained} --output {here}", 73, "exists already"),
]

ROWS_OF_MINE = "review,stars\n" + "".join(f"it was {n},{n % 3 + 1}\n" for n in range(24))
SCORED = "evaluate --model {classifier} --dev {tables}/dev.csv --text review --label stars --device cpu"
BAD_RECIPES = {
    "batch_sise = 3": (78, "batch_sise: unknown key; did you mean 'batch_size'\\?"),
    "learning_rate = 3": (78, "learning_rate: unknown key; did you mean 'optimizer.learning_rate'\\?"),
    "[model]\nhidden_sise = 3": (78, "model: hidden_sise: unknown key; did you mean 'hidden_size'\\?"),
    "batch_size = '3'": (78, "batch_size: is a string, int is expected"),
    "batch_size = 2020-01-01": (78, "batch_size: is date "),
    "batch_size =": (65, "is not TOML \\(Invalid value"),
    "\xff": (65, "is not UTF-8"),
}
BAD_TASK_FILES = {
    "": ({"txt": "review"}, 78, "{here}/ask.json: txt: unknown key; did you mean 'text'"),
    " --device cpu": ({"text": "review", "label": "stars", "held_out": {"share": 2}}, 78, "held-out share: is 2"),
    " --seed 1": ({"text": "review", "label": "stars", "kind": "class"}, 78, "kind: 'class' is not a choice"),
    " --classes --regression": ({"text": "review", "label": "stars"}, 2, "contradict each other"),
    " --metrics f7": ({"text": "review", "label": "stars"}, 78, "metric f7: does not go with classification"),
}
FILES = [
    *(
        Case(
            f"recipe {text!r}",
            "pretrain small --recipe {here}/bad.toml --data nowhere --output {here}/out",
            code,
            r"bad\.toml: (.*: )?" + says,
            {"bad.toml": text.encode("latin-1")},
        )
        for text, (code, says) in BAD_RECIPES.items()
    ),
    *(
        Case(
            f"task file, {says}",
            "finetune --task-file {here}/ask.json --model {pretrained} --output {here}/out" + flags,
            code,
            says,
            {"ask.json": json.dumps({"train": "my.csv", **content}), "my.csv": ROWS_OF_MINE},
        )
        for flags, (content, code, says) in BAD_TASK_FILES.items()
    ),
    Case(
        "options of finetune with an unknown one",
        "finetune --recipe {here}/bad.toml --model tiny --output out",
        78,
        "bad.toml: learning_rat: unknown key; did you mean 'learning_rate'\\?",
        {"bad.toml": "learning_rat = 3\n"},
    ),
]

LINES = {
    "info": [
        ("albert-base --max-length 0", 2, "--max-length: is 0, at least 1 is needed"),
        ("albert-base --batch-size 0 --measure", 2, "--batch-size: is 0, at least 1 is needed"),
        ("albert-base --batch-size 4", 2, "--batch-size: requires --measure or --memory; add one of them"),
        ("albert-base --memory-limit 8GB", 2, "--memory-limit: requires --memory; add --memory"),
        ("albert-base --memory --memory-limit 8", 2, "--memory-limit: '8' is not a valid size; write it as 24GB or 8"),
        ("albert-base --memory --max-length 513", 2, "--max-length: is 513, the model has 512 positions"),
        ("albert-base --memory --compare bert-base", 2, "--memory: cannot be combined with --compare; leave out --com"),
        ("{corpus} --memory", 2, "--memory: goes with a model, {corpus} is a corpus"),
        ("--memory", 2, "--memory: needs a model or preset before it"),
        ("albert-base --measure --max-length 513", 2, "--max-length: is 513, the model has 512 positions"),
        ("albert-base --self-check", 2, "--self-check: goes with a model, albert-base is a preset"),
        ("albert-base --revision main", 2, "--revision: goes with a model, albert-base is a preset"),
        ("{corpus} --compare albert-base", 2, "--compare: goes with a model, {corpus} is a corpus"),
        ("{tokenizer} --measure", 2, "--measure: goes with a model, {tokenizer} is a tokenizer"),
        ("albert-base --compare {corpus}", 2, "--compare: {corpus} is a corpus, an architecture is needed"),
        ("--compare albert-base", 2, "--compare: needs a model or preset before it"),
        ("--measure", 2, "--measure: needs a model or preset before it"),
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
        ("{here}", 66, r"{here}: holds no MANIFEST\.json"),
        ("{here}/nowhere", 66, "{here}/nowhere: no such directory"),
    ],
    "completion": [("ksh", 2, "ksh")],
    "analyze layers": [
        ("", 2, "no model is named"),
        ("{pretrained} --output layers.pdf", 2, "must end in .png"),
        ("{pretrained} --words 0", 2, "--words: is 0"),
        ("{pretrained} --text nowhere.txt", 66, "no such file"),
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
        ("run 5 --output {here}/out", 2, "--data: is needed: what `albert prepare` wrote"),
        ("run 5 --output {here}/out --data {here}/absent", 66, "{here}/absent: "),
        ("run 55 --output {here}/out --data {corpus}", 2, r"table 55: unknown; did you mean '5'\?"),
        ("run --output {here}/out --data {corpus}", 2, "albert tables: no table is named"),
        ("run 5 --output {here}/out --data {corpus} --glue-data {here}/absent", 66, "{here}/absent: is not a folder"),
        ("plan 5 --output {here}/out --data {corpus} --files sst-2", 2, "--files: 'sst-2' is not TASK/SPLIT=FILE"),
        ("plan 5 --output {here}/out --data {corpus} --threads 0", 2, "--threads: is 0, at least 1 is needed"),
        ("export {here}/copy --output {here}/out", 66, r"{here}/out/study\.json: no tables were run here"),
        ("runs", 2, r"albert tables: runs: no such command; did you mean 'run'\?"),
    ],
    "pretrain": [
        *(
            (f"{words} --data {{corpus}} --output {{here}}/out", code, says)
            for words, code, says in (
                ("continue", 2, "albert pretrain continue: no model to continue with; albert pretrain continue --init"),
                ("continue --init {here}/absent", 66, "{here}/absent: no such directory"),
                ("continue --init {tokenizer}", 66, "{tokenizer}/config.json: "),
                ("continue --init {run} --revision main", 2, "revision: 'main' of {run}, which is a directory"),
                ("quickstart --resize-vocabulary", 2, "--resize-vocabulary: goes with --init MODEL"),
                ("quickstart --extend-positions tile", 2, "--extend-positions: goes with --init MODEL"),
                ("quickstart --drop-heads masked_tokens", 2, "--drop-heads: goes with --init MODEL"),
                ("quickstart --revision main", 2, "--revision: goes with --init MODEL"),
                ("continue --init {run} --drop-heads both", 2, "albert pretrain continue: "),
                ("continue --init {run} --extend-positions cut", 2, "albert pretrain continue: "),
                ("quickstart --init {run}", 78, "embedding_size: is 16 in the trained model and 64 here"),
                ("continue --init {run} --model.intermediate-size 96", 78, "intermediate_size: is 64 in the"),
                ("quickstart --change-dropout 0.1", 78, "--change-dropout: {here}/out has no checkpoint to go on from"),
                ("quickstart --change-dropout 1.5", 78, "--change-dropout: {here}/out has no checkpoint to go on from"),
                ("quickstart --dropout-changes 5 0.1 2 0", 78, r"dropout_changes: are at updates \[5, 2\]"),
            )
        ),
        ("small --data d --output o --num-train-epochs 3", 2, "pre-training counts updates: --steps"),
        ("small --data d --output o --warmup-ratio 0.1", 2, "pre-training counts updates: --warmup-steps"),
        ("small --data d --output o --hiden-size 3", 2, r"unknown option; did you mean '--hidden-size'\?"),
        ("small --lr-scheduler-type linear", 2, "leave it out; the rate rises, then falls linearly to 0"),
        ("small --fsdp full_shard", 2, "--parallelism sharded divides the model over processes"),
        ("small", 2, "--data: is missing; it is a corpus from `albert prepare`"),
    ],
    "finetune": [
        ("--model m --lernrate 1", 2, r"--lernrate: unknown option; did you mean '--learning-rate'\?"),
        ("--model m --num-epoch 1", 2, r"--num-epoch: unknown option; did you mean '--epochs'\?"),
        ("--model m --max_sequence_len 1", 2, r"unknown option; did you mean '--max-length'\?"),
        ("--model m --fp16", 2, "--fp16: unknown option; --precision bf16"),
        ("--model m --gradient_accumulation_steps 2", 2, r"--micro-batch-tokens \(finetune\)"),
        ("--model m --max-eval-samples 3", 2, "leave it out; an evaluation takes all rows of its file"),
        ("--model m --resume-from-checkpoint c", 2, "the same command resumes from the last checkpoint"),
        ("--model m --tokenizer-name t", 2, "leave it out; the tokenizer is in the directory of --model"),
        ("--model m --report-to none", 2, "leave it out; the run's folder contains TensorBoard events"),
        ("--model m --push-to-hub", 2, "albert push MODEL USER/NAME does that"),
        ("sst-2", 2, "--model: is missing; it is a model directory, a run that made one, or a Hub id; see albert "),
    ],
    "quantize": [
        ("m --output o --fp16", 2, "--fp16: unknown option; --help shows the usual options"),
        ("m --OUTPUT o", 2, r"did you mean '--output'\?"),
        ("m --output o --zzz", 2, "unknown option; --help shows the usual options"),
        ("m --output o --lr 1", 2, "albert quantize: --lr: unknown option"),
    ],
    "predict": [
        ("--classify x", 2, "albert predict: MODEL is missing; see albert predict --help"),
        ("{classifier} --classify a --revision v1", 2, "is a directory; it goes with a Hub id"),
    ],
    "evaluate": [
        ("sst-2 --data x --model {classifier} --revision v1", 2, "is a directory; it goes with a Hub id"),
        ("pretraining --model {pretrained} --data {corpus} --max-ngram 0", 78, "masking.max_ngram: is 0, at least 1"),
        ("--text review --label stars --dev {tables}/dev.csv --model", 2, "--model: names no model"),
    ],
    SCORED: [
        ("--json", 2, "--json: goes with pretraining"),
        ("--csv", 2, "--csv: goes with pretraining"),
        ("--precision fp32 bf16 --predictions {here}/out.jsonl", 2, "--predictions: goes with one precision"),
        ("--precision fp32 bf16 --tolerance -1", 78, "tolerance: is -1.0, a number of points from 0 on is needed"),
        ("--depth 2 99", 78, "depth: is 99, the model has 2 layers"),
        ("--depth 0", 78, "depth: is 0"),
        ("--patience 2", 78, "was trained to answer only after its last layer"),
        ("--depth 1 2 --predictions {here}/p.jsonl", 2, "--predictions: requires a single --depth"),
        ("--depth 1 2 --rounds 0", 2, "--rounds: is 0"),
    ],
}
"""Command -> what may follow it, the exit code, and what is said."""

ALL = [*TEXT, *PRETRAINING, *PLACES, *MODELS, *TASKS, *EXPORTS, *FILES]
ALL += [
    Case(f"{command} {words}", f"{command} {words}", code, says)
    for command, lines in LINES.items()
    for words, code, says in lines
]


def everything_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content, every folder; but the lock of a run, which stays."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


@pytest.fixture
def here(tmp_path) -> Path:
    return tmp_path


def arrange(case: Case, scene, here: Path) -> list[str]:
    for name, content in (case.files or {}).items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if case.make is not None:
        case.make(scene, here)
    return [scene.fill(word, here) for word in case.command.split()]


def error_of(said: str) -> str:
    """The one line, without its head and without what a slow machine shows of its progress."""
    lines = [line for line in said.splitlines() if not PROGRESS.match(line)]
    assert len(lines) == 1 and said.endswith("\n"), said
    assert lines[0].startswith("albert: error: ") and "Traceback" not in said and "internal error" not in said
    return lines[0].removeprefix("albert: error: ")


def expected(case: Case, scene, here: Path) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda found: re.escape(scene.fill(found[0], here)), case.says)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_one_line_its_code_and_nothing_left(case, scene, here, capfd):
    words = arrange(case, scene, here)
    before = everything_below(here)
    capfd.readouterr()
    code = run(words)
    said = error_of(capfd.readouterr().err)
    assert re.search(expected(case, scene, here), said), said
    assert code == case.code, said
    assert everything_below(here) == before


def test_a_port_in_use_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", "m", "--port", str(taken.getsockname()[1])]) == 69
    assert "in use" in capsys.readouterr().err


PIPES = [
    (PREPARE, "text/a.txt"),
    (TRAIN, "text/a.jsonl"),
    ("prepare {here}/a.txt --tokenizer {tokenizer} --output {here}/out", "a.txt"),
    ("tokenizer encode a --tokenizer {here}/spiece.model", "spiece.model"),
    (PRETRAIN.replace("quickstart", "{here}/r.json"), "r.json"),
    (TUNED, "train.csv"),
    (TUNED.replace(".csv", ".parquet"), "train.parquet"),
    (TUNED.replace("train.csv", "train.jsonl.gz"), "train.jsonl.gz"),
    (f"{TUNED} --task-file {{here}}/task.json", "task.json"),
    (EVALUATE, "dev.csv"),
    ("predict {classifier} --input {here}/a.jsonl --text-field review", "a.jsonl"),
    ("predict {classifier} --input {here}/a.csv.gz", "a.csv.gz"),
    ("predict {classifier} --input {here}/a.parquet --output {here}/out.jsonl", "a.parquet"),
]


@pytest.mark.parametrize(("command", "name"), PIPES, ids=[f"{c.split()[0]} {name}" for c, name in PIPES])
def test_a_pipe_is_refused_and_not_waited_for(command, name, scene, here, capfd):
    pipe = here / name
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGALRM, _interrupt)
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


def _interrupt(number, frame):
    raise TimeoutError("a pipe was waited for")


def test_a_real_process_says_the_same(scene, here):
    (case,) = (case for case in ALL if case.name == "no JSON")
    words = arrange(case, scene, here)
    before = everything_below(here)
    done = subprocess.run([sys.executable, "-m", "albert", *words], capture_output=True, text=True, timeout=300)
    assert re.search(expected(case, scene, here), error_of(done.stderr))
    assert done.returncode == case.code and done.stdout == ""
    assert everything_below(here) == before


SHORT = " --steps 1 --max-length 16 --batch-size 2 --device cpu"
FULL = [
    (
        9000,
        Case("prepare", PREPARE.replace("{here}/text", "{text}"), 74, "^{here}/.*out.*: File too large; free space"),
    ),
    (9000, Case("tokenizer", TRAIN.replace("{here}/text", "{text}").replace("300", "180"), 74, "^{here}/.*: File too")),
    (9000, Case("finetune", TUNED + SHORT, 74, "^{here}/out/.+: File too large", {}, _own_table)),
    (900_000, Case("weights", f"{PRETRAIN} {TINY} --model.intermediate-size 9999", 74, "File too large; free space")),
]
"""What does not fit first, by the size that files may have: a tokenizer, or the weights, which a library writes."""


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process or its children grows beyond so many bytes."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.parametrize(("limit", "case"), [pytest.param(*pair, id=pair[1].name) for pair in FULL])
def test_a_full_disk_is_one_line_and_leaves_no_half(case, limit, scene, here, capfd):
    words = arrange(case, scene, here)
    importlib.import_module(COMMANDS[words[0]].module)  # first, or the limit would meet Python's own caches
    capfd.readouterr()
    with files_of_at_most(limit):
        code = run(words)
    said = capfd.readouterr().err
    assert re.search(expected(case, scene, here), error_of(said)), said
    assert code == 74
    left = everything_below(here)
    assert not [name for name in left if ".tmp-" in name or name.endswith(".safetensors")]
