"""Settings, identity, report and model card of a fine-tuning run, and the choice between its last and best model."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from albert.checkpoints.huggingface import ARCHITECTURES
from albert.checkpoints.model_directory import ModelCard, open_model, save_model_directory, weights_fingerprint
from albert.finetuning.data import PreparedSplit, TaskBatches, arrays_fingerprint
from albert.finetuning.evaluation import Evaluation
from albert.finetuning.model import Exits, StartedModel, head_kind, n_outputs
from albert.finetuning.objective import Distillation, Teacher
from albert.finetuning.options import BY_DEFAULT, LearningPlan
from albert.model.cost import count_parameters
from albert.optim.recipe import OptimizerRecipe
from albert.runtime.devices import describe_machine
from albert.runtime.distributed import wait_for_all
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.files import new_directory, remove_directory
from albert.runtime.json_files import (
    fingerprint_of,
    identity_settings,
    read_journal,
    read_json_object,
    save_json,
    to_json,
)
from albert.tasks.examples import Example
from albert.tasks.metrics import is_better
from albert.tasks.task import (
    UNNAMED,
    PairEncoding,
    QuestionInContext,
    Score,
    Target,
    Task,
    TaskRecipe,
    ThresholdFrom,
    Words,
)
from albert.training.logging import TrainingResult
from albert.training.run_folder import RunFolder
from albert.training.state import first_difference

# --------------------------------------------------------------------------------------------------------------------
# Which model of a run is its result: the last one, or the one with the best development score of all evaluations.
#
# The paper stops early: it takes the best of evaluations every 100 steps (section 4.9). A score that was chosen on
# the set it is reported on is somewhat high, so the last model is the default, and which it was is said wherever
# the score is.

SelectedBy = Literal["last", "best"]
EVALUATION_INTERVAL = 100
"""Steps between evaluations."""
_SCORE_NAME = "score.json"


@dataclass(frozen=True)
class BestModel:
    """The best model so far, kept in a directory of its own while the run goes on; the first of equals.

    A run that was stopped finds it there. What it evaluates a second time scores as before, so it stays the first.
    What was scored on another development set does not count.
    """

    directory: Path
    save: Callable[[Path], None]
    scored_on: str = ""
    """The fingerprint of the development set."""

    def consider(self, scores: Mapping[str, float | None]) -> None:
        """Keep the model as it stands when its first score is better than the best so far; undefined is below all."""
        name, score = next(iter(scores.items()))
        if self.directory.is_dir():
            kept = read_json_object(self.directory / _SCORE_NAME)
            same_rows = kept.get("scored_on", self.scored_on) == self.scored_on
            if same_rows and not is_better(name, score, kept["score"]):
                return
        with new_directory(self.directory, replace=True) as directory:
            self.save(directory)
            save_json(directory / _SCORE_NAME, {"metric": name, "score": score, "scored_on": self.scored_on})

    def tensors(self, target: Target, pairs: PairEncoding = "together") -> dict[str, torch.Tensor]:
        """Its weights.

        Raises:
            MissingInput, DamagedData: they were removed or changed meanwhile.
        """
        return open_model(self.directory, head_kind(target, pairs), n_outputs(target)).model.state_dict()


def describe_selection(by: SelectedBy, scores: Mapping[str, float | None], journal: Path) -> dict[str, Any]:
    """Which model of a finished run it is, whose journal has all evaluations; `rule` and `note` are for people."""
    metric, step, evaluations = next(iter(scores)), None, 1
    rule = note = "selection: the model after the last step"
    if by == "best":
        found = [record for record in read_journal(journal) if record["event"] == "evaluation"]
        best = found[0]
        for record in found[1:]:
            best = record if is_better(metric, record.get(metric), best.get(metric)) else best
        step, evaluations = best["step"], len(found)
        rule = (
            f"selection: the best of {evaluations} evaluations by {metric} on the development set; a score "
            "that is chosen on the set it is reported on is somewhat high"
        )
        note = f"{rule} (step {step:,})"
    return {"by": by, "metric": metric, "step": step, "evaluations": evaluations, "rule": rule, "note": note}


RESULTS_NAME = "results.json"
_FREE_TO_CHANGE = ("device", "workers", "micro_batch_tokens", "checkpoint_every")
_SINCE_THE_FIRST_RUNS = {
    "exits": None,
    "freeze_encoder": False,
    "distillation": None,
    "page_examples": 5,
    "encode_pairs": "together",
}
"""Values that mean what settings without such a field meant: they are not recorded, and older runs go on."""


@dataclass(frozen=True, kw_only=True)
class FinetuningSettings:
    """How a run computes; the task's own recipe stands apart.

    `optimizer` names one that takes the recipe's learning rate and weight decay (None: AdamW), or says everything;
    `precision` None means bf16
    on a GPU and fp32 on a CPU. `null_threshold` says which questions tell from where on one has no answer: some
    kept back from training, or, as the reference has it, the scored ones. `select` says which model is the result, the
    last or the best of all evaluations. `evaluate_every` and `checkpoint_every` are steps. `exits` are the layers after
    which the head learns to answer, None the last alone; `freeze_encoder` lets only pooler and head learn;
    `encode_pairs` says how the two texts of a pair are read, None as suits the model (see `choose_pair_encoding`);
    `distillation` names a teacher; `page_examples` is how many rows of the development set `examples.json` may hold.
    """

    seed: int = 0
    null_threshold: ThresholdFrom = "train"
    max_train_examples: int | None = None
    select: SelectedBy = "last"
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    micro_batch_tokens: int = 8192
    optimizer: OptimizerRecipe | Literal["adamw", "lamb"] | None = None
    device: str = "auto"
    precision: Precision | None = None
    workers: int = 0
    exits: Exits | None = None
    freeze_encoder: bool = False
    distillation: Distillation | None = None
    page_examples: int = 5
    encode_pairs: PairEncoding | None = None

    def __post_init__(self) -> None:
        counts = {"max_train_examples": 1, "evaluate_every": 1, "checkpoint_every": 1, "micro_batch_tokens": 1}
        for name, least in (counts | {"workers": 0, "page_examples": 0}).items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidConfiguration(name, f"is {value}, at least {least} is needed")

    @property
    def evaluation_interval(self) -> int | None:
        """Steps between evaluations; to choose among them there are as many as in the paper, unless it is said."""
        return self.evaluate_every or (EVALUATION_INTERVAL if self.select == "best" else None)


@dataclass(frozen=True)
class FinetuningResult:
    """Scores on the development set, what `results.json` holds, and where the model is."""

    scores: Mapping[str, float | None]
    report: Mapping[str, Any]
    model_directory: Path
    already_complete: bool = False


def optimizer_of(settings: FinetuningSettings, recipe: TaskRecipe) -> OptimizerRecipe:
    """The optimiser, complete."""
    if isinstance(settings.optimizer, OptimizerRecipe):
        return settings.optimizer
    return OptimizerRecipe(
        kind=settings.optimizer or "adamw", learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
    )


def run_record(task: Task, started: StartedModel, plan: LearningPlan, settings: FinetuningSettings) -> dict[str, Any]:
    """The whole run as plain values, saved as `recipe.json`."""
    return {
        "task": task.name,
        "inputs": to_json(task.inputs),
        "target": to_json(task.target),
        "start": started.source,
        **({"changes": dict(started.changes)} if started.changes else {}),
        "recipe": to_json(plan.recipe),
        BY_DEFAULT: list(plan.by_default),
        "settings": recorded_settings(settings),
    }


def recorded_settings(settings: FinetuningSettings) -> dict[str, Any]:
    """Settings as plain values; of a teacher what it is, not where on which machine."""
    values = to_json(settings)
    values["encode_pairs"] = settings.encode_pairs or "together"  # not decided where there are no pairs
    if settings.distillation is not None:
        values["distillation"]["teacher"] = settings.distillation.source
        del values["distillation"]["revision"]  # the source says it
    return identity_settings(values, (), _SINCE_THE_FIRST_RUNS)


def decisive_settings(settings: FinetuningSettings) -> dict[str, Any]:
    """Settings as plain values, with one value for those that change no result."""
    return recorded_settings(replace(settings, device="auto", workers=0, micro_batch_tokens=1, checkpoint_every=None))


def run_identity(
    task: Task,
    started: StartedModel,
    batches: TaskBatches,
    dev_split: PreparedSplit,
    recipe: TaskRecipe,
    settings: FinetuningSettings,
    teacher: Teacher | None = None,
) -> dict[str, str]:
    """Fingerprints of all that decides the result: how, from what, and from which weights is learnt, and what it is
    scored on."""
    sequences = batches.sequences
    return {
        "recipe": recipe_fingerprint(task.target, started.changes, recipe, settings),
        "training data": arrays_fingerprint(sequences.tokens, sequences.starts, batches.targets),
        "development set": examples_fingerprint(dev_split.examples),
        **start_identity(started),
        **({} if teacher is None else {"teacher": teacher.fingerprint}),
    }


def start_identity(started: StartedModel) -> dict[str, str]:
    """Fingerprints of what a run starts from."""
    weights = weights_fingerprint(started.model.state_dict())
    return {"initial weights": weights, "tokenizer": started.tokenizer.fingerprint}


def recipe_fingerprint(
    target: Target, changes: Mapping[str, Any], recipe: TaskRecipe, settings: FinetuningSettings
) -> str:
    """A hash of how is learnt: the same wherever it is computed."""
    chosen = {"recipe": to_json(recipe), "settings": decisive_settings(settings), "target": to_json(target)}
    return fingerprint_of(chosen | ({"changes": dict(changes)} if changes else {}))


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over what is asked and what is right, in order; not over where the files are."""
    digest = hashlib.sha256()
    for each in examples:
        digest.update(repr((each.texts, each.target, each.answers, each.options, each.group)).encode())
    return digest.hexdigest()


def run_report(
    record: Mapping[str, Any],
    task: Task,
    train_split: PreparedSplit,
    batches: TaskBatches,
    training: TrainingResult,
    evaluation: Evaluation,
    notes: tuple[str, ...],
) -> dict[str, Any]:
    """What `results.json` holds beside the identity: the record, scores, baseline, counts and speed."""
    learnt = training.steps * batches.batch_size
    return {
        **record,
        "scores": dict(evaluation.scores),
        "baseline": None if evaluation.baseline is None else dict(evaluation.baseline),
        "published": to_json(task.published),
        "training": {
            **train_split.counts,
            "examples": len(train_split.examples),
            "sequences": len(batches.sequences),
            "windows_left_out": len(train_split.features.sequences) - len(batches.sequences),
            "steps": training.steps,
            "epochs": learnt / batches.n_examples,
            "seconds": training.seconds,
            "sequences_per_second": learnt * batches.n_options / training.seconds if training.seconds else None,
            "tokens_per_second": training.tokens_per_second,
        },
        "evaluation": {
            **evaluation.counts,
            "examples": len(evaluation.predictions),
            "seconds": evaluation.seconds,
            "examples_per_second": len(evaluation.predictions) / evaluation.seconds,
        },
        "notes": [*notes, *evaluation.notes],
        "seed": batches.seed,
        "machine": describe_machine(),
    }


def run_card(
    name: str,
    task: Task,
    started: StartedModel,
    recipe: TaskRecipe,
    evaluation: Evaluation,
    linear: Mapping[str, Any] | None,
    about: Sequence[str],
) -> str:
    """The model card; `linear` is a `LinearBaseline` as plain values, `about` further lines on the data."""
    head = sum(p.numel() for n, p in started.model.named_parameters() if not n.startswith("albert."))
    parts = {k: n for k, n in count_parameters(started.config).by_part().items() if "head" not in k}
    parts.pop("pretraining", None)
    own_table = task.name == UNNAMED
    learnt = f"fine-tuned on {'a table' if own_table else task.name}, starting from {started.source}"
    return ModelCard(
        name=name,
        location="path/to/this/directory",
        architecture=ARCHITECTURES[type(started.model)],
        attention_window=started.config.effective_window,
        description=task.description if own_table else f"{task.name}. {task.description}".strip(),
        parameters=parts | {"task head": head},
        recipe=to_json(recipe),
        scores=_compared_scores(evaluation, linear),
        data=[learnt, *started.changed, *about],
        versions={"torch": torch.__version__},
    ).render()


def _compared_scores(evaluation: Evaluation, linear: Mapping[str, Any] | None) -> dict[str, float]:
    """The defined scores, each followed by those that it is compared with."""
    rows: dict[str, float] = {}
    for metric, score in evaluation.defined_scores.items():
        rows[f"{metric}, development set"] = score
        others = {"the best constant answer": (evaluation.baseline or {}).get(metric)}
        if linear is not None:
            others[linear["method"]] = linear["scores"].get(metric)
        for other, value in others.items():
            if value is not None and "thresh" not in metric:
                rows[f"{metric}, {other}"] = value
    return rows


def page_examples(task: Task, examples: Sequence[Example], count: int) -> list[dict[str, str]]:
    """At most so many short examples as the page's fields, without labels: of each label in turn, of numbers from low
    to high. They depend on the examples and their order alone."""
    names = ("question", "context", "options") if isinstance(task.inputs, QuestionInContext) else ("text", "pair")
    found: dict[tuple[str, ...], Any] = {}
    for each in examples:
        texts = (" ".join(each.texts),) if isinstance(task.inputs, Words) else each.texts
        needed = (*each.texts[1:], *each.options) if each.options else texts  # a choice may have no question
        texts += ("\n".join(each.options),) if each.options else ()
        short = all(len(text) <= (1000 if name == "context" else 300) for name, text in zip(names, texts, strict=False))
        printable = "".join("".join(texts).split()).isprintable() and "\n" not in "".join(each.options)
        if short and printable and all(map(str.strip, needed)):
            kinds = -len(set(each.target)) if isinstance(each.target, tuple) else 0
            found[texts] = (not each.answers, kinds, each.target)
    fitting = sorted(found, key=found.__getitem__)
    if isinstance(task.target, Score):
        found = {texts: place * count // len(fitting) for place, texts in enumerate(fitting)}
    groups = [list(group) for _, group in groupby(fitting, key=found.__getitem__)]
    chosen = [texts for turn in zip_longest(*groups) for texts in turn if texts is not None]
    return [dict(zip(names, texts, strict=False)) for texts in chosen[:count]]


# --------------------------------------------------------------------------------------------------------------------
# The beginning and the end of every run, one of contrastive learning too.


def begin_run(
    run: RunFolder, record: dict[str, Any], identity: dict[str, str], ranks: Ranks
) -> FinetuningResult | None:
    """The result where an earlier call finished this very run; else the run is recorded, and may train.

    Raises:
        CannotCreate: the directory holds another run, of pre-training say; nothing in it is touched.
    """
    other = None
    if (run.path / RESULTS_NAME).is_file():
        report = read_json_object(run.path / RESULTS_NAME)
        known = report.get("identity")
        key = first_difference(known if isinstance(known, dict) else {}, identity)
        if key is None:
            if ranks.is_first:
                remove_temporary_files(run)  # which the call that finished it may not have lived to do
            return FinetuningResult(report["scores"], report, run.model_path, already_complete=True)
        other = f"holds a finished run with another {key}"
    elif run.recipe_path.exists():
        kept = read_json_object(run.recipe_path)
        for key in ("task", "inputs", "target", "changes", "recipe", "settings"):
            values = (kept.get(key), record.get(key))
            before, now = (
                identity_settings(each, _FREE_TO_CHANGE, {}) if isinstance(each, dict) else each for each in values
            )
            if before != now:
                other = f"holds another run, its recipe.json has another {key}"
                break
    if other is not None:
        raise CannotCreate(run.path, other, "choose another output, or remove it")
    if ranks.is_first:
        save_json(run.recipe_path, record)
    return None


def finish_run(
    run: RunFolder, ranks: Ranks, started: StartedModel, model: nn.Module, report: dict[str, Any], **saved: Any
) -> FinetuningResult:
    """Write the model directory (for `saved` see `save_model_directory`), then the results."""
    save_model_directory(run.model_path, model, started.tokenizer_directory, replace=True, **saved)
    save_json(run.path / RESULTS_NAME, report)  # last: its presence says that the run is complete
    remove_temporary_files(run)
    wait_for_all(ranks)
    return FinetuningResult(report["scores"], report, run.model_path)


def result_of_first_rank(run: RunFolder, ranks: Ranks) -> FinetuningResult:
    """What the first rank wrote, for the others, which wait for it."""
    wait_for_all(ranks)
    report = read_json_object(run.path / RESULTS_NAME)
    return FinetuningResult(report["scores"], report, run.model_path)


def remove_temporary_files(run: RunFolder) -> None:
    """Remove what only served to go on, or to choose the model."""
    for needless in (run.checkpoints_path, run.path / "best"):
        if needless.is_dir():
            remove_directory(needless)
