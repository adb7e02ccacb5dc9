"""Bad input to every command: one line with subject, reason and remedy, the documented exit code, and no files left."""

import gzip
import json
import os
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

from albert.checkpoints.config_json import read_config
from albert.checkpoints.huggingface import build_model
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run

TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
PREPARE = "prepare {here}/text --tokenizer {tokenizer} --output {here}/out --workers 1"
PRETRAIN = "pretrain quickstart --data {corpus} --output {here}/out max_length=32"
OF_FILE = PRETRAIN.replace("quickstart", "{here}/r.json")
FINETUNE = "finetune --train {here}/train.csv --dev {tables}/dev.csv --text review --label stars --output {here}/out"
TUNED = FINETUNE + " --model {pretrained}"
EVALUATE = "evaluate --model {classifier} --text review --label stars --dev {here}/dev.csv"
SCORED = EVALUATE.replace("{here}", "{tables}") + " --device cpu"
ONNX = "export onnx {pretrained} --output {here}/out"
VECTORS = "export sentence-transformers {pretrained} --output {here}/out"
GLUE = "finetune sst-2 --model {pretrained} --data {here} --output {here}/out"
SENTENCES = "evaluate sst-2 --model {here}/model --data {here} --device cpu"
SQUAD = "finetune squad-1.1 --model {pretrained} --data {here} --output {here}/out max_length=32 --device cpu"
TASK_FILE = "finetune {here}/ask.json --model {pretrained} --output {here}/out"
RUN_AGAIN = "pretrain {run}/recipe.json --data {corpus} --output {here}/out --device cpu"

GOOD = {"text/a.txt": "It was a day. It was another day."}
ROWS = "review,stars\nIt was good,positive\nIt was bad,negative\n"
TABLE, DEV = {"train.csv": ROWS}, {"dev.csv": ROWS}
SENTENCE = "sentence\tlabel\n"
SST2 = {f"SST-2/{split}.tsv": SENTENCE + "good\t1\nbad\t0\n" for split in ("train", "dev")}


class Case(NamedTuple):
    """A command that fails.

    Attributes:
        words: added to the command; `{here}` and the fields of `Scene` stand for paths.
        code: the exit code in docs/troubleshooting.md.
        subject: words that are in the line on stderr, separated by spaces: files, options, values.
        setup: name below `{here}` -> content, or a function of the scene and the folder.
    """

    words: str
    code: int
    subject: str
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


def questions(context: str = "one two", start: object = 0) -> dict:
    """The content of a file of SQuAD with one question."""
    question = {"id": "q", "question": "which?", "answers": [{"text": "one", "answer_start": start}]}
    return {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}


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
    """A copy of the run without its model and results, and with a truncated newest checkpoint."""
    shutil.copytree(scene.run, here / "out")
    shutil.rmtree(here / "out" / "model")
    (here / "out" / "results.json").unlink()
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
        ("", 66, "{here}/text"),
        ("", 66, "{here}/text .txt", text("a,b", "table.pdf")),
        ("", 66, "{here}/text .txt", link_to_itself),
        ("", 66, "{here}/text empty", text("")),
        ("", 65, "a.txt NUL 3", text(b"abc\0\1\2")),
        ("", 65, "a.txt 7", text(b"A good\n\xff day.")),
        ("", 65, "a.txt.gz", text(gzip.compress(b"a day" * 99)[:-20], "a.txt.gz")),
        ("", 65, "a.txt.gz", text(b"It was no gzip.", "a.txt.gz")),
        ("", 65, "a.jsonl:2 text", text('{"text": "a"}\n{"txet": "b"}\n', "a.jsonl")),
        ("", 65, "a.jsonl:1", text("{text: 1}\n", "a.jsonl")),
        ("--held-out 1.5", 78, "held-out 1.5", GOOD),
        ("--workers 0", 78, "workers 0", GOOD),
        ("--helt-out 0", 2, "--helt-out --held"),
        ("", 73, "{here}/out", GOOD | {"out": "m"}),
    ],
    "prepare": [
        ("--tokenizer {tokenizer} --output {here}/out", 2, "CORPUS"),
        ("{here}/a.pdf --tokenizer {tokenizer} --output {here}/out", 2, "a.pdf", {"a.pdf": "%PDF"}),
        ("{here}/text --tokenizer {here}/t --output {here}/out", 66, "{here}/t", GOOD),
        (
            "{here}/text --tokenizer {here}/spiece.model --output {here}/out",
            65,
            "spiece.model",
            GOOD | {"spiece.model": b"no model"},
        ),
        ("{here}/text --tokenizer {tokenizer} --output /proc/out --workers 1", 73, "/proc/", GOOD),
    ],
    TRAIN: [
        ("", 66, "{here}/text"),
        ("", 65, "a.txt 7", text(b"A good\n\xff day.")),
        ("", 78, "vocabulary 300 26", GOOD),
        ("--character-coverage 2", 78, "--character-coverage", GOOD),
        ("", 73, "{here}/out", GOOD | {"out/mine.txt": "m"}),
    ],
    TRAIN.replace("300", "0"): [("", 78, "--vocab-size 0", GOOD)],
    "": [
        ("tokenizer tran", 2, "tran train"),
        ("prepair", 2, "prepair prepare"),
    ],
    OF_FILE: [
        ("", 78, "r.json batchsize batch_size", {"r.json": '{"batchsize": 3}'}),
        (
            "",
            78,
            "r.json hiden_size hidden_size",
            {"r.json": '{"model": {"hiden_size": 3}}'},
        ),
        ("", 65, "r.json", {"r.json": "{"}),
        ("", 65, "{here}/r.json", {"r.json": "[]"}),
        ("", 78, "r.json batch_size", {"r.json": '{"batch_size": "eight"}'}),
        ("", 78, "r.json precision fp16", {"r.json": '{"precision": "fp16"}'}),
    ],
    "pretrain {here}/bad.toml --data nowhere --output {here}/out": [
        ("", code, f"bad.toml {subject}", {"bad.toml": content.encode("latin-1")})
        for content, code, subject in (
            ("learnin_rate = 3", 78, "learnin_rate learning_rate"),
            ("batch_size = 2020-01-01", 78, "batch_size date"),
            ("batch_size =", 65, "TOML"),
            ("\xff", 65, "UTF-8"),
        )
    ],
    PRETRAIN: [
        ("--model.hiden-size 8", 2, "architecture.hidden_size"),
        ("--total-step 3", 2, "--total-step"),
        ("on_divergence=ignore", 2, "on_divergence"),
        ("batch_size=many", 2, "batch_size many"),
        ("batch_size=", 2, "batch_size"),
        ("optimizer.beta1=1.5", 78, "beta1 1.5"),
        ("architecture.num_attention_heads=7", 78, "num_attention_heads 7"),
        ("max_length=999", 78, "max_length 999"),
        ("batch_size=0", 78, "batch_size 0"),
        ("learning_rate=-1", 78, "learning_rate -1"),
        ("learning_rate=nan", 2, "learning_rate nan"),
        ("checkpoint_minutes=inf", 2, "checkpoint_minutes inf"),
        ("optimizer.weight_decay=-1", 78, "optimizer.weight_decay -1"),
        ("max_minutes=0", 78, "max_minutes 0"),
        ("scale_batch=half", 2, "scale_batch half"),
        ("scale_batch=0", 2, "scale_batch 0"),
        ("sequences.objective=none evaluation_objectives=sop", 78, "evaluation_objectives"),
        ("steps=0", 78, "steps 0"),
        ("architecture.hidden_dropout_prob=1", 78, "architecture.hidden_dropout_prob 1"),
        ("--device tpu", 2, "--device tpu"),
        ("", 73, "{here}/out", {"out": "mine"}),
    ],
    "pretrain": [
        *(
            (f"{words} --data {{corpus}} --output {{here}}/out", code, subject)
            for words, code, subject in (
                ("smal", 2, "smal small"),
                ("no.json", 2, "no.json"),
                ("", 2, "recipe"),
                ("continue", 2, "--init"),
                ("continue --init {here}/absent", 66, "{here}/absent"),
                ("continue --init {tokenizer}", 66, "{tokenizer}"),
                ("continue --init {run}@main", 66, "{run}@main"),
                ("quickstart --resize-vocabulary", 2, "--resize-vocabulary --init"),
                ("quickstart --init {run}", 78, "embedding_size 16 64"),
                ("continue --init {run} architecture.intermediate_size=96", 78, "intermediate_size 64"),
                ("quickstart --change-dropout 0.1", 78, "--change-dropout {here}/out"),
                ("quickstart dropout_changes=5,0.1,2,0", 78, "dropout_changes"),
            )
        ),
        ("quickstart --output {here}/out", 2, "--data"),
        ("quickstart --data --output {here}/out", 2, "--data"),
        ("quickstart --data {here}/c --output {here}/out", 66, "{here}/c"),
        ("quickstart --data {here}/c --output {here}/out", 66, "{here}/c corpus.json", {"c/a.txt": "a"}),
        ("quickstart --data {corpus} --output /proc/out", 73, "/proc/out"),
        ("quickstart --data {corpus} --output {here}/f/out", 73, "{here}/f/out", {"f": "mine"}),
        ("quickstart --data {here}/corpus --output {here}/out", 65, "tokens.bin", damaged_corpus),
        ("small --data d --output o --num-train-epochs 3", 2, "--num-train-epochs steps"),
        ("small --data d --output o --warmup-ratio 0.1", 2, "--warmup-ratio schedule.warmup_steps"),
        ("small --data d --output o --hiden-size 3", 2, "--hiden-size architecture.hidden_size"),
        ("small --lr-scheduler-type linear", 2, "--lr-scheduler-type"),
        ("small --fsdp full_shard", 2, "--fsdp parallelism"),
        ("small", 2, "--data"),
    ],
    RUN_AGAIN: [
        (
            "",
            65,
            "{here}/out/checkpoints/step-00000004/model.safetensors remove 2",
            damaged_checkpoint,
        ),
        ("seed=1", 73, "{here}/out seed", finished_run),
    ],
    "predict": [
        ("{pretrained} --classify x", 78, "{pretrained} head classify"),
        ("{classifier} --fill-mask [MASK]", 78, "{classifier} head fill"),
        ("{classifier} --question a --context b", 78, "{classifier} head answer"),
        ("{here}/none --classify x", 66, "{here}/none"),
        ("nobody/none --classify x", 69, "nobody/none"),
        ("{here}/a.bin --classify x", 66, "{here}/a.bin", {"a.bin": "a"}),
        ("{text} --classify x", 66, "{text}"),
        ("{pretrained} --fill-mask nothing", 2, "[MASK]"),
        ("{pretrained}", 2, "--fill-mask"),
        ("{pretrained} --fill-mask [MASK] --top-k 0", 2, "--top-k 0"),
        ("{pretrained} --fill-mask [MASK] --device tpu", 2, "--device tpu"),
        ("{classifier} --input {tables}/dev.csv", 65, "{tables}/dev.csv:2 text"),
        ("{classifier} --input {here}/a.png", 2, "{here}/a.png", {"a.png": "PNG"}),
        ("{classifier} --input {here}/in.txt", 66, "{here}/in.txt"),
        ("{classifier} --input {text}/00.txt --output {here}/f/out.jsonl", 73, "{here}/f", {"f": "m"}),
        ("--classify x", 2, "MODEL"),
        ("{classifier}@v1 --classify a", 66, "{classifier}@v1"),
        ("tiny@v1 --classify a", 2, "tiny@v1 revisions"),
        ("tiny --classify a --revision v1", 2, "--revision OWNER/NAME@REVISION"),
    ],
    TUNED: [
        ("", 66, "{here}/train.csv"),
        ("", 66, "{here}/train.csv", {"train.csv": ""}),
        ("--text reviw", 65, "reviw review", TABLE),
        ("--label star", 65, "star stars", TABLE),
        ("", 65, "{tables}/dev.csv:2 negative", {"train.csv": ROWS.replace(",neg", ",poor")}),
        ("", 78, "label positive", {"train.csv": ROWS.replace("negative", "positive")}),
        ("", 65, "{here}/train.csv:3", {"train.csv": ROWS.replace("negative", "")}),
        ("", 65, "{here}/train.csv:4 3", {"train.csv": ROWS + "a,b,c\n"}),
        ("reading.format=csv", 65, "{here}/train.csv:4", {"train.csv": ROWS + '"a"b,positive\n'}),
        ("reading.encoding=utf-8", 65, "train.csv", {"train.csv": b"review,stars\n\xff,positive\n"}),
        ("--kind number", 65, "train.csv:2 positive", TABLE),
        ("learning_rate=-1", 78, "learning_rate -1", TABLE),
        ("learning_rate=5", 78, "learning_rate 5", TABLE),
        ("batch_size=0", 78, "batch_size 0", TABLE),
        ("steps=0", 78, "steps 0", TABLE),
        ("max_length=3", 78, "max_length 8", TABLE),
        ("micro_batch_tokens=0", 78, "micro_batch_tokens 0", TABLE),
        ("workers=-1", 78, "workers -1", TABLE),
        ("", 73, "{here}/out", TABLE | {"out": "m"}),
        ("", 73, "{here}/out task", finished_run),
    ],
    TUNED.replace("train.csv", "t.xlsx"): [("", 65, "t.xlsx", {"t.xlsx": "PK"})],
    "finetune": [
        ("glue --model {pretrained} --output {here}/out", 2, "glue benchmark cola"),
        ("sst-3 --model {pretrained} --data {here} --output out", 2, "sst-3 sst-2"),
        ("--model {pretrained} --output {here}/out", 2, "task"),
        (FINETUNE.removeprefix("finetune ") + " --model {here}/none", 66, "{here}/none", TABLE),
        ("ax --model {pretrained} --data {here} --output {here}/out", 78, "ax training evaluate"),
        (
            "{here}/bad.toml --model tiny --output out",
            78,
            "bad.toml learning_rat learning_rate",
            {"bad.toml": "learning_rat = 3\n"},
        ),
        ("--model m --lernrate 1", 2, "--lernrate learning_rate"),
        ("--model m --num-epoch 1", 2, "--num-epoch epochs"),
        ("--model m --max_sequence_len 1", 2, "--max_sequence_len max_length"),
        ("--model m --fp16", 2, "--fp16 precision"),
        ("--model m --gradient_accumulation_steps 2", 2, "--gradient_accumulation_steps micro_batch_tokens"),
        ("--model m --resume-from-checkpoint c", 2, "--resume-from-checkpoint"),
        ("--model m --tokenizer-name t", 2, "--tokenizer-name"),
        ("sst-2", 2, "--model"),
    ],
    f"{GLUE} --device cpu": [
        ("", code, subject, {name: content, "dev.tsv": SENTENCE + "good\t1\n"})
        for name, content, code, subject in (
            ("train.tsv", SENTENCE, 66, "train.tsv rows"),
            ("train.tsv", "", 66, "train.tsv rows"),
            ("train.tsv", SENTENCE.encode() + b"ok\t1\n\xff\t1\n", 65, "train.tsv:3: UTF-8"),
            ("train.tsv.gz", gzip.compress(SENTENCE.encode(), mtime=0)[:-6], 65, "train.tsv.gz gzip"),
            ("train.tsv.gz", b"no gzip", 65, "train.tsv.gz gzip"),
            ("train.tsv", "label\tlabel\n1\t1\n", 65, "train.tsv name"),
            ("train.tsv", SENTENCE + '" good\t1\nbad\n', 65, "train.tsv:3: 1 2"),
            ("train.tsv", SENTENCE + "ok\t2\n", 65, "train.tsv:2: '2' '0', '1'"),
            ("train.tsv", "sentences\tlabel\nok\t1\n", 65, "train.tsv 'sentence' 'sentences'"),
        )
    ],
    f"{SQUAD} stride=8": [
        ("", code, f"train-v1.1.json {subject}", squad(SINK) | {"train-v1.1.json": json.dumps(content)})
        for content, code, subject in (
            ({"data": []}, 66, "question"),
            ([], 65, "'data'"),
            ({"data": [{"paragraphs": [{"qas": []}]}]}, 65, "data[0].paragraphs[0]: 'context'"),
            (questions(start="0"), 65, "'answer_start' int"),
            (questions(context="\ud800"), 65, "surrogate"),
            ({"data": questions()["data"] * 2}, 65, "'q'"),
        )
    ],
    GLUE: [
        ("", 66, "{here} SST-2/train.tsv"),
        ("span_head=joint", 2, "span_head"),
    ],
    GLUE.replace("finetune", "sweep"): [
        ("", 2, "albert sweep --seeds --folds --rates"),
        ("--seeds 0", 78, "seeds 0"),
        ("--seeds 2", 73, "{here}/out", {"out/recipe.json": "{}"}),
        ("--seeds 2 --folds 2", 2, "--folds --seeds"),
    ],
    "sweep": [
        ("sst-2 --seeds 2 --model {pretrained} --output {here}/out", 2, "--data"),
        ("sst-2 --model m --seeds 2", 2, "--output"),
    ],
    TASK_FILE: [
        ("", 78, "ask.json txt text", task_file(txt="review")),
        ("--device cpu", 2, "--dev 2", task_file(label="stars", dev=2)),
        ("seed=1", 78, "kind class", task_file(label="stars", kind="class")),
        ("--metrics f7", 78, "f7", task_file(label="stars")),
    ],
    SQUAD: [
        (
            "",
            65,
            "train-v1.1.json data[0].paragraphs[0].qas[1] a",
            squad(SINK, ("a", "What did they do?", "Old")),
        ),
        (
            "question_length=8 stride=8",
            78,
            "squad-1.1 window",
            squad((*SINK[:2], "submarines")),
        ),
        ("question_length=31", 78, "stride 128", squad(SINK)),
        ("", 65, "qas[0] answers", squad(SINK, answers="answer")),
    ],
    EVALUATE: [
        ("", 65, "{here}/dev.csv:3", {"dev.csv": ROWS.replace("negative", "poor")}),
        ("--micro-batch-tokens 0", 78, "--micro-batch-tokens 0", DEV),
        ("--results {here}/dev.csv/r", 73, "{here}/dev.csv", DEV),
        ("--submission {here}/dev.csv", 73, "{here}/dev.csv", DEV),
    ],
    EVALUATE.replace("{classifier}", "{pretrained}"): [("", 78, "{pretrained}", DEV)],
    EVALUATE.replace("--text review", ""): [("", 2, "--text", DEV)],
    SENTENCES: [
        ("", 78, "{here}/model head", span_model),
        ("", 65, "model.safetensors classifier.weight", nan_weights),
        ("", 3, "model finite", infinite_outputs),
    ],
    "evaluate pretraining": [
        ("--model {pretrained} --data {here}/corpus", 65, "tokens.bin", damaged_corpus),
        ("--model {classifier} --data {corpus}", 78, "{classifier}"),
        (
            "--model {pretrained} --data {other_corpus}",
            78,
            "{pretrained} {other_corpus} tokenizer",
        ),
        ("--model {pretrained} --data {corpus} --split train", 2, "--split"),
        ("--model {pretrained} --data {corpus} --max-ngram 0", 78, "masking.max_ngram 0"),
    ],
    "evaluate": [
        ("sst-2 --model {classifier} --data {here} --split tset", 78, "tset"),
        ("sst-2 --model {classifier} --data {here} --json", 2, "--json"),
        ("sst-2 --data {tables} --model {classifier}@v1", 66, "{classifier}@v1"),
        ("--text review --label stars --dev {tables}/dev.csv --model", 2, "--model"),
        (
            "mnli --model {classifier} --data {here} --submission {here}/hand-in --results {here}/r.json",
            2,
            "--results --split",
        ),
    ],
    SCORED: [
        ("--json", 2, "--json"),
        ("--csv", 2, "--csv"),
        ("--sequences 9", 2, "--sequences"),
        ("--precision fp32 bf16 --predictions {here}/out.jsonl", 2, "--predictions --precision"),
        ("--precision fp32 bf16 --tolerance -1", 78, "tolerance -1.0"),
        ("--depth 2 99", 78, "depth 99 2"),
        ("--depth 0", 78, "depth 0"),
        ("--depth 1 2 --predictions {here}/p.jsonl", 2, "--predictions --depth"),
        ("--depth 1 2 --rounds 0", 2, "--rounds 0"),
    ],
    ONNX: [
        ("--opset 11", 78, "opset 11 17 24"),
        ("--precision int4", 2, "--precision int4"),
        ("--depth 0", 78, "depth 0"),
    ],
    VECTORS: [("--pooling median", 2, "--pooling median mean"), ("", 73, "{here}", {"out/mine": "m"})],
    "export": [
        ("tflite {pretrained} --output {here}/out", 2, "tflite"),
        ("onnx {pretrained}", 2, "--output"),
        ("onnx {here}/none --output {here}/out", 66, "{here}/none"),
        ("onnx {pretrained} --output {here}", 73, "{here}"),
        ("onnx {pretrained} --output {here}/out.onnx", 73, "out.onnx", {"out.onnx": "mine"}),
        ("onnx {corpus} --output {here}/out", 66, "{corpus}"),
        ("sentence-transformers {here}/none --output {here}/out", 66, "{here}/none"),
    ],
    "quantize": [
        ("{corpus} --output {here}/out", 66, "{corpus}"),
        ("{pretrained} --output {here}", 73, "{here}"),
        ("m --output o --fp16", 2, "--fp16"),
        ("m --OUTPUT o", 2, "--OUTPUT --output"),
        ("m --output o --zzz", 2, "--zzz"),
    ],
    "info": [
        ("{here} --verify", 66, "{here} MANIFEST.json"),
        ("{here}/nowhere --verify", 66, "{here}/nowhere"),
        ("corpus --verify", 66, "corpus: directory"),
        ("corpus --samples 3", 66, "corpus: corpus.json"),
        ("{tables}/dev.csv --verify", 66, "{tables}/dev.csv"),
        ("albert-base --verify", 2, "--verify albert-base preset"),
        ("--verify", 2, "--verify"),
        ("{pretrained} --verify --self-check", 2, "--verify --self-check"),
        ("{pretrained} --verify --json", 2, "--verify --json"),
        ("{corpus} --samples 3 --verify", 2, "--verify --samples"),
        ("{corpus} --samples 3 --memory", 2, "--samples --memory"),
        ("{corpus} --samples 0", 2, "--samples 0"),
        ("{corpus} --samples 3 --recipe smal", 2, "smal small"),
        ("{corpus} --seed 3", 2, "--seed --samples"),
        ("{corpus} --recipe small", 2, "--recipe --samples"),
        ("--samples 3", 2, "--samples"),
        ("{pretrained} --samples 3", 2, "--samples: corpus; {pretrained} model"),
        ("{run} --samples 3", 2, "--samples: corpus; {run} run"),
        ("tiny --samples 3", 2, "--samples: corpus; tiny model"),
        ("albert-base --samples 3", 2, "--samples: corpus; albert-base preset"),
        ("{here}/nothing --samples 3", 66, "{here}/nothing"),
        ("{here} --samples 3", 66, "{here} corpus.json"),
        ("albert-bse", 69, "albert-bse albert-base"),
        ("xyz", 69, "xyz"),
        ("albert-base --max-length 0", 2, "--max-length 0"),
        ("albert-base --batch-size 0 --measure", 2, "--batch-size 0"),
        ("albert-base --batch-size 4", 2, "--batch-size --measure --memory"),
        ("albert-base --memory-limit 8GB", 2, "--memory-limit --memory"),
        ("albert-base --memory --memory-limit 8", 2, "--memory-limit 8"),
        ("albert-base --memory --max-length 513", 2, "--max-length 513 512"),
        ("albert-base --memory --compare bert-base", 2, "--memory --compare"),
        ("{corpus} --memory", 2, "--memory {corpus}"),
        ("--memory", 2, "--memory"),
        ("--self-check", 2, "--self-check"),
        ("albert-base --measure --max-length 513", 2, "--max-length 513 512"),
        ("albert-base --self-check", 2, "--self-check albert-base"),
        ("{corpus} --compare albert-base", 2, "--compare {corpus}"),
        ("{tokenizer} --measure", 2, "--measure {tokenizer}"),
        ("albert-base --compare {corpus}", 2, "--compare {corpus}"),
        ("{pretrained}@main", 66, "{pretrained}@main"),
    ],
    "serve": [
        ("./no-such-model --port 0", 66, "no-such-model"),
        ("m --port 70000", 78, "port 70000"),
        ("m --queue-texts 0", 78, "--queue-texts 0"),
        ("m --texts 300", 78, "texts 300"),
        ("m --drain-timeout 0", 78, "drain-timeout"),
        ("m --threads 0", 78, "threads"),
        ("m --host 192.0.2.1", 69, "192.0.2.1:8000"),
        ("m --depth deep", 2, "--depth"),
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


def subjects(case: Case, scene, here: Path) -> list[str]:
    return [scene.fill(word, here) for word in case.subject.split()]


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.words} {case.subject}")
def test_one_line_its_code_and_no_files(case, scene, here, refused):
    words = arrange(case, scene, here)
    before = everything_below(here)
    refused(words, case.code, *subjects(case, scene, here))
    assert everything_below(here) == before


def test_a_port_in_use_is_reported(refused):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(["serve", "m", "--port", port], 69, port)


PIPES = [
    (PREPARE, "text/a.txt"),
    (TRAIN, "text/a.jsonl"),
    ("prepare {here}/a.txt --tokenizer {tokenizer} --output {here}/out", "a.txt"),
    ("tokenizer encode a --tokenizer {here}/spiece.model", "spiece.model"),
    (OF_FILE, "r.json"),
    (TUNED, "train.csv"),
    (TUNED.replace("train.csv", "train.parquet"), "train.parquet"),
    (TUNED.replace("train.csv", "train.jsonl.gz"), "train.jsonl.gz"),
    (f"{TUNED} {{here}}/task.json", "task.json"),
    (EVALUATE, "dev.csv"),
    ("predict {classifier} --input {here}/a.jsonl --text review", "a.jsonl"),
    ("predict {classifier} --input {here}/a.csv.gz", "a.csv.gz"),
    ("predict {classifier} --input {here}/a.parquet --output {here}/out.jsonl", "a.parquet"),
]


@pytest.mark.parametrize(("command", "name"), PIPES, ids=[f"{c.split()[0]} {name}" for c, name in PIPES])
def test_a_pipe_is_refused_without_waiting(command, name, scene, here, refused):
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
        refused([scene.fill(part, here) for part in command.split()], 66, pipe, "pipe")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not (here / "out").exists()


def test_a_separate_process_prints_the_same(scene, here):
    case = next(case for case in ALL if case.setup == {"r.json": "{"})
    words = arrange(case, scene, here)
    before = everything_below(here)
    done = subprocess.run([sys.executable, "-m", "albert", *words], capture_output=True, text=True, timeout=300)
    assert done.stderr.startswith("albert: error: ") and done.stderr.count("\n") == 1
    assert all(subject in done.stderr for subject in subjects(case, scene, here))
    assert done.returncode == case.code and done.stdout == ""
    assert everything_below(here) == before


def test_cut_and_missing_answers_are_counted_and_no_question_is_dropped(scene, here, capsys):
    write(squad(("a", "a?", "Old ships"), ("b", "What sank? " * 30, "Old ships"), ("c", "c?", "submarines")), here)
    words = f"{SQUAD} question_length=8 stride=8 steps=1 batch_size=2"
    assert run([scene.fill(word, here) for word in words.split()]) == 0
    printed = capsys.readouterr().out
    for part in ("training", "development set"):
        assert f"{part}: 1 question cut" in printed
        assert f"{part}: 1 answer not in the context" in printed
    assert len((here / "out/predictions-dev.jsonl").read_text().splitlines()) == 3
