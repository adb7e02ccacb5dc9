"""Every two options that the third edition refused together: today the pair is impossible, refused, or means something.

`PAIRS` has a row for each of them. *Impossible*: one of the two is no option any more, and is answered in one line.
*Refused*: one line says why, at the command line and in Python, before anything is trained or written. *Meaningful*:
the two, or the only one that is left of them, say something that is done.
"""

import shlex
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

import albert
from albert.cli.main import COMMANDS, main_of
from albert.cli.parsing import read_command_line
from albert.cli.signature import Option
from albert.runtime.errors import AlbertError, InvalidConfiguration, UsageError
from albert.runtime.python_words import in_python


class Pair(NamedTuple):
    """Two options that were refused together.

    Attributes:
        before: the command and both options, as they were typed.
        words: what is typed today for the two; of an impossible pair what is typed for the option that stays.
        says: the option that left, or a part of the line that refuses.
        code: the exit code of a refusal.
    """

    before: str
    now: Literal["impossible", "refused", "meaningful"]
    words: str
    says: str = ""
    code: int = UsageError.exit_code


LEFT = ""
"""Instead of the words of an option: there is none any more."""


def beside(call: str, first: str, says: str, others: Mapping[str, str], code: int = 2) -> Iterator[Pair]:
    """A row for `first` with each other option.

    Args:
        call: the command line of today that stands for `first`.
        others: option, as it was typed -> what is added to `call` today.
    """
    program = call.split(" ", 1)[0]
    for option, words in others.items():
        before = f"{program}: {first} {option}"
        if words == LEFT:
            yield Pair(before, "impossible", call, option.split(" ")[0].removeprefix("--").replace("-", "_"))
        else:
            yield Pair(before, "refused", f"{call} {words}", says, code)


def same(*words: str) -> dict[str, str]:
    """Options that are typed today as they were."""
    return {each: each for each in words}


def left(names: str) -> dict[str, str]:
    """Options that left."""
    return {f"--{name}": LEFT for name in names.split()}


# --------------------------------------------------------------------------------------------------------------------
# Options of the user's tables: as they were typed -> today.

OF_TABLES = {
    "--task-file": LEFT,  # the file is the first argument, in the place of TASK
    **same(
        "--text a", "--pair a", "--label a", "--words a", "--tags a", "--options a b", "--question a", "--context a"
    ),
    **same("--answer a", "--answer-start a", "--id a", "--group a"),
    "--format": "reading.format=csv",
    "--delimiter": "reading.delimiter=;",
    "--encoding": "reading.encoding=cp1252",
    "--columns": "reading.columns=a,b",
    "--no-header": "reading.no_header=true",
    "--drop-unlabelled": "reading.drop_unlabelled=true",
    "--decimal": "reading.decimal=,",
    "--positive": "positive=a",
    "--label-names": "label_names=0=a",
    "--classes": "--kind classification",
    "--regression": "--kind number",
    "--multi-label": "--kind multi-label",
    **same("--separator |", "--labels a b", "--metrics accuracy"),
    "--option-labels": "option_labels=letter",
}
WITHOUT_HEAD = (
    "keep-head statistics-only exits freeze-encoder encode-pairs seeds intermediate question-length stride span-head "
    "v2-recipe select data head-dropout max-train-examples match-embedding null-threshold page-examples solve-head "
    "frozen threshold patience class-weights test folds try"
)
"""Options of `finetune` that no objective of vectors had."""
OF_PAIRS_OF_TEXTS = ("--text", "--pair")


def names_of(options: Mapping[str, str], without: tuple[str, ...] = ()) -> str:
    names = [each.split(" ")[0] for each in options]
    return " ".join(name.removeprefix("--") for name in names if name not in without)


# --------------------------------------------------------------------------------------------------------------------
# finetune, which is finetune, finetune-vectors and sweep today.

FINETUNE = "finetune --model {pretrained} --train {tables}/train.csv --output {here}/out"
OWN = f"{FINETUNE} --text review --label stars"
TASK = "finetune sst-2 --model {pretrained} --data {here} --output {here}/out"
GLUE = "sweep glue --model {pretrained} --data {here} --output {here}/out"
SWEEP = OWN.replace("finetune", "sweep", 1)
SWEEP_TASK = TASK.replace("finetune", "sweep", 1)
VECTORS = "finetune-vectors --model {pretrained} --train {tables}/train.csv --text review --output {here}/out"
OF_PAIRS = f"{VECTORS} --pair stars"
OF_TEACHER = f"{VECTORS} --teacher {{pretrained}}"

FINETUNE_PAIRS = [
    # Whatever is learned.
    *beside(OWN, "--init random", "contradict", {"--keep-head": "init=random keep_head=true"}),
    *beside(OWN, "--steps 3", "say the same thing twice", {"--epochs 2": "steps=3 epochs=2"}),
    *beside(
        OWN, "--freeze-encoder", "has no effect", {"--encoder-dropout 0.1": "freeze_encoder=true encoder_dropout=0.1"}
    ),
    *beside(OWN, "--depth 2", "", left("num-hidden-layers")),
    *beside(
        OWN,
        "(no --teacher)",
        "requires --teacher",
        {
            "--distillation-temperature 2": "distillation.temperature=2",
            "--distillation-weight 0.5": "distillation.weight=0.5",
            "--teacher-revision main": LEFT,
        },
    ),
    *beside(OWN, "--encode-pairs separately", "", left("exits")),
    *beside(
        f"{FINETUNE} --text review --pair review --label stars",
        "--keep-head",
        "the kept head reads pairs together",
        {"--encode-pairs separately": "keep_head=true encode_pairs=separately"},
        InvalidConfiguration.exit_code,
    ),
    *beside(
        OWN,
        "--select last",
        "keeps the best evaluation",
        {"--patience 2": "select=last patience=2"},
        InvalidConfiguration.exit_code,
    ),
    # Vectors of texts, from pairs: --objective contrastive.
    *beside(OF_PAIRS, "--objective contrastive", "", left(names_of(OF_TABLES, OF_PAIRS_OF_TEXTS))),
    *beside(OF_PAIRS, "--objective contrastive", "", left(WITHOUT_HEAD)),
    *beside(OF_PAIRS, "--objective contrastive", "sst-2", {"sst-2": "sst-2"}),
    *beside(OF_PAIRS, "--objective contrastive --dev FILE", "", left("held-out")),
    *beside(
        OF_PAIRS,
        "--objective contrastive",
        "requires --teacher",
        {"--teacher-vectors FOLDER": "--teacher-vectors {here}/vectors"},
    ),
    Pair(
        "finetune: --objective contrastive --teacher MODEL",
        "meaningful",
        OF_TEACHER,
        "finetuning.vectors.finetune_vectors",
    ),
    # From a teacher: --objective vectors.
    *beside(OF_TEACHER, "--objective vectors", "", left(names_of(OF_TABLES, OF_PAIRS_OF_TEXTS))),
    *beside(OF_TEACHER, "--objective vectors", "", left(WITHOUT_HEAD)),
    *beside(OF_TEACHER, "--objective vectors", "", left("distillation-temperature distillation-weight")),
    *beside(OF_TEACHER, "--objective vectors", "sst-2", {"sst-2": "sst-2"}),
    *beside(
        OF_TEACHER,
        "--objective vectors",
        "is about pairs of texts",
        {
            "--pair stars": "--pair stars",
            "--negative stars": "--negative stars",
            "--temperature 0.1": "temperature=0.1",
        },
    ),
    Pair(
        "finetune: --objective vectors (no --teacher)",
        "meaningful",
        OF_PAIRS,
        "finetuning.contrastive.finetune_contrastive",
    ),
    # Neither.
    *beside(OWN, "(no --objective)", "", left("teacher-vectors temperature negative")),
    # A benchmark.
    *beside(GLUE, "glue", "is a benchmark of several tasks", OF_TABLES),
    *beside(
        GLUE,
        "glue",
        "is a benchmark of several tasks",
        {
            "--train FILE": "--train {tables}/train.csv",
            "--dev FILE": "--dev {tables}/dev.csv",
            "--test FILE": "--test {tables}/dev.csv",
            "--folds 3": "--folds 3",
            "--try 1e-4 2e-4": "--rates 1e-4 2e-4",
            "--held-out 0.2": LEFT,
            "--span-head joint": "span_head=joint",
            "--keep-head": "keep_head=true",
            "--v2-recipe": LEFT,
            "--statistics-only": LEFT,
        },
    ),
    *beside(TASK, "(no benchmark)", "", left("intermediate")),
    # The user's table.
    *beside(OWN, "--dev FILE", "", left("held-out")),
    *beside(OWN, "--train FILE", "requires a declared task", {"--data FOLDER": "--data {here}", "--v2-recipe": LEFT}),
    *beside(SWEEP, "--seeds 2", "cannot be combined with --seeds", {"--folds 3": "--seeds 2 --folds 3"}),
    *beside(SWEEP, "--seeds 2", "cannot be combined with --seeds", {"--try 1e-4": "--seeds 2 --rates 1e-4 2e-4"}),
    *beside(SWEEP, "--folds 3", "cannot be combined with --folds", {"--try 1e-4": "--folds 3 --rates 1e-4 2e-4"}),
    *beside(
        SWEEP,
        "--folds 3",
        "cannot be combined with --folds",
        {"--dev FILE": "--folds 3 --dev {tables}/dev.csv", "--held-out 0.2": LEFT},
    ),
    *beside(OWN, "--classes", "", left("regression multi-label")),
    *beside(OWN, "--regression", "", left("multi-label")),
    # A declared task.
    *beside(TASK, "sst-2", "requires your tables", OF_TABLES),
    *beside(TASK, "sst-2", "requires your tables", {"--test FILE": "--test {tables}/dev.csv", "--held-out 0.2": LEFT}),
    *beside(SWEEP_TASK, "sst-2", "requires your tables", {"--folds 3": "--folds 3"}),
    Pair(
        "finetune: sst-2 --try 1e-4 2e-4",
        "meaningful",
        f"{SWEEP_TASK} --rates 1e-4 2e-4",
        "finetuning.sweep.run_sweep",
    ),
    *beside(TASK, "sst-2", "requires a task with questions", {"--question-length 9": "question_length=9"}),
    *beside(
        TASK,
        "sst-2",
        "requires a task whose answers are spans",
        {
            "--span-head joint": "span_head=joint",
            "--stride 9": "stride=9",
            "--null-threshold dev": "null_threshold=dev",
        },
    ),
]

# Columns that do not belong to the kind of task that others stand for.
OF_CHOICE = "--options review stars --label stars --text review"
OF_QUESTIONS = "--question review --context review --answer stars"
OF_WORDS = "--words review --tags stars"
OF_CLASSES = "--text review --label stars"
COLUMN_PAIRS = [
    *beside(
        FINETUNE,
        "--options a b --label c",
        "cannot be used with multiple-choice",
        {f"--{name} d": f"{OF_CHOICE} --{name} review" for name in ("pair", "context", "answer")},
    ),
    *beside(
        FINETUNE,
        "--question a --context b --answer c",
        "cannot be used with question-answering",
        {f"--{name} d": f"{OF_QUESTIONS} --{name} review" for name in ("text", "pair", "label")},
    ),
    *(  # words or tags decide first
        pair
        for first, others in (
            ("--options a b --label c", OF_CHOICE),
            ("--question a --context b --answer c", OF_QUESTIONS),
        )
        for name, other in (("words", "tags"), ("tags", "words"))
        for pair in beside(
            FINETUNE, first, f"token-classification: needs --{other}", {f"--{name} d": f"{others} --{name} review"}
        )
    ),
    *beside(
        FINETUNE,
        "--words a --tags b",
        "cannot be used with token-classification",
        {f"--{name} d": f"{OF_WORDS} --{name} review" for name in ("text", "pair", "label")},
    ),
    *beside(
        FINETUNE,
        "--regression",
        "cannot be used with regression",
        {
            "--labels a b": f"{OF_CLASSES} --kind number --labels a b",
            "--separator |": f"{OF_CLASSES} --kind number --separator |",
            "--option-labels letter": f"{OF_CLASSES} --kind number option_labels=letter",
        },
    ),
    *beside(
        FINETUNE.replace("{tables}/train.csv", "{here}/wide.csv"),
        "--regression",
        "several columns of --label: cannot be used with regression",
        {"--label a b": "--text text --kind number --label a b"},
    ),
    *beside(
        FINETUNE,
        "--classes",
        "cannot be used with classification",
        {
            "--separator |": f"{OF_CLASSES} --kind classification --separator |",
            "--option-labels letter": f"{OF_CLASSES} --kind classification option_labels=letter",
        },
    ),
    *beside(
        FINETUNE,
        "--multi-label",
        "cannot be used with multi-label",
        {"--option-labels letter": f"{OF_CLASSES} --kind multi-label option_labels=letter"},
    ),
    *beside(
        FINETUNE,
        "--text a --label b",
        "cannot be used with classification",
        {"--group c": f"{OF_CLASSES} --group review"},
    ),
]

# --------------------------------------------------------------------------------------------------------------------
# evaluate

PRETRAINING = "evaluate pretraining --model {pretrained} --data {corpus}"
EVALUATE = "evaluate --model {classifier} --dev {tables}/dev.csv"
EVALUATE_TASK = "evaluate sst-2 --model {classifier} --data {here}"
DEPTHS = f"{EVALUATE} --depth 1 2"
PRECISIONS = f"{EVALUATE} --precision fp32 bf16"
OF_ONE = {
    "--predictions FILE": "--predictions {here}/predictions.jsonl",
    "--submission FOLDER": "--submission {here}/submission",
    "--report FILE": "--report {here}/report.html",
}
OF_ONE_SETTING = {**OF_ONE, "--threshold 0.5": "--threshold 0.5"}
EVALUATE_PAIRS = [
    *beside(PRETRAINING, "pretraining", "requires another task", OF_TABLES),
    *beside(
        PRETRAINING,
        "pretraining",
        "requires another task",
        {**OF_ONE, "--split dev": "--split dev", "--dev FILE": "--dev {tables}/dev.csv"},
    ),
    *beside(
        PRETRAINING,
        "pretraining",
        "require another task",
        {"--depth 2": "--depth 2", "--curve PICTURE": "--curve {here}/curve.png", "--patience 2": LEFT},
    ),
    *beside(PRETRAINING, "pretraining", "must be fp32 or bf16", same("--precision fp32 bf16", "--precision int8")),
    *beside(
        EVALUATE,
        "(not pretraining)",
        "requires the task pretraining",
        same("--json", "--objective sop", "--sequences 5", "--max-ngram 1"),
    ),
    *beside(DEPTHS, "--depth 1 2", "requires a single --depth", OF_ONE_SETTING),
    *beside(EVALUATE, "--depth 1 2", "require one model", {"--model a b": "--model {classifier} tiny --depth 1 2"}),
    *beside(DEPTHS, "--depth 1 2", "must be a single one", same("--precision fp32 bf16")),
    *beside(f"{EVALUATE} --curve {{here}}/curve.png", "--curve PICTURE", "requires a single --depth", OF_ONE_SETTING),
    *beside(EVALUATE, "--patience 2", "", left("patience")),
    *beside(PRECISIONS, "--precision fp32 bf16", "requires a single --precision", OF_ONE_SETTING),
    *beside(PRECISIONS, "--precision fp32 bf16", "require one model", {"--model a b": "--model {classifier} tiny"}),
    *beside(PRECISIONS, "--precision fp32 bf16", "requires a single precision", same("--depth 2")),
    *beside(EVALUATE, "(one --depth)", "is for a table of depths", same("--rounds 3")),
    *beside(EVALUATE, "(one --precision)", "is for several precisions", same("--tolerance 1")),
    *beside(EVALUATE_TASK, "sst-2", "requires your own file", OF_TABLES),
    *beside(
        "evaluate mnli --model {classifier} --data {here} --submission {here}/submission",
        "mnli --submission FOLDER",
        "is one file, there are the splits",
        {
            "--predictions FILE": "--predictions {here}/predictions.jsonl",
            "--results FILE": "--results {here}/results.json",
            "--report FILE": "--report {here}/report.html",
        },
    ),
]

# --------------------------------------------------------------------------------------------------------------------
# predict

INPUTS = {
    "--fill-mask": "--fill-mask [MASK]",
    "--order": "--order a b",
    "--classify": "--classify a",
    "--tag": "--tag a",
    "--choose": "--choose a b",
    "--question": "--question a",
    "--input": "--input {tables}/dev.csv",
}
OF_FILES = {
    **same("--task classify", "--text review", "--options review stars", "--group stars", "--prefix x_"),
    **same("--pooling cls", "--normalize", "--prompt query", "--replace"),
    "--output FILE": "--output {here}/answers.jsonl",
    "--pair-field": LEFT,  # --pair, --question and --context name columns
    "--question-field": LEFT,
    "--context-field": LEFT,
    **{name: OF_TABLES[name] for name in ("--format", "--delimiter", "--encoding", "--columns", "--no-header")},
}
"""Options that belong to --input."""
OF_SOME_INPUTS = {
    "--top-k 2": ("--order", "--classify", "--tag", "--choose"),
    "--words": ("--fill-mask", "--order", "--classify", "--choose", "--question"),
    "--pair b": ("--fill-mask", "--order", "--tag", "--choose", "--question"),
    "--context b": ("--fill-mask", "--order", "--classify", "--tag"),
}
"""Option -> the inputs that it does not belong to."""
OF_SOME_TASKS = {
    "--text review": ("answer", "choose"),
    "--pair review": ("fill-mask", "embed", "tag", "answer", "choose"),
    "--question review": ("fill-mask", "order", "classify", "embed", "tag"),
    "--context review": ("fill-mask", "order", "classify", "embed", "tag"),
    "--options review stars": ("fill-mask", "order", "classify", "embed", "tag", "answer"),
    "--top-k 2": ("order", "classify", "embed", "tag", "choose"),
    "--words": ("fill-mask", "order", "classify", "embed", "answer", "choose"),
    "--group stars": ("fill-mask", "order", "classify", "embed", "answer", "choose"),
    "--pooling cls": ("fill-mask", "order", "classify", "tag", "answer", "choose"),
    "--normalize": ("fill-mask", "order", "classify", "tag", "answer", "choose"),
    "--prompt query": ("fill-mask", "order", "classify", "tag", "answer", "choose"),
}
"""Option -> the tasks of --input that it does not belong to."""
PREDICT = "predict {classifier}"
ROWS = f"{PREDICT} {INPUTS['--input']}"
PREDICT_PAIRS = [
    *(
        pair
        for one, other in combinations(INPUTS, 2)
        if (one, other) not in (("--choose", "--question"), ("--question", "--input"))
        for pair in beside(f"{PREDICT} {INPUTS[one]}", one, "together", {other: INPUTS[other]})
    ),
    *(
        pair
        for one in INPUTS
        if one != "--input"
        for pair in beside(f"{PREDICT} {INPUTS[one]}", one, f"not {one}", {**OF_FILES, **left("explain")})
    ),
    *(
        pair
        for option, inputs in OF_SOME_INPUTS.items()
        for one in inputs
        for pair in beside(f"{PREDICT} {INPUTS[one]}", one, f"not {one}", same(option))
    ),
    *(
        pair
        for option, tasks in OF_SOME_TASKS.items()
        for task in tasks
        for pair in beside(f"{ROWS} --task {task}", f"--task {task}", f"not {task}", same(option))
    ),
    *beside(f"{PREDICT} --question a", "--question a (no --context)", "give --context", {"": "--top-k 2"}),
    *beside(f"{PREDICT} --choose a b", "--choose a b (no --context)", "give --context", {"": "--question a"}),
    *beside(
        "predict {pretrained} --input {here}/texts.txt --task order",
        "--input texts.txt",
        "is one text per line, without columns",
        same("--text a", "--pair a"),
    ),
]

# --------------------------------------------------------------------------------------------------------------------
# Other commands.

PRETRAIN = "pretrain small --data {corpus} --output {here}/out"
PREPARE = "prepare {text} --tokenizer {tokenizer} --output {here}/out"
TOKENIZER = "tokenizer train {text} --output {here}/out"
CONVERT = "convert {classifier} --output {here}/out"
OF_MODELS = {
    "--compare MODEL": "--compare albert-base",
    **same("--measure", "--memory", "--self-check", "--max-length 9"),
    "--revision main": LEFT,
}
OTHER_PAIRS = [
    *beside(
        PRETRAIN,
        "(no --init)",
        "requires --init MODEL",
        {
            "--revision main": LEFT,
            "--extend-positions tile": "--extend-positions",
            **same("--resize-vocabulary", "--drop-heads sentence_order"),
        },
    ),
    *beside(
        PRETRAIN, "--replace", "which --replace removes", {"--change-dropout 0.1": "--replace --change-dropout 0.1"}
    ),
    *beside(PRETRAIN.replace("small", "continue"), "continue", "no model to continue with", {"(no --init)": "steps=3"}),
    *(
        pair
        for call in (PREPARE, TOKENIZER)
        for pair in beside(
            call, "--wrapped yes", "contradict", {"--sentences-as-lines": "--wrapped yes --sentences-as-lines"}
        )
    ),
    *beside(
        PREPARE,
        "(no --engine slurm)",
        "require --engine slurm",
        {
            "--slurm.partition a": "--partition a",
            "--slurm.time 1:00": "--time 1:00",
            "--slurm.memory-gb 9": "--memory-gb 9",
        },
    ),
    *beside(
        CONVERT,
        "--without-tokenizer",
        "contradicts",
        {
            "--tokenizer FOLDER": "--without-tokenizer --tokenizer {tokenizer}",
        },
    ),
    *beside(
        CONVERT.replace("{classifier}", "{pretrained}"), "(no classes)", "no classes to name", same("--labels a b")
    ),
    *beside(CONVERT, "FOLDER", "", left("revision")),
    *beside("info", "(no name)", "needs a name", OF_MODELS),
    *beside("info {corpus}", "a corpus", "requires a model", OF_MODELS),
    *beside("info {tokenizer}", "a tokenizer", "requires a model", OF_MODELS),
    *beside(
        "info albert-base", "a preset", "requires a model", {"--self-check": "--self-check", "--revision main": LEFT}
    ),
    *beside(
        "info albert-base",
        "(neither --measure nor --memory)",
        "requires --measure or --memory",
        same("--batch-size 2"),
    ),
    *beside("info albert-base", "(no --memory)", "requires --memory", same("--memory-limit 8GB")),
    *beside("info albert-base --memory", "--memory", "cannot be combined with --compare", same("--compare bert-base")),
    Pair("plot: --output a.png --csv a.png", "impossible", "", "plot"),
]
SAID_NOTHING = [  # one of the two had no effect, and nothing said so
    *beside(
        PRETRAINING,
        "pretraining",
        "requires another task",
        same("--threshold 0.5", "--rounds 3", "--tolerance 1", "--micro-batch-tokens 99"),
    ),
    *beside(DEPTHS, "--depth 1 2", "is for a single --depth", same("--micro-batch-tokens 99")),
    *beside(EVALUATE, "(no TASK)", "requires a TASK", {"--data FOLDER": "--data {here}"}),
    *beside(
        f"{CONVERT} --without-tokenizer", "--without-tokenizer", "contradicts", same("--keep-case", "--keep-accents")
    ),
    *beside(
        "info --recipe small",
        "--recipe small",
        "cannot be combined with",
        same("--compare bert-base", "--measure", "--memory", "--self-check", "--max-length 9", "--verify", "--json"),
    ),
    *beside("info albert-base", "(neither --measure nor --memory)", "requires --measure", same("--precision bf16")),
    *beside("info albert-base", "(nothing that is computed)", "requires --measure", same("--device cpu")),
]
PAIRS = [*SAID_NOTHING, *FINETUNE_PAIRS, *COLUMN_PAIRS, *EVALUATE_PAIRS, *PREDICT_PAIRS, *OTHER_PAIRS]


# --------------------------------------------------------------------------------------------------------------------
# The checks.

ONLY_COMMAND_LINE = ("predict", "info", "convert")
"""Commands that are no functions of the package."""


def words_of(text: str, scene, here: Path) -> list[str]:
    """A command line; in the names of options and values there are no blanks."""
    return [scene.fill(word, here) for word in shlex.split(text.replace("|", "'|'").replace(";", "';'"))]


def function_and_options(words: list[str]) -> tuple[Any, list[Option], list[str]]:
    """The function of the package that a command line calls, its options, and the other words."""
    command, *rest = words
    main = main_of(command)
    if command == "tokenizer":
        part, *rest = rest
        return albert.tokenizer.train, main.parts[part].options, rest
    return getattr(albert, command.replace("-", "_"), None), main.options, rest


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("a text\n")
    (tmp_path / "wide.csv").write_text("text,a,b\n" + "".join(f"text {n},{n},{n % 7}\n" for n in range(24)))
    return tmp_path


def refuses(refused, words: list[str], code: int, *subjects: str, written: Path) -> None:
    """The command line is refused in one line, and nothing is written."""
    before = sorted(written.iterdir())
    refused(words, code, *subjects)
    assert sorted(written.iterdir()) == before


@pytest.mark.parametrize("pair", [each for each in PAIRS if each.now == "impossible"], ids=lambda pair: pair.before)
def test_impossible(pair, scene, here, refused):
    if not pair.words:
        assert pair.says not in COMMANDS
        refuses(refused, [pair.says], 2, f"{pair.says}: no such command", written=here)
        return
    words = words_of(pair.words, scene, here)
    function, options, rest = function_and_options(words)
    assert pair.says not in {option.name for option in options}
    typed = "--" + pair.says.replace("_", "-")
    refuses(refused, [*words, typed, "1"], 2, f"{typed}: unknown option", written=here)
    if words[0] not in ONLY_COMMAND_LINE:
        keywords = read_command_line(options, rest, words[0])
        refused(lambda: function(**keywords, **{pair.says: 1}), 2, f"{pair.says}: unknown keyword")


@pytest.mark.parametrize("pair", [each for each in PAIRS if each.now == "refused"], ids=lambda pair: pair.before)
def test_refused(pair, scene, here, refused):
    words = words_of(pair.words, scene, here)
    refuses(refused, words, pair.code, pair.says, written=here)
    function, options, rest = function_and_options(words)
    is_typed = any(word in ("--json", "sst-2") for word in words[2:])  # a word that Python has no keyword for
    if words[0] not in ONLY_COMMAND_LINE and not is_typed:
        keywords = read_command_line(options, rest, words[0])
        names = {option.name for option in options}
        with pytest.raises(AlbertError) as error:
            function(**keywords)
        assert error.value.exit_code == pair.code
        assert in_python(pair.says, names) in str(error.value)
        assert "\n" not in str(error.value)


class Reached(Exception):
    """The checks are over, and training would begin."""


@pytest.mark.parametrize("pair", [each for each in PAIRS if each.now == "meaningful"], ids=lambda pair: pair.before)
def test_meaningful(pair, scene, here, monkeypatch):
    """The pair passes all checks, and the function that it means is called."""

    def reached(*args: object, **kwargs: object) -> None:
        raise Reached

    module, _, name = pair.says.rpartition(".")
    monkeypatch.setattr(f"albert.{module}.{name}", reached)
    function, options, rest = function_and_options(words_of(pair.words, scene, here))
    with pytest.raises(Reached):
        function(**read_command_line(options, rest, "albert"))


def test_no_pair_is_listed_twice():
    rows = [pair.before for pair in PAIRS]
    assert len(rows) == len(set(rows))
