"""What each kind of task on a table is made of: inputs, target, metrics, and the recipe to begin with."""

from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.tasks.answer_metrics import span_exact_match, span_f1
from albert.tasks.answerability import open_question_scores
from albert.tasks.entities import entity_scores, run_scores, tag_metrics, word_scores
from albert.tasks.metrics import (
    accuracy,
    f1,
    macro_f1,
    matthews_correlation,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    spearman,
)
from albert.tasks.tables.table_task import Kind, TableTask
from albert.tasks.task import (
    Choice,
    Inputs,
    Labels,
    Metric,
    Option,
    Pair,
    QuestionInContext,
    Score,
    Single,
    Span,
    Tags,
    Target,
    TaskRecipe,
    Words,
)

NO_QUESTION, NO_TEXT = "(no question)", "(no text)"
"""Columns that are empty in every row, where a multiple choice has no question, or nothing to read."""
OWN_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=512)
SPAN_RECIPE = TaskRecipe(
    learning_rate=3e-5, batch_size=32, epochs=2.0, max_length=384, question_length=64, stride=128, encoder_dropout=0.0
)
OPTION_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, max_length=512, question_length=128)
MOST_NAMED = 10
"""Labels that a description names; of more it gives the number."""
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "classification": (accuracy, f1, macro_f1, matthews_correlation),
    "regression": (pearson, spearman, mean_absolute_error),
    "multi-label": (multi_label_scores,),
    "token-classification": (entity_scores, run_scores, word_scores),
    "multiple-choice": (accuracy,),
    "question-answering": (span_f1, span_exact_match),
}
"""What a kind can be scored by; `f1` is that of the second label of two."""


def inputs_of(task: TableTask) -> Inputs:
    """What a model reads of a row."""
    match task:
        case TableTask(kind="token-classification", words=str(words)):
            return Words(words)
        case TableTask(kind="question-answering", question=str(question), context=str(context)):
            return QuestionInContext(question, context)
        case TableTask(kind="multiple-choice"):
            return QuestionInContext(task.question or NO_QUESTION, task.text or NO_TEXT)
        case TableTask(text=str(text), pair=str(pair)):
            return Pair(text, pair)
        case TableTask(text=str(text)):
            return Single(text)
    raise InvalidConfiguration("task", "no columns are named", "say which with --text and --label")


def target_of(task: TableTask, options: tuple[str, ...]) -> Target:
    """What is asked. `options` are the columns of a multiple choice, of lists one for each place."""
    match task:
        case TableTask(kind="classification", labels=tuple(labels), label=str(label)):
            names = task.label_names
            return Choice(labels, label, tuple(names.get(one, one) for one in labels) if names else None)
        case TableTask(kind="regression", label=str(label)):
            return Score(label)
        case TableTask(kind="multi-label", labels=tuple(labels), label=str(label)):
            return Labels(labels, label, task.separator or "|")
        case TableTask(kind="token-classification", labels=tuple(labels), tags=str(tags)):
            return Tags(labels, tags)
        case TableTask(kind="multiple-choice", label=str(label)):
            return Option(options, label)
        case TableTask(kind="question-answering"):
            absent = bool(task.may_be_absent)
            return Span(absent, head="joint" if absent else "independent")
    raise InvalidConfiguration("task", f"lacks labels or columns of a {task.kind}", "say them, or give a training file")


def description_of(task: TableTask) -> str:
    """One sentence for people: what is predicted from which columns."""
    texts = " and ".join(f"`{name}`" for name in (task.text, task.pair) if name)
    n_labels = len(task.labels or ())
    match task.kind:
        case "token-classification":
            said = f"Predicts the tag of each word of `{task.words}`, one of {n_labels}"
        case "question-answering":
            said = f"Answers `{task.question}` with a part of `{task.context}`"
        case "multiple-choice":
            given = " and ".join(f"`{name}`" for name in (task.question, task.text) if name)
            said = f"Chooses among options, given {given}" if given else "Chooses among options"
        case "regression":
            said = f"Predicts the number `{task.label}` from {texts}"
        case "multi-label":
            said = f"Predicts which of {n_labels} labels `{task.label}` has, from {texts}"
        case _:
            names = [(task.label_names or {}).get(label, label) for label in task.labels or ()]
            classes = f"({', '.join(names)})" if n_labels <= MOST_NAMED else f"(one of {n_labels} classes)"
            said = f"Predicts `{task.label}` {classes} from {texts}"
    return f"{said}, learnt from a table."


def metrics_of(task: TableTask) -> tuple[Metric, ...]:
    """The metrics asked for, or the usual ones of the kind; a model is chosen by the first.

    Raises:
        InvalidConfiguration: one that the kind cannot be scored by.
    """
    assert task.kind is not None
    labels = task.labels or ()
    possible = (open_question_scores,) if task.may_be_absent else METRICS[task.kind]
    if task.kind == "classification" and len(labels) != 2:
        possible = tuple(metric for metric in possible if metric is not f1)
    known = {metric.__name__: metric for metric in possible}
    for name in task.metrics or ():
        if name not in known:
            why = f"does not go with {task.kind}" + (f" of {len(labels)} labels" if labels else "")
            raise InvalidConfiguration(f"metric {name}", why, did_you_mean(name, known))
    if task.metrics is not None:
        return tuple(known[name] for name in task.metrics)
    if task.kind == "token-classification":
        return tag_metrics(labels)
    if task.kind == "classification":
        return (accuracy, f1) if len(labels) == 2 else (accuracy, macro_f1)
    return possible


def recipe_of(task: TableTask) -> TaskRecipe:
    """The kind's recipe, with what the task says of it."""
    kinds: dict[Kind | None, TaskRecipe] = {"multiple-choice": OPTION_RECIPE, "question-answering": SPAN_RECIPE}
    return task.recipe.applied_to(kinds.get(task.kind, OWN_RECIPE))
