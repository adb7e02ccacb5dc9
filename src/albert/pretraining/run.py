"""`pretrain` trains a model on a prepared corpus by a recipe, evaluates it and writes a model directory."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForPreTraining
from albert.model.encoder import sinusoids
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatches, open_corpora
from albert.pretraining.card import masked_question, run_card
from albert.pretraining.evaluation import held_out_samples, samples_of
from albert.pretraining.fixed_shape import FixedBatches
from albert.pretraining.gpu_paths import trained_form
from albert.pretraining.recipe import (
    DropoutChanges,
    PretrainingRecipe,
    check_and_save_recipe,
    dropout_at,
    saved_recipe,
)
from albert.pretraining.start import Init, warm_start_for_pretraining
from albert.pretraining.statistics import tokens_cut
from albert.pretraining.work import PretrainingWork, training_plan
from albert.runtime.devices import deterministic_kernels, fastest_precision, pick_device, seed_torch
from albert.runtime.distributed import (
    code_fingerprint,
    process_group,
    require_same_on_ranks,
    sum_over_ranks,
    wait_for_all,
)
from albert.runtime.environment import Ranks, world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import save_versioned, to_json
from albert.runtime.manifest import MANIFEST_NAME, file_hash, read_manifest
from albert.text.shards import FEW_TOKENS, TokenCorpus, few_tokens
from albert.training.logging import TrainingResult
from albert.training.loop import is_finished, train
from albert.training.metric_logger import DEFAULT_LOG, Log, require_logger
from albert.training.record import (
    Run,
    StartRecord,
    check_and_save_corpora,
    pretraining_fingerprint,
    recorded_start,
    require_same_start,
)
from albert.training.run_folder import RunFolder, remove_run
from albert.training.update import BatchSource, training_workers


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
) -> PretrainingResult:
    """Pre-train a model, or resume the run in `output`; a finished run continues if the recipe now allows more.

    Args:
        data: the output of `albert prepare`; for several corpora, `recipe.mixture` has the weights.
        init: a trained model to start from instead of random weights. Not needed on resuming; if given, it must be the
            model that the run was started from.
        change_dropout: resume with this dropout from the newest checkpoint on; the run's recipe records the change.
        log: where the curves go, beside the journal.
        replace: remove an earlier run in `output` after all checks, and begin anew.

    Raises:
        CannotCreate: with `replace`, `output` is not a run, is in use, or contains the corpus or the model.
        Unavailable: the library of `log` is not installed.
        InvalidConfiguration: `output` holds a run of another recipe, corpus or start, or the weights of `init` do not
            fit the recipe.
        DamagedData, MissingInput: the corpus, the trained model or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.Training`.
    """
    require_logger(log)
    torch_device = pick_device(device, world().local_rank)
    with (
        deterministic_kernels(torch_device, recipe.deterministic),
        process_group(torch_device, recipe.peer_timeout_minutes) as ranks,
    ):
        # The corpora and the recipe, which are the same on all ranks.
        corpora = open_corpora([data] if isinstance(data, Path) else data, verify=ranks.is_first)
        manifests = " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in corpora)
        folder = RunFolder(output)
        facts = {
            "code": code_fingerprint(),
            "torch": torch.__version__,
            "recipe": repr((recipe, change_dropout)),
            "tokenizer": " ".join(corpus.description.tokenizer_fingerprint for corpus in corpora),
            "corpus": manifests,
            "model to start from": repr(init),
            "newest checkpoint": repr([step for step, _ in folder.checkpoints()[-1:]]),
        }
        require_same_on_ranks(facts, ranks, torch_device)
        # A run that is replaced is not resumed: the checks look into a folder that does not exist.
        resumed = RunFolder(output / "replaced") if replace else folder
        recipe = resolve_recipe(recipe, corpora[0], resumed, torch_device, ranks, change_dropout)

        # The samples and the model. All checks come before the first file is written.
        if recipe.batch_size % ranks.size:
            why = f"{recipe.batch_size} sequences cannot be divided evenly among {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a multiple")
        samples = samples_of(recipe, corpora, recipe.seed)
        model = untrained_model(recipe)
        held_out = None
        start = None
        if ranks.is_first:
            held_out = held_out_samples(recipe, corpora)
            start = None if init is None else warm_start_for_pretraining(init, recipe, model, corpora[0])
            require_same_start(resumed, start)

        # The run: a new one, or one that goes on; another run is refused.
        if replace:
            if ranks.is_first:
                models = [] if init is None else [Path(init.model)]
                inputs = [*(corpus.directory for corpus in corpora), *models]
                remove_run(output, [path for path in inputs if path.exists()])
            wait_for_all(ranks)
        with folder.locked(ranks.is_first):
            if ranks.is_first:
                if start is not None and not folder.start_path.exists():
                    save_versioned(folder.start_path, start)
                check_and_save_corpora(folder, corpora)
                check_and_save_recipe(folder, recipe)
                for note in notes_on_data(recipe, corpora):
                    print(f"albert: note: {note}", file=sys.stderr)
            wait_for_all(ranks)
            start = recorded_start(folder)
            identity = {"recipe": pretraining_fingerprint(recipe), "corpus": manifests}
            if start is not None:
                identity["initial weights"] = start.fingerprint
            run = Run(folder=folder, record=to_json(recipe), identity=identity)

            # What is trained: the model in the form that the device takes, its batches and its optimizer.
            plan = training_plan(recipe)
            form = trained_form(model, recipe, samples, torch_device, ranks, checked=not is_finished(plan, folder))
            if form.loss is not None:
                workers = 1
                shape = form.loss.shape
                source: BatchSource = FixedBatches(samples, recipe.batch_size, shape)
            else:
                workers = training_workers(torch_device, ranks)
                sizes = (recipe.batch_size, recipe.micro_batch_size)
                source = PretrainingBatches(samples, *sizes, workers)
            work = PretrainingWork(
                description="Pre-training",
                recipe=recipe,
                model=model,
                module=form.module,
                called=form.loss,
                optimizer=build_optimizer(recipe.optimizer, form.module),
                source=source,
                device=torch_device,
                workers=workers,
                folder=folder,
                tokenizer_directory=corpora[0].directory,
                held_out=held_out,
                evaluates=held_out is not None,
                start=start,
                ranks=ranks,
                self_checks=form.checks,
                log=log,
            )

            # Training.
            if start is not None:
                if ranks.is_first and not folder.checkpoints():
                    work.write_first_checkpoint(start, run)
                wait_for_all(ranks)
            result = train(work, plan, run)
            in_warmup = result.steps < recipe.schedule.warmup_steps and work.warmup_ended_at is None
            if in_warmup and result.ended_by != "steps":
                remedy = "--anneal budget or a smaller --warmup-steps fits it into the budget"
                steps = f"{recipe.schedule.warmup_steps:,} steps"
                work.print_note(f"the run ended in its warm-up of {steps}; {remedy}")
            work.before_step(result.steps - 1)  # for a finished run, which takes no update now

            # The model and its card.
            work.gather()
            evaluation = result.evaluation
            question = masked_question(corpora[0])
            if ranks.is_first:
                evaluation = work.last_evaluation() or evaluation
                if not model_is_current(folder):
                    card = run_card(output.name, recipe, corpora, result, evaluation, start, question)
                    save_model_directory(
                        folder.model_path,
                        model,
                        corpora[0].directory,
                        extra=work.extra_config(),
                        card=card,
                        examples=[{"text": question}] if question else [],
                        replace=True,
                    )
            wait_for_all(ranks)
            return PretrainingResult(output, folder.model_path, result, evaluation, start, question)


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
        remedy = "a new run takes --model.hidden-dropout-prob and --model.attention-probs-dropout-prob"
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


def model_is_current(folder: RunFolder) -> bool:
    """Return whether the model directory has the weights of the newest checkpoint; not so after a run continued."""
    if not folder.model_path.exists():
        return False
    newest = folder.checkpoints()[-1][1]
    return read_manifest(folder.model_path)[WEIGHTS_NAME] == read_manifest(newest)[WEIGHTS_NAME]
