"""Every two options that the third edition refused together: today the pair is impossible, refused, or means something.

`PAIRS` has a row for each of them; those of finetune are in `finetune_pairs.py`. *Impossible*: one of the two is no
option any more, and is answered in one line. *Refused*: one line says why, at the command line and in Python, before
anything is trained or written. *Meaningful*: the two, or the only one that is left of them, say something that is done.
"""

import shlex
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.cli.finetune_pairs import COLUMN_PAIRS, FINETUNE_PAIRS, LEFT, OF_TABLES, Pair, beside, left, same

import albert
from albert.cli.main import COMMANDS, main_of
from albert.cli.parsing import read_command_line
from albert.cli.signature import Option
from albert.runtime.errors import AlbertError
from albert.runtime.python_words import in_python

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
"""Commands that the command line alone has; `albert` has no function for them."""


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
