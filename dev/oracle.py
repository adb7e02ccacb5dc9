"""The same work in two checkouts: do both give the same weights, answers and files?

    python dev/oracle.py                              # this checkout beside the commit that dev/oracle-base names
    python dev/oracle.py --base ../before --cases pairs formats
    python dev/oracle.py --prove                      # one changed weight, label and id are found

Every case runs in both checkouts, each with its own commands, on the same input files, in processes with one thread.
It returns outputs by their names: tensors, token ids, and answers. Tensors are compared by type, shape and bytes, all
else by equality. A commit that means to change a result moves dev/oracle-base to itself, and its message names the
cases.

Both checkouts run with the packages of the interpreter that runs this script. The whole comparison takes some minutes
on two cores.
"""

import argparse
import csv
import functools
import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
BASE_FILE = CHECKOUT / "dev" / "oracle-base"
SECONDS = 600
"""The longest time of one command."""

Outputs = dict[str, Any]
"""Name -> array, text, or a value of JSON."""


KEYS = {
    "--precision": "precision",
    "--max-length": "max_length",
    "--sequences.max-length": "max_length",
    "--steps": "steps",
    "--schedule.total-steps": "steps",
    "--schedule.warmup-steps": "schedule.warmup_steps",
    "--sequences.objective": "sequences.objective",
    "--evaluate-every": "evaluate_every",
    "--checkpoint-every": "checkpoint_every",
    "--batch-size": "batch_size",
    "--micro-batch-size": "micro_batch_size",
    "--question-length": "question_length",
    "--stride": "stride",
    "--init": "init",
    "--depth": "depth",
    "--sharing": "architecture.sharing",
    "--class-weights": "class_weights",
    "--encode-pairs": "encode_pairs",
    "--select": "select",
    "--seed": "seed",
}
"""Flags of checkouts before keys -> keys."""
SWITCHES = {"--freeze-encoder": "freeze_encoder", "--keep-head": "keep_head"}
KINDS = {"--regression": "number", "--multi-label": "multi-label", "--classes": "classification"}


class Failed(Exception):
    """A command of a case ended with an error."""


class Side:
    """One of the two checkouts, and the folder in which its commands run."""

    def __init__(self, root: Path, folder: Path, material: Path) -> None:
        self.root = root
        self.folder = folder
        self.material = material
        self.has_flags = not (root / "src" / "albert" / "cli" / "signature.py").exists()
        """Whether commands are spelled as before keys: with a flag for each field."""
        self.model = material / "model" if (material / "model").exists() else root / "models" / "tiny"
        folder.mkdir(parents=True)

    def inside(self, case: str) -> "Side":
        """The same checkout with a folder of its own for a case."""
        return Side(self.root, self.folder / case, self.material)

    def environment(self) -> dict[str, str]:
        """Nothing of the user's but the programs; one thread; no network."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.root / "src"),
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "MPLBACKEND": "Agg",
        }

    def run(self, *words: object, input: str | None = None) -> str:
        """The standard output of a program.

        Raises:
            Failed: it ended with another exit code than 0.
        """
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            input=input,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def albert(self, *words: object) -> str:
        """The standard output of a command."""
        return self.run(sys.executable, "-m", "albert", *self.spelled(words))

    def spelled(self, words: Sequence[object]) -> list[str]:
        """The words of a command as this checkout spells them: what trains has keys since the base, not flags."""
        rest = [str(word) for word in words]
        trains = any(command in rest for command in ("pretrain", "finetune", "sweep", "finetune-vectors"))
        if self.has_flags or not trains:
            return rest
        spelled = []
        while rest:
            word = rest.pop(0)
            if word in KINDS:
                spelled += ["--kind", KINDS[word]]
            elif word in SWITCHES:
                spelled.append(f"{SWITCHES[word]}=true")
            elif word in KEYS and not (word == "--init" and "pretrain" in spelled):  # the model to go on with
                spelled.append(f"{KEYS[word]}={rest.pop(0)}")
            else:
                spelled.append(word)
        return spelled

    def python(self, program: str, *words: object) -> str:
        """The standard output of a program in Python."""
        return self.run(sys.executable, "-c", program, *words)

    def start(self, *words: object) -> subprocess.Popen:
        """A command that is not waited for; what it prints is in the file `started`."""
        command = [sys.executable, "-m", "albert", *self.spelled(words)]
        with (self.folder / "started").open("wb") as printed:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdout=printed, stderr=subprocess.STDOUT
            )


# ---------------------------------------------------------------------------------------------------------------------
# What outputs are made of.


def weights(directory: Path) -> Outputs:
    """The tensors of a model directory."""
    from safetensors.numpy import load_file

    return {f"weights {name}": tensor for name, tensor in load_file(directory / "model.safetensors").items()}


def token_ids(corpus: Path) -> Outputs:
    """Token ids and lengths of a prepared corpus."""
    files = sorted(file for file in corpus.rglob("*") if file.name.endswith((".tokens.bin", ".npy")))
    return {
        str(file.relative_to(corpus)): np.load(file) if file.suffix == ".npy" else np.fromfile(file, np.uint8)
        for file in files
    }


def json_lines(file: Path) -> list[Any]:
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# ---------------------------------------------------------------------------------------------------------------------
# The input files, which both checkouts read.


def write_csv(path: Path, rows: Sequence[dict[str, Any]], delimiter: str = ",", encoding: str = "utf-8") -> None:
    """A table with a header."""
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def write_json_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A row on each line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def sentences_of_the_sample() -> list[str]:
    """Sentences of the prose that the package ships."""
    (sample,) = CHECKOUT.rglob("prose.jsonl.gz")
    found = []
    with gzip.open(sample, "rt", encoding="utf-8") as lines:
        for line in lines:
            for paragraph in json.loads(line)["text"].split("\n"):
                found += [s.strip() + "." for s in paragraph.split(". ") if 20 < len(s) < 120 and '"' not in s]
    return found


GOOD = ("bright", "lovely", "warm", "splendid", "kind")
BAD = ("dull", "dreadful", "cold", "poor", "cruel")
TOPICS = {"odd": 2, "third": 3, "fifth": 5}
"""A label -> the rows that have it: those whose number divided by this leaves 1."""
SPLITS = {"train": range(0, 96), "dev": range(96, 160), "new": range(160, 200)}
"""A file -> the numbers of its rows."""


class Prose:
    """Sentences of the package's sample in a drawn order, and rows that are made of them."""

    def __init__(self) -> None:
        self.sentences = sentences_of_the_sample()
        np.random.default_rng(0).shuffle(self.sentences)

    def document(self, number: int) -> str:
        """Six paragraphs of four sentences."""
        first = number * 24
        return "\n".join(" ".join(self.sentences[n : n + 4]) for n in range(first, first + 24, 4))

    def review(self, number: int) -> str:
        """A sentence and a judgement, good in odd rows."""
        words = GOOD if number % 2 else BAD
        return f"{self.sentences[number]} It was {words[number % 5]}, and {words[number * 3 % 5]}."

    def label(self, number: int) -> str:
        """The class of a review."""
        return "good" if number % 2 else "bad"

    def topics(self, number: int) -> str:
        """The labels of a row with several labels."""
        return "|".join(name for name, divisor in TOPICS.items() if number % divisor == 1)

    def pair(self, number: int) -> dict[str, str]:
        """A review with the sentence that it begins with, or with another one."""
        other = self.sentences[number if number % 2 else number + 1]
        return {"a": self.review(number), "b": other, "same": "yes" if number % 2 else "no"}

    def choice(self, number: int) -> dict[str, Any]:
        """A multiple choice, whose right option is a number from 0."""
        options = ["bright", "dull", "cold"]
        return {
            "context": self.sentences[number],
            "question": "How was it?",
            "options": options,
            "answer": number % 3,
        }

    def question(self, number: int) -> dict[str, Any]:
        """A question that the last word of a review answers; every fifth has no answer."""
        text = self.review(number)
        word = text.split()[-1].rstrip(".")
        has_answer = number % 5 != 0
        answers = {"text": [word], "answer_start": [text.rindex(word)]}
        return {
            "id": str(number),
            "context": text,
            "question": "Which word?" if has_answer else "Which colour?",
            "answers": answers if has_answer else {"text": [], "answer_start": []},
        }

    def tagged(self, number: int, labelled: bool) -> str:
        """A word and its tag on each line, and an empty line."""
        lines = []
        for word in self.review(number).split()[:12]:
            is_mood = word.strip(",.") in GOOD + BAD
            tag = "B-MOOD" if is_mood else "B-NAME" if word[0].isupper() else "O"
            lines.append(f"{word} {tag}" if labelled else word)
        return "\n".join(lines) + "\n\n"


def make_material(folder: Path) -> None:
    """All input files; the same in every call."""
    folder.mkdir()
    prose = Prose()
    write_json_lines(folder / "corpus.jsonl", [{"text": prose.document(n)} for n in range(40)])
    sst = folder / "glue" / "SST-2"
    sst.mkdir(parents=True)
    for split, numbers in SPLITS.items():
        reviews = [{"text": prose.review(n), "label": prose.label(n)} for n in numbers]
        write_csv(folder / f"reviews-{split}.csv", reviews)
        numbered = [{"text": prose.review(n), "stars": n * 7 % 50 / 10} for n in numbers]
        write_csv(folder / f"numbers-{split}.csv", numbered)
        write_csv(folder / f"pairs-{split}.csv", [prose.pair(n) for n in numbers])
        related = [{"text": prose.review(n), "pair": prose.sentences[n]} for n in numbers]
        write_csv(folder / f"related-{split}.csv", related)
        with_topics = [{"text": prose.review(n), "topics": prose.topics(n)} for n in numbers]
        write_csv(folder / f"topics-{split}.csv", with_topics)
        write_json_lines(folder / f"choices-{split}.jsonl", [prose.choice(n) for n in numbers])
        write_json_lines(folder / f"answers-{split}.jsonl", [prose.question(n) for n in numbers])
        tagged = "".join(prose.tagged(n, labelled=split != "new") for n in numbers)
        (folder / f"tags-{split}.conll").write_text(tagged, encoding="utf-8")
        sentences = [{"sentence": prose.review(n).lower(), "label": n % 2} for n in numbers]
        write_csv(sst / ("test.tsv" if split == "new" else f"{split}.tsv"), sentences, delimiter="\t")
    write_formats(folder, [{"text": prose.review(n), "label": prose.label(n)} for n in range(48)])


def write_formats(folder: Path, rows: list[dict[str, Any]]) -> None:
    """One table in every common format."""
    import pyarrow
    import pyarrow.parquet

    write_csv(folder / "table.csv", rows)
    write_csv(folder / "table-semicolons.csv", rows, delimiter=";")
    write_csv(folder / "table.tsv", rows, delimiter="\t")
    accented = [{**row, "text": f"{row['text']} Café …"} for row in rows]
    write_csv(folder / "table-cp1252.csv", accented, encoding="cp1252")
    write_csv(folder / "table-utf-16.csv", rows, encoding="utf-16")
    write_json_lines(folder / "table.jsonl", rows)
    (folder / "table.json").write_text(json.dumps(rows), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "table.parquet")
    with gzip.open(folder / "table.csv.gz", "wb") as packed:
        packed.write((folder / "table.csv").read_bytes())


# ---------------------------------------------------------------------------------------------------------------------
# The cases.

STEPS = 12
PAIR_COLUMNS = ("--text", "a", "--pair", "b", "--label", "same")
TOPIC_COLUMNS = ("--text", "text", "--label", "topics", "--multi-label", "--separator", "|")
CHOICE_COLUMNS = ("--text", "context", "--question", "question", "--options", "options", "--label", "answer")
CHOICES = (*CHOICE_COLUMNS, "--question-length", 16)
TRAINING = ("--device", "cpu", "--precision", "fp32", "--max-length", 96)
SHORT = (*TRAINING, "--steps", STEPS, "--evaluate-every", 4, "--batch-size", 8)


def finetune(side: Side, table: str, *words: object, steps: Sequence[object] = SHORT, run: str = "run") -> Path:
    """The model of a run on one of the tables, from the model of the package."""
    ending = "conll" if table == "tags" else "jsonl" if table in ("choices", "answers") else "csv"
    files = [side.material / f"{table}-{split}.{ending}" for split in ("train", "dev")]
    rows = ("--train", files[0], "--dev", files[1])
    side.albert("finetune", *rows, "--model", side.model, "--output", run, *steps, *words)
    return side.folder / run / "model"


def finetune_vectors(side: Side, table: str, *words: object, run: str) -> Path:
    """The encoder of a run on pairs of texts, or on texts whose vectors a teacher gives."""
    if side.has_flags:
        objective = "vectors" if "--teacher" in words else "contrastive"
        return finetune(side, table, "--objective", objective, *words, run=run)
    rows = ("--train", side.material / f"{table}-train.csv", "--dev", side.material / f"{table}-dev.csv")
    side.albert("finetune-vectors", *rows, "--model", side.model, "--output", run, *SHORT, *words)
    return side.folder / run / "model"


def predict(side: Side, model: Path, table: str, *words: object, precision: str = "fp32") -> list[Any]:
    """The answers to the rows of a file."""
    output = side.folder / f"answers-{len(list(side.folder.iterdir()))}.jsonl"
    files = ("--input", side.material / table, "--output", output)
    side.albert("predict", model, *files, "--device", "cpu", "--precision", precision, *words)
    # The mark of rows without a text, which checkouts before fbb205cd have not, is left out where it is false.
    return [
        {name: value for name, value in row.items() if name != "predicted_empty" or value} for row in json_lines(output)
    ]


def task(table: str, ending: str, *words: object) -> Callable[[Side], Outputs]:
    """Training on a kind of task, the answers to new rows, and what ONNX Runtime makes of the exported network."""

    def case(side: Side) -> Outputs:
        model = finetune(side, table, *words)
        outputs = weights(model)
        outputs["answers"] = predict(side, model, f"{table}-new.{ending}")
        outputs |= onnx_outputs(side, model)
        return outputs

    return case


def onnx_outputs(side: Side, model: Path, *words: object) -> Outputs:
    """What ONNX Runtime computes with the exported network, on drawn token ids."""
    import onnxruntime

    side.albert("export", "onnx", model, "--output", "network", *words)
    (file,) = (side.folder / "network").glob("*.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(1)
    shape = (3, 2, 20) if len(session.get_inputs()[0].shape) == 3 else (3, 20)
    values = {
        "input_ids": draw.integers(5, 400, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    found = session.run(None, {given.name: values[given.name] for given in session.get_inputs()})
    names = [output.name for output in session.get_outputs()]
    return {f"onnx {name}": np.asarray(value) for name, value in zip(names, found, strict=True)}


IN_PYTHON = """
import csv, json, sys
import albert
material, model = sys.argv[1:3]
rows = {split: list(csv.DictReader(open(f"{material}/reviews-{split}.csv"))) for split in ("train", "dev", "new")}
result = albert.finetune(
    train=rows["train"], dev=rows["dev"], text="text", label="label", model=model, output="run",
    device="cpu", precision="fp32", max_length=96, steps=12, evaluate_every=4, batch_size=8,
)
loaded = albert.load(result.model, device="cpu", precision="fp32")
texts = [row["text"] for row in rows["new"]]
print(json.dumps({"answers": loaded.classify_batch(texts), "vectors": loaded.embed(texts).tolist()}))
"""


def python_functions(side: Side) -> Outputs:
    """Rows in memory: training, answers and vectors."""
    outputs = json.loads(side.python(IN_PYTHON, side.material, side.model).splitlines()[-1])
    return {**weights(side.folder / "run" / "model"), **outputs}


def frozen(side: Side) -> Outputs:
    """Only the linear head."""
    model = finetune(side, "reviews", "--frozen", steps=TRAINING)
    return {**weights(model), "answers": predict(side, model, "reviews-new.csv")}


def teacher(side: Side) -> Outputs:
    """A classifier learned from another one."""
    taught = finetune(side, "reviews", run="teacher")
    return weights(finetune(side, "reviews", "--teacher", taught))


def sweeps(side: Side) -> Outputs:
    """Runs that differ in their seed, their fold or their rate; in the base they were options of `finetune`."""
    command = "finetune" if side.has_flags else "sweep"
    rows = ("--train", side.material / "reviews-train.csv", "--model", side.model, *SHORT)
    variants: dict[str, tuple[object, ...]] = {
        "seeds": ("--seeds", 2),
        "folds": ("--folds", 2),
        "rates": ("--try" if side.has_flags else "--rates", 1e-3, 2e-3),
    }
    outputs: Outputs = {}
    for name, words in variants.items():
        side.albert(command, *rows, "--output", name, *words)
        for run in sorted((side.folder / name).glob("*-*/model")):
            found = weights(run)
            outputs |= {f"{name}, {run.parent.name}: {tensor}": value for tensor, value in found.items()}
        summary = json.loads((side.folder / name / "summary.json").read_text(encoding="utf-8"))
        outputs[f"{name}: scores"] = [run["scores"] for run in summary["runs"]]
    return outputs


def other_starts(side: Side) -> Outputs:
    """Random weights, other depths, a kept head, balanced classes, a vector for each text."""
    outputs: Outputs = {}
    trained = finetune(side, "reviews", run="first")
    variants: dict[str, tuple[object, ...]] = {
        "random": ("--init", "random"),
        "depth": ("--depth", 2),
        "unshared": ("--sharing", "none"),
        "balanced": ("--class-weights", "balanced"),
        "separate": (*PAIR_COLUMNS, "--encode-pairs", "separately"),
        "frozen encoder": ("--freeze-encoder",),
    }
    for name, words in variants.items():
        table = "pairs" if name == "separate" else "reviews"
        model = finetune(side, table, *words, run=name.replace(" ", "-"))
        outputs |= {f"{name}: {tensor}": value for tensor, value in weights(model).items()}
    kept = Side(side.root, side.folder / "kept", side.material)
    kept.model = trained
    continued = finetune(kept, "reviews", "--keep-head")
    return outputs | {f"kept head: {tensor}": value for tensor, value in weights(continued).items()}


def vectors(side: Side) -> Outputs:
    """Vectors learned from pairs, and from a teacher."""
    pairs = finetune_vectors(side, "related", "--text", "text", "--pair", "pair", run="run")
    taught = finetune_vectors(side, "reviews", "--text", "text", "--teacher", pairs, run="taught")
    outputs = {f"pairs: {name}": value for name, value in weights(pairs).items()}
    return outputs | {f"taught: {name}": value for name, value in weights(taught).items()}


def killed_by(number: signal.Signals, start: Callable[[Side, str], Sequence[object]]) -> Callable[[Side], Outputs]:
    """A run that is killed up to three times, after a checkpoint, ends with the weights of an unbroken one."""

    def case(side: Side) -> Outputs:
        side.albert(*start(side, "unbroken"))
        words = start(side, "run")
        kills = 0
        for _ in range(3):
            begun = side.start(*words)
            seen = checkpoints(side.folder / "run")
            while begun.poll() is None and checkpoints(side.folder / "run") <= seen:
                time.sleep(0.01)
            begun.send_signal(number)
            if begun.wait(SECONDS) == 0:
                break
            kills += 1
        if kills == 0:
            raise Failed("the run ended before it could be killed")
        side.albert(*words)
        outputs = weights(side.folder / "run" / "model")
        for name, value in weights(side.folder / "unbroken" / "model").items():
            if value.tobytes() != outputs[name].tobytes():
                raise Failed(f"{name}: the resumed run ended with other weights than the unbroken one")
        return outputs

    return case


def checkpoints(run: Path) -> set[str]:
    """The names of a run's complete checkpoints."""
    return {path.name for path in (run / "checkpoints").glob("step-*")}


def finetuning_run(side: Side, output: str) -> Sequence[object]:
    """A run with checkpoints at every step."""
    files = ["--train", side.material / "reviews-train.csv", "--dev", side.material / "reviews-dev.csv"]
    return ["finetune", *files, "--model", side.model, "--output", output, *SHORT, "--checkpoint-every", 2]


def pretraining_run(side: Side, output: str, objective: str = "sop") -> Sequence[object]:
    """A run of the recipe for the quickstart, on the prepared corpus."""
    corpus = side.folder / "corpus"
    if not corpus.exists():
        prepare(side)
    steps = ("--schedule.total-steps", STEPS, "--schedule.warmup-steps", 2, "--checkpoint-every", 2)
    sizes = ("--batch-size", 8, "--micro-batch-size", 4, "--evaluate-every", 6, "--sequences.objective", objective)
    machine = ("--device", "cpu", "--precision", "fp32")
    return ["pretrain", "quickstart", "--data", corpus, "--output", output, *machine, *steps, *sizes]


def prepare(side: Side) -> Outputs:
    """A corpus of token ids."""
    words = ("--tokenizer", side.model, "--workers", 2, "--held-out", 0.2, "--duplicates", "exact")
    side.albert("prepare", side.material / "corpus.jsonl", "--output", "corpus", *words)
    return token_ids(side.folder / "corpus")


def tokenizer(side: Side) -> Outputs:
    """A vocabulary, and the corpus in its pieces."""
    import sentencepiece

    side.albert("tokenizer", "train", side.material / "corpus.jsonl", "--output", "tokenizer", "--vocab-size", 400)
    (file,) = (side.folder / "tokenizer").rglob("spiece.model")
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    pieces = [[model.id_to_piece(n), model.get_score(n)] for n in range(model.get_piece_size())]
    texts = [row["text"] for row in json_lines(side.material / "corpus.jsonl")]
    return {"pieces": pieces, "ids": [model.encode(text) for text in texts]}


def pretrain(side: Side) -> Outputs:
    """The three sentence objectives, and training on from the first."""
    outputs: Outputs = {}
    for objective in ("sop", "nsp", "none"):
        side.albert(*pretraining_run(side, objective, objective))
        found = weights(side.folder / objective / "model")
        outputs |= {f"{objective}: {name}": value for name, value in found.items()}
    words = list(pretraining_run(side, "further"))
    words[1:2] = ["continue", "--init", side.folder / "sop" / "model"]
    side.albert(*words)
    outputs |= {f"further: {name}": value for name, value in weights(side.folder / "further" / "model").items()}
    outputs["words"] = side.albert(
        "predict", "sop/model", "--fill-mask", "It was [MASK].", "--device", "cpu", "--precision", "fp32", "--json"
    )
    return outputs


def two_processes(side: Side) -> Outputs:
    """Two processes that share the batch."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", free_port())
    side.run(*launcher, "-m", "albert", *side.spelled(pretraining_run(side, "run")))
    return weights(side.folder / "run" / "model")


TRAIN_ON_EACH = """
import sys
import albert
dev, model, *files = sys.argv[1:]
for file in files:
    albert.finetune(
        train=file, dev=dev, text="text", label="label", model=model, output="run-" + file.rpartition("/")[2],
        device="cpu", precision="fp32", max_length=96, steps=2, batch_size=8,
    )
"""


def formats(side: Side) -> Outputs:
    """The same rows in every format: what a run on them learns depends on every text and label."""
    files = sorted(side.material.glob("table*"))
    side.python(TRAIN_ON_EACH, side.material / "reviews-dev.csv", side.model, *files)
    outputs: Outputs = {}
    for file in files:
        found = weights(side.folder / f"run-{file.name}" / "model")
        outputs |= {f"{file.name}: {name}": value for name, value in found.items()}
    return outputs


ANSWER_IN_EACH_PRECISION = """
import csv, json, sys
import numpy as np
import albert
model, table = sys.argv[1:]
texts = [row["text"] for row in csv.DictReader(open(table, encoding="utf-8"))]
masked = [text.replace("was", "[MASK]", 1) for text in texts]
answers = {}
for precision in ("fp32", "bf16", "int8"):
    loaded = albert.load(model, device="cpu", precision=precision)
    np.save(f"vectors-{precision}.npy", loaded.embed(texts))
    answers[f"words, {precision}"] = loaded.fill_mask_batch([text for text in masked if "[MASK]" in text])
    answers[f"orders, {precision}"] = loaded.order_batch(texts[1:], texts[:-1])
print(json.dumps(answers))
"""


def package_model(side: Side) -> Outputs:
    """What the model of the package answers: words, orders and vectors, in three precisions."""
    printed = side.python(ANSWER_IN_EACH_PRECISION, side.model, side.material / "reviews-new.csv")
    outputs: Outputs = json.loads(printed.splitlines()[-1])
    for precision in ("fp32", "bf16", "int8"):
        outputs[f"vectors, {precision}"] = np.load(side.folder / f"vectors-{precision}.npy")
    return outputs


def saved_int8(side: Side) -> Outputs:
    """A classifier saved with 8-bit integers."""
    model = finetune(side, "reviews")
    side.albert("quantize", model, "--output", "small")
    return {"answers": predict(side, side.folder / "small", "reviews-new.csv", precision="int8")}


def declared_task(side: Side) -> Outputs:
    """SST-2 in the layout of GLUE: training, and its evaluation."""
    side.albert("finetune", "sst-2", "--data", side.material / "glue", "--model", side.model, "--output", "run", *SHORT)
    model = side.folder / "run" / "model"
    words = ("--data", side.material / "glue", "--device", "cpu", "--precision", "fp32", "--results", "scores.json")
    side.albert("evaluate", "sst-2", "--model", model, *words)
    scores = json.loads((side.folder / "scores.json").read_text(encoding="utf-8"))
    accuracy = numbers_called("accuracy", scores)
    if not accuracy:
        raise Failed(f"the scores name no accuracy: {scores}")
    return {**weights(model), "accuracy": accuracy}


def numbers_called(name: str, value: Any) -> list[float]:
    """The numbers with a name, anywhere in a value of JSON."""
    if isinstance(value, dict):
        own = [v for k, v in value.items() if k == name and isinstance(v, int | float)]
        return own + [number for inner in value.values() for number in numbers_called(name, inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers_called(name, inner)]
    return []


def tensorflow(side: Side) -> Outputs:
    """A checkpoint of TensorFlow as a model directory."""
    source = CHECKOUT / "tests" / "checkpoints" / "tensorflow" / "shared"
    side.albert("convert", source, "--output", "model", "--without-tokenizer")
    return weights(side.folder / "model")


REQUESTS: dict[str, dict[str, Any]] = {
    "/classify": {"texts": ["It was lovely, and warm.", "It was cold."]},
    "/embed": {"texts": ["It was lovely, and warm."]},
    "/nothing": {"texts": ["It was cold."]},
}
"""Route -> a request to a classifier."""


def server(side: Side) -> Outputs:
    """The replies of a server with a classifier."""
    model = finetune(side, "reviews")
    port = free_port()
    served = side.start("serve", model, "--port", port, "--device", "cpu", "--precision", "fp32")
    try:
        wait_until_ready(port, served)
        return {route: reply(port, route, body) for route, body in REQUESTS.items()}
    finally:
        served.terminate()
        served.wait(SECONDS)


def wait_until_ready(port: int, served: subprocess.Popen) -> None:
    """Wait until a server has loaded its model.

    Raises:
        Failed: it ended, or took too long.
    """
    for _ in range(SECONDS * 10):
        if served.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise Failed(f"the server on port {port} is not ready")


def reply(port: int, route: str, body: dict[str, Any]) -> Any:
    """The status and the JSON of a reply."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{route}", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            return [answered.status, json.load(answered)]
    except urllib.error.HTTPError as refused:
        return [refused.code]


CASES: dict[str, Callable[[Side], Outputs]] = {
    "prepare": prepare,
    "tokenizer": tokenizer,
    "pretrain": pretrain,
    "pretrain, SIGKILL": killed_by(signal.SIGKILL, pretraining_run),
    "pretrain, SIGTERM": killed_by(signal.SIGTERM, pretraining_run),
    "pretrain, two processes": two_processes,
    "single label": task("reviews", "csv", "--text", "text", "--label", "label"),
    "pairs": task("pairs", "csv", *PAIR_COLUMNS),
    "regression": task("numbers", "csv", "--text", "text", "--label", "stars", "--regression"),
    "several labels": task("topics", "csv", *TOPIC_COLUMNS),
    "tagging": task("tags", "conll"),
    "multiple choice": task("choices", "jsonl", *CHOICES),
    "span": task("answers", "jsonl", "--question-length", 16, "--stride", 16),
    "python": python_functions,
    "finetune, SIGKILL": killed_by(signal.SIGKILL, finetuning_run),
    "finetune, SIGTERM": killed_by(signal.SIGTERM, finetuning_run),
    "frozen": frozen,
    "teacher": teacher,
    "other starts": other_starts,
    "sweeps": sweeps,
    "vectors": vectors,
    "declared task": declared_task,
    "formats": formats,
    "package model": package_model,
    "saved int8": saved_int8,
    "tensorflow": tensorflow,
    "server": server,
}


# ---------------------------------------------------------------------------------------------------------------------
# The comparison.


def differences(ours: Outputs, theirs: Outputs) -> list[str]:
    """A line for each output that is not the same on both sides."""
    found = [f"{name}: only here" for name in ours.keys() - theirs.keys()]
    found += [f"{name}: only in the base" for name in theirs.keys() - ours.keys()]
    for name in ours.keys() & theirs.keys():
        line = difference(ours[name], theirs[name])
        if line is not None:
            found.append(f"{name}: {line}")
    return sorted(found)


def difference(ours: Any, theirs: Any) -> str | None:
    """How two outputs differ; None if they are equal."""
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{ours.dtype} {list(ours.shape)}, in the base {theirs.dtype} {list(theirs.shape)}"
        if ours.tobytes() == theirs.tobytes():
            return None
        places = int(np.count_nonzero(ours != theirs))
        largest = np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)))
        return f"{places} of {ours.size} numbers differ, by at most {largest:.3g}"
    if ours == theirs:
        return None
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        row = next(n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
        return f"row {row}: {shortened(ours[row])}, in the base {shortened(theirs[row])}"
    return f"{shortened(ours)}, in the base {shortened(theirs)}"


def shortened(value: Any) -> str:
    """The beginning of a value."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:160] + " …"


def run_case(name: str, side: Side) -> tuple[Outputs, float]:
    """The outputs of a case, and the seconds that it took."""
    began = time.monotonic()
    try:
        outputs = CASES[name](side.inside(name.replace(",", "").replace(" ", "-")))
    except Failed as failed:
        outputs = {"ended": f"with an error: {failed}"}
    return outputs, time.monotonic() - began


def compare(names: Sequence[str], ours: Side, base: Side) -> dict[str, list[str]]:
    """The differences of each case; both checkouts run at the same time."""
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(2) as pool:
        for name in names:
            run = functools.partial(run_case, name)
            (our_outputs, our_seconds), (base_outputs, base_seconds) = pool.map(run, (ours, base))
            ended = [
                f"{side} it ended {outputs['ended']}"
                for side, outputs in (("here", our_outputs), ("in the base", base_outputs))
                if "ended" in outputs
            ]
            found[name] = ended or differences(our_outputs, base_outputs)
            verdict = f"{len(found[name])} differ" if found[name] else "the same"
            times = f"{our_seconds:.0f} and {base_seconds:.0f} s"
            print(f"{name}: {verdict} ({len(our_outputs)} outputs, {times})", flush=True)
            for line in found[name][:10]:
                print(f"    {line}", flush=True)
    return found


def checked_out(commit: str, folder: Path) -> Path:
    """A work tree of a commit of this repository."""
    git = ("git", "-C", str(CHECKOUT))
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(folder), commit], check=True)
    return folder


def prove(folder: Path) -> bool:
    """Whether a changed weight, label and word are found, each by its case, and nothing else is."""
    true_material = folder / "material"
    make_material(true_material)
    changes = {"package model": change_a_weight, "frozen": change_a_label, "prepare": change_a_word}
    all_found = True
    for name, change in changes.items():
        changed_material = folder / change.__name__
        shutil.copytree(true_material, changed_material)
        change(changed_material)
        found: dict[str, Outputs] = {}
        for label, material in (("changed", changed_material), ("once", true_material), ("again", true_material)):
            side = Side(CHECKOUT, folder / f"{change.__name__} {label}", material)
            found[label], _ = run_case(name, side)
        lines = differences(found["changed"], found["once"])
        others = differences(found["again"], found["once"])
        proven = bool(lines) and not others and not any("ended" in outputs for outputs in found.values())
        print(f"{change.__name__}: {'found' if proven else 'NOT FOUND'} ({name}: {len(lines)} outputs differ)")
        for line in [*lines[:3], *others]:
            print(f"    {line}")
        all_found = all_found and proven
    return all_found


def change_a_weight(material: Path) -> None:
    """The model of the package with one other weight."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(CHECKOUT / "models" / "tiny", material / "model")
    (material / "model" / "MANIFEST.json").unlink()
    file = material / "model" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in sorted(tensors) if name.endswith("ffn.weight"))
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] += 0.5
    save_file(tensors, file, metadata={"format": "pt"})


def change_a_label(material: Path) -> None:
    """The training rows of the reviews with one other label."""
    file = material / "reviews-train.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    rows[0]["label"] = "bad" if rows[0]["label"] == "good" else "good"
    write_csv(file, rows)


def change_a_word(material: Path) -> None:
    """The corpus with one other word."""
    rows = json_lines(material / "corpus.jsonl")
    rows[0]["text"] = rows[0]["text"] + " Door."
    write_json_lines(material / "corpus.jsonl", rows)


def main() -> int:
    """0 if all is the same, 1 if something differs."""
    description, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", help="a checkout or a commit; that of dev/oracle-base when not set")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help=f"all when not set: {'; '.join(CASES)}")
    parser.add_argument("--keep", metavar="FOLDER", help="keep all files in this new folder")
    parser.add_argument("--prove", action="store_true", help="compare this checkout with itself, with three changes")
    args = parser.parse_args()
    names = args.cases or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; cases are: {'; '.join(CASES)}")
    with tempfile.TemporaryDirectory(prefix="oracle-") as temporary:
        folder = Path(args.keep).resolve() if args.keep else Path(temporary)
        folder.mkdir(exist_ok=True)
        if args.prove:
            return 0 if prove(folder) else 1
        base = args.base or BASE_FILE.read_text(encoding="utf-8").split()[0]
        is_commit = not Path(base).is_dir()
        root = checked_out(base, folder / "base") if is_commit else Path(base).resolve()
        try:
            make_material(folder / "material")
            ours = Side(CHECKOUT, folder / "ours", folder / "material")
            theirs = Side(root, folder / "theirs", folder / "material")
            found = compare(names, ours, theirs)
        finally:
            if is_commit:
                subprocess.run(["git", "-C", str(CHECKOUT), "worktree", "remove", "--force", str(root)], check=True)
    different = [name for name, lines in found.items() if lines]
    print(f"{len(found) - len(different)} of {len(found)} cases are the same")
    if different:
        print(f"different: {'; '.join(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
