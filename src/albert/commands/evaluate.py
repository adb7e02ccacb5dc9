"""`albert evaluate` and `albert.evaluate`: scores of models on a task, at several depths or precisions, and of
pre-trained models on held-out text."""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from albert.cli.command_line import Subcommand
from albert.cli.main import imports
from albert.cli.render import open_console, print_json, print_result
from albert.cli.signature import Option, PathLike, Rows, file_of, given_options, keys_in, option_name
from albert.commands.checks import check_corpus, check_data, check_options
from albert.commands.columns import Columns, LabelKind, TableKeys, tuple_of
from albert.commands.evaluate_rows import declared_task, splits_to_score, task_of_model
from albert.commands.finetune import COLUMNS
from albert.commands.function import command, definition_of
from albert.recipes.architecture import Activation
from albert.recipes.pretraining import SentenceObjective
from albert.runtime.errors import UsageError
from albert.tasks.declared import DeclaredTask

if TYPE_CHECKING:
    from albert.finetuning.evaluation import EvaluatedModels
    from albert.inference.engine import InferencePrecision
    from albert.report.result import Result
    from albert.runtime.environment import Precision

PRETRAINING = "pretraining"
"""The task that has a corpus in the place of a table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How many layers of a model to apply.

    Attributes:
        depths: as many as in training when empty; several give a table of scores and costs.
        curve: a PNG of that table; the figures are written beside it as .csv.
        rounds: timings of each row of that table.
    """

    depths: tuple[int, ...] = ()
    curve: Path | None = None
    rounds: int = 1

    @property
    def makes_table(self) -> bool:
        """Whether several depths, or costs, are asked for."""
        return len(self.depths) > 1 or self.curve is not None


Precisions = Literal["auto", "fp32", "bf16", "int8"]


@command("albert evaluate", keys=TableKeys)
def evaluate(
    task: str | None = None,
    *,
    model: PathLike | Sequence[PathLike],
    data: PathLike | None = None,
    split: str | None = None,
    dev: Rows | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | Sequence[str] | None = None,
    words: str | None = None,
    tags: str | None = None,
    options: str | Sequence[str] | None = None,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    answer_start: str | None = None,
    id: str | None = None,
    group: str | None = None,
    kind: LabelKind | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    metrics: str | Sequence[str] | None = None,
    predictions: PathLike | None = None,
    submission: PathLike | None = None,
    results: PathLike | None = None,
    report: PathLike | None = None,
    threshold: float | None = None,
    max_length: int | None = None,
    objective: SentenceObjective | Sequence[SentenceObjective] | None = None,
    sequences: int = 2000,
    max_ngram: int = 3,
    depth: int | Sequence[int] = (),
    curve: PathLike | None = None,
    rounds: int = 1,
    micro_batch_tokens: int = 8192,
    hidden_act: Activation | None = None,
    num_attention_heads: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Precisions | Sequence[Precisions] = ("auto",),
    tolerance: float = 0.5,
    on_result: "Callable[[Result], None] | None" = None,
    **keys: Any,
) -> "Result":
    """Score a model, or several together, with a task's official metrics, beside the majority baseline.

    Args:
        task: A declared task, or pretraining; leave it out for your own file.
        model: A model directory, a run that made one, or a Hub id. Several are scored each and together: the mean of
            their predictions, for spans over the models that proposed them. With pretraining, several are compared on
            the same texts, and a running run is evaluated at its newest checkpoint.
        data: The task's data folder; for pretraining a prepared corpus.
        split: The split of a declared task; when not set dev, or with --submission the splits that its server scores.
        dev: Your own file, the one that the model was scored on when not set; with TASK a file in its layout.
        predictions: Write one JSON object for each example.
        submission: A directory for files in the format of a benchmark's server: GLUE's tables of labels, SQuAD's
            answers as JSON. Files without labels are answered and not scored.
        results: Write the scores as JSON, with those of each class, confusions, errors and calibration.
        report: Write the same as a page: one HTML file, like the report of a run.
        threshold: Several labels per row: the probability from which on a label is predicted; the model's own when not
            set.
        max_length: Maximum tokens of a sequence; when not set the length used in training, of several models the
            shortest.
        objective: For pretraining: which sentence tasks to score, whatever the model was trained on; none: masked
            tokens alone. When not set, nsp and sop, or sop alone if a single document is held out.
        sequences: For pretraining: maximum number of sequences.
        max_ngram: For pretraining: maximum number of words that are masked together; 1 masks single words, as for
            tiny's card.
        depth: Number of layers to apply; as many as in training when not set. Several give a table of scores and costs.
        curve: Draw that table, score against compute, as a PNG; the figures are written beside it as .csv.
        rounds: Number of timings of each row of that table.
        micro_batch_tokens: Tokens in one pass through the model; fewer need less memory.
        precision: Precision of matrix products; auto, as in albert predict, is fp32 on a CPU and bf16 on a GPU.
            Several, or int8, are compared in one table; if the score moves by more than the tolerance the command
            fails (exit 4).
        tolerance: Points by which another precision may move the first score.
    """
    given = given_options(evaluate, dict(locals()))
    columns = Columns(**{name: given[name] for name in COLUMNS if name in given})
    models = tuple(os.fspath(each) for each in ([model] if isinstance(model, str | os.PathLike) else model))
    folder = None if data is None else Path(data)
    dev_file = file_of(dev)
    submission = None if submission is None else Path(submission)
    predictions, results, report, curve = (
        None if path is None else Path(path) for path in (predictions, results, report, curve)
    )
    objectives: tuple[SentenceObjective, ...] | None = None if objective is None else tuple_of(objective)
    precisions: tuple[Precisions, ...] = tuple_of(precision)
    depths = DepthOptions(depths=(depth,) if isinstance(depth, int) else tuple(depth), curve=curve, rounds=rounds)
    check_options(SimpleNamespace(model=models, data=folder, dev=dev_file))
    check_combination(given, task, models, folder, dev_file, depths, precisions)

    with imports():
        from albert.columns.read import TableSource
        from albert.commands.evaluate_depths import compare_depths
        from albert.commands.evaluate_precisions import check_precisions, compare_precisions, precision_scores
        from albert.finetuning.evaluation import evaluate_models, write_predictions
        from albert.inference.engine import choose_precision, use_fast_encoders
        from albert.report.evaluations import lines_about_model, result_of_split
        from albert.runtime.devices import pick_device
        from albert.runtime.files import write_text
        from albert.tasks.submission import submission_files

    overrides = {"hidden_act": hidden_act, "num_attention_heads": num_attention_heads}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    opening: dict[str, Any] = {"device": device, "max_length": max_length, "overrides": overrides}

    # Pre-trained models on held-out text.
    if task == PRETRAINING:
        assert folder is not None  # see check_combination
        computed_in = choose_precision(precisions[0], pick_device(device))
        result = evaluate_pretrained(models, folder, objectives, sequences, max_ngram, computed_in, opening)
        finish(result, results, on_result)
        return result

    # The task; one model at several depths or precisions.
    outputs = [predictions, results, report, curve, None if curve is None else curve.with_suffix(".csv")]
    if task is None:
        scored_task, origin = task_of_model(models[0], columns, keys, dev_file, outputs)
    else:
        scored_task, origin = declared_task(task, split, dev_file, outputs), None
    if origin is not None and (on_result is None or depths.makes_table or compares_precisions(precisions)):
        print(f"albert: note: {origin}", file=sys.stderr)
    folder = folder or Path()
    chosen: list[InferencePrecision] = [choose_precision(each, pick_device(device)) for each in precisions]
    if depths.makes_table:
        result = compare_depths(
            scored_task, models[0], folder, split or "dev", **vars(depths), precision=chosen[0], **opening
        )
        finish(result, results, on_result)
        return result
    if compares_precisions(precisions):
        rows = precision_scores(
            scored_task,
            models[0],
            folder,
            split or "dev",
            chosen,
            tolerance,
            micro_batch_tokens=micro_batch_tokens,
            **opening,
        )
        result = compare_precisions(rows, scored_task, models[0], split or "dev", tolerance)
        finish(result, results, on_result)
        check_precisions(rows, tolerance)
        return result

    # Each split: its answers, and their scores if it has labels; every result is handed on before the next split.
    computed_in = chosen[0]
    assert computed_in != "int8"  # which is compared with fp32
    splits = splits_to_score(scored_task, split, dev_file, submission)
    for option, path in (("--predictions", predictions), ("--results", results), ("--report", report)):
        if path is not None and len(splits) > 1:
            raise UsageError(option, f"is one file, there are the splits {', '.join(splits)}", "name one with --split")
    results_of_splits = []
    for each in splits:
        found = evaluate_models(
            scored_task,
            models,
            folder,
            each,
            prepare=partial(use_fast_encoders, precision=computed_in),
            needs_labels=submission is None and predictions is None,
            depth=next(iter(depths.depths), None),
            threshold=threshold,
            micro_batch_tokens=micro_batch_tokens,
            **opening,
        )
        together = found.together
        if predictions is not None:
            write_predictions(predictions, together)
        handed_in = {}
        if submission is not None:
            for name, text in submission_files(scored_task, each, together.predictions).items():
                write_text(submission / name, text)
                handed_in[submission / name] = len(together.predictions)
        unknown = warnings_on_texts(scored_task, folder, each, models[0])
        content = report_of_split(scored_task, models, each, computed_in, found, unknown)
        notes = [] if origin is None else [origin]
        if isinstance(scored_task.source, TableSource):
            notes += scored_task.source.tables[each].notes
        if notes:
            content["reading"] = notes
        if report is not None and not together.scores:
            raise UsageError("--report", "needs rows with labels", "leave it out, --predictions writes the answers")
        about = {
            name: lines_about_model(member.notes, member.counts)
            for name, member in zip(models, found.members, strict=True)
        }
        result = result_of_split(
            content,
            scored_task,
            together.predictions,
            about_models=about,
            notes=together.notes,
            seconds=together.seconds,
            page=report,
            submission=handed_in,
        )
        if report is not None:
            write_text(report, result.page())
        finish(result, results, on_result)
        results_of_splits.append(result)
    return results_of_splits[-1]


# --------------------------------------------------------------------------------------------------------------------
# Options that cannot be combined, and outputs that would replace an input.


OF_TABLES = (*COLUMNS, *(key.name for key in keys_in(TableKeys)))
"""Options and keys for the user's tables."""


def check_combination(
    given: Mapping[str, Any],
    task: str | None,
    model: Sequence[str],
    data: Path | None,
    dev: Path | None,
    depths: DepthOptions,
    precision: Sequence[str],
) -> None:
    """Check task and data, and raise UsageError for options that cannot be combined.

    Args:
        given: the options that differ from their defaults, by name.
    """
    if task == PRETRAINING:
        if data is None:
            raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
        check_corpus(data)
    elif task is not None:
        check_data(task, data, has_files=dev is not None)
    for option, values in (("--model", model), ("--precision", precision)):
        if not values:
            raise UsageError(option, "is empty", "see albert evaluate --help")

    if task == PRETRAINING:
        files = ("split", "dev", "predictions", "submission", "report")
        of_other_tasks = (*OF_TABLES, *files, "threshold", "rounds", "tolerance", "micro_batch_tokens")
        refuse(given, of_other_tasks, "requires another task", f"leave it or {PRETRAINING} out")
        if depths.depths or depths.makes_table:
            raise UsageError("--depth and --curve", "require another task", f"leave {PRETRAINING} out")
        if compares_precisions(precision):
            remedy = "several are compared on a task, for one model"
            raise UsageError("--precision", "must be fp32 or bf16 here", remedy)
        return

    remedy = "leave it out; --results writes scores as JSON"
    refuse(given, ("objective", "sequences", "max_ngram"), f"requires the task {PRETRAINING}", remedy)
    if depths.makes_table or compares_precisions(precision):
        what = "--depth" if depths.makes_table else "--precision"
        of_one = ("predictions", "submission", "threshold", "report")
        refuse(given, of_one, f"requires a single {what}", "compare several without it")
        if len(model) > 1:
            raise UsageError("--model", f"several of {what} require one model", "name one")
    if not depths.makes_table and "rounds" in given:
        raise UsageError("--rounds", "is for a table of depths", "name several with --depth, or leave it out")
    if not compares_precisions(precision) and "tolerance" in given:
        raise UsageError("--tolerance", "is for several precisions", "name them with --precision, or leave it out")
    if depths.makes_table:
        refuse(given, ("micro_batch_tokens",), "is for a single --depth", "leave it out")
        if depths.rounds < 1:
            raise UsageError("--rounds", f"is {depths.rounds}, at least 1 is needed")
        if len(precision) > 1:
            raise UsageError("--precision", "must be a single one here", "compare precisions at one --depth")
        if depths.curve is not None:
            check_png(depths.curve)
    elif compares_precisions(precision) and depths.depths:
        raise UsageError("--depth", "requires a single precision", "name fp32 or bf16")
    if task is not None:
        refuse(given, OF_TABLES, f"requires your own file, the task {task} has its own columns")
    else:
        refuse(given, ("data",), "requires a TASK, this is your own file", "leave it out")


def check_png(picture: Path) -> None:
    """Raises UsageError for a picture that is not a PNG."""
    if picture.suffix.lower() != ".png":
        raise UsageError(f"--curve {picture}", "must end in .png", "choose a name that ends in .png")


def compares_precisions(precision: Sequence[str]) -> bool:
    """Whether precisions are compared with fp32: several, or int8 alone."""
    return len(precision) > 1 or "int8" in precision


def refuse(given: Mapping[str, Any], names: Iterable[str], why: str, remedy: str = "") -> None:
    """Raises UsageError for the first of these options that is given."""
    for name in names:
        if name in given:
            is_key = name in OF_TABLES and name not in COLUMNS
            raise UsageError(name if is_key else option_name(name), why, remedy)


# --------------------------------------------------------------------------------------------------------------------
# Results.


def finish(result: "Result", file: Path | None, on_result: "Callable[[Result], None] | None") -> None:
    """Write a result as JSON, and hand it on."""
    from albert.runtime.json_files import save_json

    if file is not None:
        save_json(file, result.report)
    if on_result is not None:
        on_result(result)


def warnings_on_texts(task: DeclaredTask, data: Path, split: str, model: str) -> tuple[str, ...]:
    """Lines if the model's vocabulary does not know the text of a split, and if texts are empty."""
    from albert.checkpoints.hub import find_model
    from albert.columns.statistics import unknown_texts
    from albert.text.tokenizer_loading import load_tokenizer

    tokenizer = load_tokenizer(find_model(model))
    rows = task.source.read(data, split)
    lines = unknown_texts(task, {split: rows}, tokenizer, model)
    columns = [column for column in task.inputs.columns if any(row.fields.get(column) for row in rows.rows)]
    empty = 0
    for row in rows.rows:
        values = [row.fields.get(column) for column in columns]
        empty += not all(value.strip() if isinstance(value, str) else value for value in values)
    if empty:
        lines += (f"{empty:,} of {len(rows.rows):,} rows {'has' if empty == 1 else 'have'} an empty text",)
    return lines


def report_of_split(
    task: DeclaredTask,
    models: Sequence[str],
    split: str,
    precision: "Precision",
    found: "EvaluatedModels",
    unknown: Sequence[str],
) -> dict[str, Any]:
    """The content of the file `results`."""
    model = models[0] if len(models) == 1 else list(models)
    report: dict[str, Any] = {"task": task.name, "model": model, "split": split, "precision": precision}
    if unknown:
        report["warnings"] = list(unknown)
    report["scores"] = dict(found.together.scores)
    report["baseline"] = found.together.baseline
    report["baseline_name"] = task.target.baseline_name
    if len(models) > 1:
        report["of_each"] = {name: dict(member.scores) for name, member in zip(models, found.members, strict=True)}
    report["counts"] = dict(found.together.counts)
    report |= found.analysis
    return report


def evaluate_pretrained(
    models: Sequence[str],
    corpus: Path,
    objectives: Sequence[SentenceObjective] | None,
    sequences: int,
    max_ngram: int,
    precision: "InferencePrecision",
    opening: Mapping[str, Any],
) -> "Result":
    """Score pre-trained models on masked tokens, next sentences and sentence order of held-out text."""
    from albert.inference.engine import use_fast_encoders
    from albert.pretraining.evaluation import evaluate_pretraining
    from albert.recipes.pretraining import MaskingRecipe
    from albert.report.evaluations import result_of_pretrained

    found = evaluate_pretraining(
        models,
        corpus,
        objectives=objectives,
        masking=MaskingRecipe(max_ngram=max_ngram),
        limit=sequences,
        prepare=partial(use_fast_encoders, precision=precision),
        **opening,
    )
    report = {"task": PRETRAINING, "precision": precision, **found.to_json()}
    return result_of_pretrained(report, found.counts, [note for each in found.models for note in each.notes])


# --------------------------------------------------------------------------------------------------------------------
# The command line.


JSON = Option(
    name="json",
    path=("json",),
    hint=bool,
    default=False,
    text="For pretraining: print a JSON object instead of the table.",
)


def show_evaluate(json: bool = False, **arguments: Any) -> None:
    """Run `albert evaluate`, and print each result when it is there."""
    if json and arguments.get("task") != PRETRAINING:
        remedy = "leave it out; --results writes scores as JSON"
        raise UsageError("--json", f"requires the task {PRETRAINING}", remedy)
    console = open_console()

    def show(result: "Result") -> None:
        if json:
            print_json({name: value for name, value in result.report.items() if name != "task"})
        else:
            print_result(console, result)

    evaluate(**arguments, on_result=show)


evaluate_main = Subcommand(wraps(evaluate)(show_evaluate), "albert evaluate", [*definition_of(evaluate).options, JSON])
