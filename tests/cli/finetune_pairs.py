"""Pairs of options that the third edition refused, of `finetune`, which is finetune, finetune-vectors and sweep today.

`test_refused_pairs.py` has those of the other commands, and the checks.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from albert.runtime.errors import InvalidConfiguration, UsageError


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
