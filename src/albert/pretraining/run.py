"""`pretrain` trains a model on a prepared corpus by a recipe, evaluates it and writes a model directory.

1. `open_run` reads and checks everything: corpora, recipe (`resolve_recipe`), model, held-out samples, a model to start
   from (`initial_weights`).
2. `albert.training.same_run` compares the run with the one in its folder.
3. `PretrainingRun.set_up` makes the batches (`sampling`), the optimizer, and what is trained (`task`).
4. `albert.training.loop` takes the updates, saves checkpoints and asks for evaluations (`evaluation`).
5. `PretrainingRun.score` and `write`: the last evaluation, the model and its card.

`albert.training.run` calls these in order."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForPreTraining
from albert.model.encoder import sinusoids
from albert.optim.optimizer import build_optimizer
from albert.pretraining.card import masked_question, run_card
from albert.pretraining.evaluation import HeldOutSamples, HeldOutTests, held_out_samples
from albert.pretraining.fixed_shape import FixedBatches
from albert.pretraining.gpu_paths import trained_form
from albert.pretraining.initial_weights import Init, warm_start_for_pretraining
from albert.pretraining.sampling import PretrainingBatches, SampleSource, open_corpora, samples_of
from albert.pretraining.saved_run import INITIAL_WEIGHTS, RANDOM_WEIGHTS, StartRecord, recorded_start, saved_recipe
from albert.pretraining.statistics import tokens_cut
from albert.pretraining.task import PretrainingTask, training_plan
from albert.recipes.pretraining import DropoutChanges, PretrainingRecipe, dropout_at
from albert.runtime.devices import deterministic_kernels, fastest_precision, pick_device, seed_torch
from albert.runtime.distributed import code_fingerprint, require_same_on_ranks, sum_over_ranks, wait_for_all
from albert.runtime.environment import DEFAULT_LOG, Log, Ranks, world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import keys_of, save_versioned, to_json
from albert.text.shards import FEW_TOKENS, TokenCorpus, corpus_record, few_tokens
from albert.training.logging import TrainingResult
from albert.training.metric_logger import require_logger
from albert.training.run import RunWork, run_training
from albert.training.run_folder import RunFolder
from albert.training.same_run import PRETRAINING_GROWS, PRETRAINING_MAY_CHANGE, Input, Run
from albert.training.update import BatchSource, training_workers


@dataclass(frozen=True)
class PretrainingResult:
    """A finished pre-training run."""

    run: Path
    model: Path
    """The model directory."""
    training: TrainingResult
    evaluation: Mapping[str, float]
    """Held-out figures of the finished model."""
    start: StartRecord | None = None
    """The trained model it was started from; None: random weights."""
    question: str = ""
    """A sentence of the corpus with a masked word, see `masked_question`."""


def pretrain(
    recipe: PretrainingRecipe,
    data: Path | Sequence[Path],
    output: Path,
    device: str = "auto",
    *,
    init: Init | None = None,
    change_dropout: float | None = None,
    log: Log = DEFAULT_LOG,
    replace: bool = False,
    on_start: Callable[[int | None], None] | None = None,
) -> PretrainingResult:
    """Pre-train a model, or resume the run in `output`; a finished run continues if the recipe now allows more.

    Args:
        data: the output of `albert prepare`; for several corpora, `recipe.mixture` has the weights.
        init: a trained model to start from instead of random weights. Not needed on resuming; if given, it must be the
            model that the run was started from.
        change_dropout: resume with this dropout from the newest checkpoint on; the run's recipe records the change.
        log: where the curves go, beside the journal.
        replace: remove an earlier run in `output` after all checks, and begin anew.
        on_start: called after all checks, before anything is trained, with the step that the run is resumed after;
            None for a new run.

    Raises:
        CannotCreate: `output` holds another run; with `replace`, it is not a run, is in use, or contains the corpus or
            the model.
        Unavailable: the library of `log` is not installed.
        InvalidConfiguration: a setting is invalid, or the weights of `init` do not fit the recipe.
        DamagedData, MissingInput: the corpus, the trained model or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.train`.
    """
    require_logger(log)
    directories = [data] if isinstance(data, Path) else list(data)

    def open_work(earlier: RunFolder, device: torch.device, ranks: Ranks) -> PretrainingRun:
        return open_run(recipe, directories, init, change_dropout, log, on_start, earlier, device, ranks)

    with deterministic_kernels(pick_device(device, world().local_rank), recipe.deterministic):
        return run_training(open_work, output, device, replace, recipe.peer_timeout_minutes)


# --------------------------------------------------------------------------------------------------------------------
# The recipe, filled in.


def resolve_recipe(
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    folder: RunFolder,
    device: torch.device,
    ranks: Ranks,
    change_dropout: float | None = None,
) -> PretrainingRecipe:
    """The recipe with vocabulary, precision and changes of dropout filled in, the same on all ranks.

    The vocabulary is the corpus's. A resumed run keeps its precision and its changes of dropout.

    Raises:
        InvalidConfiguration: the run has other changes of dropout, or none can be made at this point.
    """
    precision = recipe.precision
    changes = recipe.dropout_changes
    if folder.recipe_path.exists():
        saved = saved_recipe(folder)
        precision = saved.precision if precision == "auto" else precision
        if saved.dropout_changes[: len(changes)] != changes:
            why = f"this run was started with dropout_changes {saved.dropout_changes}, now it is {changes}"
            raise InvalidConfiguration(folder.path, why, "change dropout during a run with --change-dropout")
        changes = saved.dropout_changes
    if change_dropout is not None:
        changes = _add_dropout_change(recipe, changes, folder, change_dropout)
    if precision == "auto":
        precision = fastest_precision(device)
    in_fp32 = sum_over_ranks(torch.tensor(float(precision == "fp32"), device=device), ranks)
    precision = "fp32" if in_fp32 > 0 else "bf16"
    model = replace(recipe.model, vocab_size=corpus.vocab_size)
    return replace(recipe, model=model, precision=precision, dropout_changes=changes)


def _add_dropout_change(
    recipe: PretrainingRecipe, changes: DropoutChanges, folder: RunFolder, probability: float
) -> DropoutChanges:
    """The changes with one at the newest checkpoint, unless dropout has this value already."""
    checkpoints = folder.checkpoints()
    if not checkpoints:
        remedy = "a new run takes architecture.hidden_dropout_prob and architecture.attention_probs_dropout_prob"
        raise InvalidConfiguration("--change-dropout", f"{folder.path} has no checkpoint to continue from", remedy)
    step = checkpoints[-1][0]
    initial = {recipe.model.hidden_dropout_prob, recipe.model.attention_probs_dropout_prob}
    now = dropout_at(changes, step)
    if ({now} if now is not None else initial) == {probability}:
        return changes
    if step >= recipe.schedule.total_steps:
        remedy = f"start another run with --init {folder.path}"
        raise InvalidConfiguration("--change-dropout", f"{folder.path} has taken all its updates", remedy)
    return tuple(sorted([change for change in changes if change[0] != step] + [(step, probability)]))


# --------------------------------------------------------------------------------------------------------------------
# Everything that is read, before anything is written.


def open_run(
    recipe: PretrainingRecipe,
    data: Sequence[Path],
    init: Init | None,
    change_dropout: float | None,
    log: Log,
    on_start: Callable[[int | None], None] | None,
    earlier: RunFolder,
    device: torch.device,
    ranks: Ranks,
) -> "PretrainingRun":
    """The corpora, the filled-in recipe, and the model before training; for the arguments see `pretrain`.

    Args:
        earlier: the folder of the run to resume, which does not exist if the run is new.
    """
    # The corpora and the recipe, which are the same on all ranks.
    corpora = open_corpora(data, verify=ranks.is_first)
    records = [corpus_record(corpus) for corpus in corpora]
    manifests = " ".join(record.manifest for record in records)
    facts = {
        "code": code_fingerprint(),
        "torch": torch.__version__,
        "recipe": repr((recipe, change_dropout)),
        "tokenizer": " ".join(record.tokenizer for record in records),
        "corpus": manifests,
        "model to start from": repr(init),
        "newest checkpoint": repr([step for step, _ in earlier.checkpoints()[-1:]]),
    }
    require_same_on_ranks(facts, ranks, device)
    recipe = resolve_recipe(recipe, corpora[0], earlier, device, ranks, change_dropout)
    if recipe.batch_size % ranks.size:
        why = f"{recipe.batch_size} sequences cannot be divided evenly among {ranks.size} processes"
        raise InvalidConfiguration("batch_size", why, "choose a multiple")

    # The samples and the model; only the first rank evaluates, and opens the model to start from.
    samples = samples_of(recipe, corpora, recipe.seed)
    model = untrained_model(recipe)
    held_out = None
    start = None
    if ranks.is_first:
        held_out = held_out_samples(recipe, corpora)
        start = recorded_start(earlier) if init is None else warm_start_for_pretraining(init, recipe, model, corpora[0])
    models = [] if init is None else [Path(init.model)]
    return PretrainingRun(
        record=to_json(recipe),
        inputs={
            "corpus": Input(" and ".join(map(str, records)), manifests),
            INITIAL_WEIGHTS: RANDOM_WEIGHTS if start is None else start.input,
        },
        plan=training_plan(recipe),
        ranks=ranks,
        device=device,
        read_from=[*(corpus.directory for corpus in corpora), *models],
        recipe=recipe,
        corpora=corpora,
        samples=samples,
        model=model,
        held_out=held_out,
        start=start,
        log=log,
        on_start=on_start,
    )


def untrained_model(recipe: PretrainingRecipe) -> AlbertForPreTraining:
    """A model with random weights and the recipe's initial positions; the same for the same recipe and torch build."""
    seed_torch("initialization", recipe.seed)
    model = AlbertForPreTraining(recipe.model)
    if recipe.sinusoidal_positions is not None:
        positions = model.albert.embeddings.position_embeddings.weight
        waves = sinusoids(len(positions), positions.shape[1], recipe.sinusoidal_positions)
        with torch.no_grad():
            positions.copy_(waves)
    model.albert.encoder.checkpointing = recipe.activation_checkpointing
    if recipe.sequences.objective == "none":  # without a loss, weight decay alone would shrink these to zero
        for part in (model.albert.pooler, model.sop_classifier):
            assert part is not None
            part.requires_grad_(False)
    return model


def notes_on_data(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> list[str]:
    """What a user should know of the corpora before the run starts."""
    notes = []
    if len({(corpus.description.held_out_share, corpus.description.seed) for corpus in corpora}) > 1:
        what = "the corpora hold out documents by different shares or seeds"
        notes.append(f"{what}: a text in both may be trained on and evaluated")
    tokens = sum(corpus.n_tokens for corpus in corpora)
    if tokens < FEW_TOKENS:
        notes.append(few_tokens(tokens))
    if recipe.sequences.keep_pairs:
        cut = tokens_cut(corpora, recipe.sequences, recipe.seed)
        notes.append(f"sequences.keep_pairs: {cut.name}: {cut.seen:.1%}")
    return notes


# --------------------------------------------------------------------------------------------------------------------
# The run.


@dataclass(kw_only=True)
class PretrainingRun(RunWork[PretrainingResult]):
    """Pre-training, opened."""

    MAY_CHANGE = PRETRAINING_MAY_CHANGE
    GROWS = PRETRAINING_GROWS
    KEYS = MappingProxyType({".".join(path): key for key, path in keys_of(PretrainingRecipe).items()})
    KEEPS_CHECKPOINTS = True

    recipe: PretrainingRecipe
    corpora: Sequence[TokenCorpus]
    samples: SampleSource
    model: AlbertForPreTraining
    held_out: HeldOutSamples | HeldOutTests | None
    start: StartRecord | None
    log: Log
    on_start: Callable[[int | None], None] | None
    task: PretrainingTask = field(init=False, repr=False)

    def set_up(self, run: Run, is_new: bool) -> PretrainingTask:
        """The model in the form that the device takes, its batches and its optimizer. A trained model to start from
        becomes the checkpoint of step 0, from which all ranks get its weights."""
        folder = run.folder
        if self.on_start is not None:
            checkpoints = folder.checkpoints()
            self.on_start(checkpoints[-1][0] if checkpoints else None)
        if self.ranks.is_first:
            for note in notes_on_data(self.recipe, self.corpora):
                print(f"albert: note: {note}", file=sys.stderr)
            if is_new and self.start is not None:
                save_versioned(folder.start_path, self.start)
        form = trained_form(self.model, self.recipe, self.samples, self.device, self.ranks)
        if form.loss is not None:
            workers = 1
            source: BatchSource = FixedBatches(self.samples, self.recipe.batch_size, form.loss.shape)
        else:
            workers = training_workers(self.device, self.ranks)
            sizes = (self.recipe.batch_size, self.recipe.micro_batch_size)
            source = PretrainingBatches(self.samples, *sizes, workers)
        self.task = PretrainingTask(
            description="Pre-training",
            recipe=self.recipe,
            model=self.model,
            module=form.module,
            called=form.loss,
            optimizer=build_optimizer(self.recipe.optimizer, form.module),
            source=source,
            device=self.device,
            workers=workers,
            folder=folder,
            tokenizer_directory=self.corpora[0].directory,
            held_out=self.held_out,
            evaluates=self.held_out is not None,
            start=self.start,
            ranks=self.ranks,
            self_checks=form.checks,
            log=self.log,
        )
        if is_new and self.start is not None:  # on the first rank
            self.task.write_first_checkpoint(self.start, run)
        wait_for_all(self.ranks)
        self.task.start = recorded_start(folder)
        return self.task

    def score(self, training: TrainingResult) -> dict[str, Any]:
        """The last evaluation of the finished model."""
        schedule = self.recipe.schedule
        in_warmup = training.steps < schedule.warmup_steps and self.task.warmup_ended_at is None
        if in_warmup and training.ended_by != "steps":
            remedy = "schedule.anneal=budget or a smaller schedule.warmup_steps fits it into the budget"
            steps = f"{schedule.warmup_steps:,} steps"
            self.task.print_note(f"the run ended in its warm-up of {steps}; {remedy}")
        self.task.before_step(training.steps - 1)  # for a run whose updates were taken before, which takes none now
        self.task.gather()
        return {
            "training": vars(training),
            "evaluation": self._evaluation(training),
            "question": masked_question(self.corpora[0]),
        }

    def _evaluation(self, training: TrainingResult) -> Mapping[str, float]:
        return (self.task.last_evaluation() if self.ranks.is_first else {}) or training.evaluation

    def write(self, folder: RunFolder, report: Mapping[str, Any]) -> None:
        """The model and its card."""
        training = TrainingResult(**report["training"])
        question = report["question"]
        start = self.task.start
        card = run_card(folder.path.name, self.recipe, self.corpora, training, report["evaluation"], start, question)
        save_model_directory(
            folder.model_path,
            self.model,
            self.corpora[0].directory,
            extra=self.task.extra_config(),
            card=card,
            examples=[{"text": question}] if question else [],
            replace=True,
        )

    def result(self, folder: RunFolder, report: Mapping[str, Any], already_complete: bool) -> PretrainingResult:
        return PretrainingResult(
            run=folder.path,
            model=folder.model_path,
            training=TrainingResult(**report["training"]),
            evaluation=report["evaluation"],
            start=recorded_start(folder),
            question=report["question"],
        )
