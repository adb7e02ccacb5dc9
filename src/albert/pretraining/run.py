"""`pretrain` trains a model on a prepared corpus by a recipe, evaluates it and writes a model directory."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.checkpoints.model_directory import model_card, save_model_directory, write_model
from albert.model.albert import AlbertForPreTraining, set_dropout
from albert.model.cost import count_parameters, pretraining_flops
from albert.model.encoder import sinusoids
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import (
    PretrainingBatch,
    PretrainingBatches,
    SampleSource,
    open_corpora,
    pretraining_objective,
)
from albert.pretraining.evaluation import HeldOutSamples, HeldOutTests, held_out_samples, samples_of
from albert.pretraining.fixed_shape import FixedBatch, FixedBatches, PretrainingLoss, fixed_objective, shape_of
from albert.pretraining.gpu_paths import PLAIN_SEQUENCES, GpuPaths, check_gpu_paths
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import PretrainingRecipe, StartRecord, check_start, dropout_at, recorded_start
from albert.pretraining.run_identity import (
    Init,
    check_and_save_corpora,
    check_and_save_recipe,
    recipe_fingerprint,
    require_same_arguments,
    resolve_recipe,
    warm_start_for_pretraining,
)
from albert.pretraining.statistics import tokens_cut
from albert.runtime.devices import (
    describe_machine,
    deterministic_kernels,
    measured_matmul_rate,
    pick_device,
    seed_torch,
)
from albert.runtime.distributed import gather_weights, process_group, sharded_copy, wait_for_all
from albert.runtime.environment import Ranks, lazy_import, world
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.json_files import common_fields, flatten, read_journal, save_json, to_json
from albert.runtime.manifest import MANIFEST_NAME, file_hash, read_manifest
from albert.text.shards import FEW_TOKENS, TokenCorpus, few_tokens
from albert.training.logging import Curves, Logger, Meter, TrainingPlan, TrainingResult
from albert.training.loop import Training
from albert.training.run_folder import RunFolder
from albert.training.self_check import COMPILED_LOSS, FIXED_SHAPE, SelfCheck
from albert.training.state import TrainingState, training_tensors, write_training_state
from albert.training.update import Batch, BatchSource, training_workers

# --------------------------------------------------------------------------------------------------------------------
# The model card.


def run_card(
    name: str,
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    result: TrainingResult,
    evaluation: Mapping[str, float],
    start: StartRecord | None,
    question: str,
) -> str:
    """The model card of a finished run."""
    labels = {
        "masked_tokens_accuracy": "masked-token accuracy, held out",
        "masked_tokens_baseline": "baseline: always the most frequent token",
        "masked_tokens_repeated_accuracy": "accuracy on rare masked tokens that occur elsewhere in their sequence",
        "masked_tokens_unrepeated_accuracy": "accuracy on rare masked tokens that do not",
        "sentence_order_accuracy": f"sentence-task ({recipe.sequences.objective}) accuracy, held out",
        "sentence_order_baseline": "baseline: always the more frequent order",
    }
    unit = recipe.masking.unit
    max_ngram = recipe.masking.max_ngram
    ngrams = f"one {unit}" if max_ngram == 1 else f"one to {max_ngram} {unit}s"
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    data = [f"{c.n_documents:,} documents, {c.n_tokens:,} tokens of {c.vocab_size:,} pieces" for c in corpora]
    return model_card(
        name=name,
        architecture="AlbertForPreTraining",
        attention_window=recipe.model.effective_window,
        description=f"An ALBERT encoder pre-trained with {recipe.masking.share:.0%} of the tokens masked, {ngrams} "
        f'at a time, and the sentence objective "{recipe.sequences.objective}" for '
        f"{result.steps:,} steps, {result.tokens:,} tokens ({result.ending}).",
        parameters=count_parameters(recipe.model).by_part(),
        recipe=flatten(to_json(recipe)) | {"machine": machine},
        data=data if start is None else [*data, *start.lines()],
        scores={label: evaluation[key] for key, label in labels.items() if key in evaluation},
        scores_note=_evaluation_command(recipe),
        question=question,
    )


QUESTION_CANDIDATES = 10_000


def masked_question(corpus: TokenCorpus) -> str:
    """An example sentence with one word masked, in the language of the corpus.

    The first sentence of 8 to 24 tokens, held out if possible, that has a word of one piece and at least four letters
    after its first four tokens. Empty if none of the first QUESTION_CANDIDATES sentences has one.
    """
    if corpus.description.shards.get("held_out"):
        corpus = TokenCorpus(corpus.directory, "held_out", corpus.description)
    tokenizer = corpus.tokenizer()
    starts_word = tokenizer.word_starts()
    end = 0
    for length in corpus.lengths(0).sentences[:QUESTION_CANDIDATES].tolist():
        begin = end
        end = end + length
        if not 8 <= length <= 24:
            continue
        ids = corpus.read(begin, end).tolist()
        for i in range(4, len(ids) - 1):
            word = tokenizer.decode(ids[i : i + 1])
            if starts_word[ids[i]] and starts_word[ids[i + 1]] and word.isalpha() and len(word) >= 4:
                return f"{tokenizer.decode(ids[:i])} [MASK] {tokenizer.decode(ids[i + 1 :])}"
    return ""


def _evaluation_command(recipe: PretrainingRecipe) -> str:
    """The command that evaluates any models on the same masked tokens; empty if it lacks an option for the masks."""
    masking = recipe.masking
    if masking != replace(MaskingRecipe(), share=masking.share, max_ngram=masking.max_ngram):
        return ""
    command = (
        f"albert evaluate pretraining --model MODEL... --data CORPUS --max-ngram {masking.max_ngram} "
        f"--max-length {recipe.sequences.max_length} --sequences {recipe.evaluation_sequences}"
    )
    note = "Measured during the run, on its own segment pairs. To evaluate other models on the same texts:"
    return f"{note}\n\n```bash\n{command}\n```"


# --------------------------------------------------------------------------------------------------------------------
# The run.


def untrained_model(recipe: PretrainingRecipe) -> AlbertForPreTraining:
    """A model with random weights and the recipe's initial positions; the same for the same recipe and torch build."""
    seed_torch("initialization", recipe.seed)
    model = AlbertForPreTraining(recipe.model)
    if recipe.sinusoidal_positions is not None:
        positions = model.albert.embeddings.position_embeddings.weight
        waves = sinusoids(len(positions), positions.shape[1], recipe.sinusoidal_positions)
        with torch.no_grad():
            positions.copy_(waves)
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
    wandb: str | None = None,
) -> PretrainingResult:
    """Pre-train a model, or resume the run in `output`; a finished run continues if the recipe now allows more.

    Args:
        data: the output of `albert prepare`; for several corpora, `recipe.mixture` has the weights.
        init: a trained model to start from instead of random weights. Not needed on resuming; if given, it must be the
            model that the run was started from.
        change_dropout: resume with this dropout from the newest checkpoint on; the run's recipe records the change.
        wandb: a project at Weights & Biases to send the curves to.

    Raises:
        Unavailable: wandb is requested and not installed.
        InvalidConfiguration: `output` holds a run of another recipe, corpus or start, or the weights of `init` do not
            fit the recipe.
        DamagedData, MissingInput: the corpus, the trained model or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.Training`.
    """
    wandb_logger = None if wandb is None else lazy_import("albert.training.wandb_logger", "wandb")
    torch_device = pick_device(device, world().local_rank)
    with (
        deterministic_kernels(torch_device, recipe.deterministic),
        process_group(torch_device, recipe.peer_timeout_minutes) as ranks,
    ):
        corpora = open_corpora([data] if isinstance(data, Path) else data, verify=ranks.is_first)
        run = RunFolder(output)
        require_same_arguments(recipe, corpora, run, init, change_dropout, ranks, torch_device)
        recipe = resolve_recipe(recipe, corpora[0], run, torch_device, ranks, change_dropout)
        # All checks come before the first file is written.
        if recipe.batch_size % ranks.size:
            why = f"{recipe.batch_size} sequences cannot be divided evenly among {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a multiple")
        samples = samples_of(recipe, corpora, recipe.seed)
        model = untrained_model(recipe)
        model.albert.encoder.checkpointing = recipe.activation_checkpointing
        held_out = None
        start = None
        loggers = []
        if ranks.is_first:
            held_out = held_out_samples(recipe, corpora)
            start = None if init is None else warm_start_for_pretraining(init, recipe, model, corpora[0])
            check_start(run, start)
        with run.locked() if ranks.is_first else nullcontext():
            if ranks.is_first:
                if start is not None and not run.start_path.exists():
                    save_json(run.start_path, start)
                check_and_save_corpora(run, corpora)
                check_and_save_recipe(run, recipe)
                if len({(corpus.description.held_out_share, corpus.description.seed) for corpus in corpora}) > 1:
                    what = "the corpora hold out documents by different shares or seeds"
                    print(f"albert: note: {what}: a text in both may be trained on and evaluated", file=sys.stderr)
                tokens = sum(corpus.n_tokens for corpus in corpora)
                if tokens < FEW_TOKENS:
                    print(f"albert: note: {few_tokens(tokens)}", file=sys.stderr)
                if recipe.sequences.keep_pairs:
                    cut = tokens_cut(corpora, recipe.sequences, recipe.seed)
                    print(f"albert: note: sequences.keep_pairs: {cut.name}: {cut.seen:.1%}", file=sys.stderr)
                if wandb_logger is not None:
                    loggers = [wandb_logger.WandbLogger(run, wandb, to_json(recipe))]
            wait_for_all(ranks)
            start = recorded_start(run)
            return _Run(recipe, corpora, samples, held_out, run, torch_device, model, start, loggers).complete()


@dataclass(frozen=True)
class _Run:
    """A run whose inputs are open and checked."""

    recipe: PretrainingRecipe
    corpora: Sequence[TokenCorpus]
    samples: SampleSource
    held_out: HeldOutSamples | HeldOutTests | None
    folder: RunFolder
    device: torch.device
    model: AlbertForPreTraining
    """The unsharded model; the first rank has the initial weights. A sharded run trains a copy and gathers its weights
    here."""
    start: StartRecord | None
    loggers: Sequence[Logger]

    def complete(self) -> PretrainingResult:
        """Train to the end, evaluate, and write the model."""
        ranks = world()
        recipe = self.recipe
        folder = self.folder
        if recipe.sequences.objective == "none":  # without a loss, weight decay alone would shrink these to zero
            for part in (self.model.albert.pooler, self.model.sop_classifier):
                assert part is not None
                part.requires_grad_(False)
        model, loss, gather, self_checks = self._trained_model(ranks)
        optimizer = build_optimizer(recipe.optimizer, model)
        corpus = " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in self.corpora)
        initial = {} if self.start is None else {"initial weights": self.start.fingerprint}
        identity = {"recipe": recipe_fingerprint(recipe), "corpus": corpus, **initial}
        if self.start is not None:
            if ranks.is_first and not folder.checkpoints():
                self._write_first_checkpoint(self.start, optimizer, identity)
            wait_for_all(ranks)

        def apply_dropout(step: int) -> dict[str, float]:
            probability = dropout_at(recipe.dropout_changes, step)
            if probability is None:
                return {}
            set_dropout(model, probability)
            return {"dropout": probability} if (step, probability) in recipe.dropout_changes else {}

        if loss is not None:
            workers = 1
            objective = fixed_objective
            source: BatchSource = FixedBatches(self.samples, recipe.batch_size, loss.shape, recipe.hard_examples)
        else:
            workers = training_workers(self.device, ranks)
            objective = pretraining_objective
            sizes = recipe.batch_size, recipe.micro_batch_size
            source = PretrainingBatches(self.samples, *sizes, recipe.hard_examples, workers)
        peak = recipe.optimizer.learning_rate
        schedule = recipe.schedule
        total = recipe.schedule.total_steps
        intervals = {"total_steps": total, "evaluate_every": recipe.evaluate_every or max(1, total // 10)}
        cut_warmups: list[int] = []

        def learning_rate(step: int, used: float) -> float:
            if schedule.budget_ends_warmup(step, used) and not cut_warmups:
                cut_warmups.append(step)
                steps = f"{step:,} of {schedule.warmup_steps:,} steps"
                self._print_note(f"the warm-up ends after {steps}, because a tenth of the budget is used")
            return schedule.learning_rate(step, peak, used)

        result = Training(
            model,
            optimizer,
            learning_rate,
            source,
            objective,
            TrainingPlan(**{**common_fields(TrainingPlan, recipe), **intervals}),
            folder,
            device=self.device,
            identity=identity,
            save_model=self._save_model,
            gather=gather,
            evaluate=None if self.held_out is None else self._evaluate,
            before_step=apply_dropout,
            meter=Meter(self._flops, partial(measured_matmul_rate, self.device, recipe.resolved_precision)),
            loggers=self.loggers,
            description="Pre-training",
            called=loss,
            compute_workers=workers,
            self_checks=self_checks,
        ).complete()
        if result.ended_by != "steps" and result.steps < schedule.warmup_steps and not cut_warmups:
            remedy = "--anneal budget or a smaller --warmup-steps fits it into the budget"
            self._print_note(f"the run ended in its warm-up of {schedule.warmup_steps:,} steps; {remedy}")
        apply_dropout(result.steps - 1)  # for a finished run, which takes no update now
        if gather is not None:
            gather()
        evaluation = result.evaluation
        question = masked_question(self.corpora[0])
        if ranks.is_first:
            if last := self._last_evaluation():
                evaluation = {k: v for k, v in last.items() if k not in ("event", "time", "step", "seconds")}
            if not self._model_is_current():
                card = run_card(folder.path.name, recipe, self.corpora, result, evaluation, self.start, question)
                save_model_directory(
                    folder.model_path,
                    self.model,
                    self.corpora[0].directory,
                    extra=self._extra_config(),
                    card=card,
                    examples=[{"text": question}] if question else [],
                    replace=True,
                )
        wait_for_all(ranks)
        return PretrainingResult(folder.path, folder.model_path, result, evaluation, self.start, question)

    def _print_note(self, note: str) -> None:
        if world().is_first:
            print(f"albert: note: {note}", file=sys.stderr)

    def _trained_model(
        self, ranks: Ranks
    ) -> tuple[AlbertForPreTraining, PretrainingLoss | None, Callable[[], None] | None, tuple[SelfCheck, ...]]:
        """The model to train; its loss for fixed-shape micro-batches, else None; for a sharded model a function that
        gathers its weights into the unsharded one; and what the paths of a GPU gave on the first micro-batch."""
        recipe = self.recipe
        on_gpu = self.device.type == "cuda"
        compiled = recipe.compile if recipe.compile is not None else on_gpu and recipe.fixed_shape is not False
        fixed = recipe.fixed_shape if recipe.fixed_shape is not None else on_gpu or compiled
        loss = PretrainingLoss(self.model, shape_of(recipe, self.samples, ranks.size)) if fixed else None
        checks: tuple[SelfCheck, ...] = ()
        if on_gpu:
            paths = self._check_gpu_paths(loss, compiled, ranks)
            checks = paths.checks
            compiled = paths.compiled
            if not paths.fixed_shape:
                loss = None
        gather = None
        if recipe.parallelism == "data" or ranks.size == 1:
            model = self.model.to(self.device)
            if loss is not None and compiled and not on_gpu:
                loss.compile_graph()
            return model, loss, gather, checks
        self.model.to("cpu")
        if loss is not None:
            loss.remove_graph()
        sharded = sharded_copy(self.model if loss is None else loss, ranks, self.device)
        loss, model = (sharded, sharded.model) if isinstance(sharded, PretrainingLoss) else (None, sharded)
        self.model.eval()
        gather = partial(gather_weights, model, self.model, ranks)
        if loss is not None and compiled:
            loss.compile_graph()
        return model, loss, gather, checks

    def _check_gpu_paths(self, loss: PretrainingLoss | None, compiled: bool, ranks: Ranks) -> GpuPaths:
        """Compare the paths of a GPU with the plain one.

        Raises:
            Unavailable: the recipe asks for one that fails or gives other numbers.
        """
        recipe = self.recipe
        model = self.model.to(self.device)
        if loss is None:
            samples = self.samples.batch(np.arange(min(recipe.micro_batch_size, PLAIN_SEQUENCES)))
        else:
            samples = FixedBatches(self.samples, recipe.batch_size, loss.shape).samples_of(0, ranks.rank, ranks.size)[0]
        precision = recipe.resolved_precision
        paths = check_gpu_paths(model, loss, compiled, samples, precision, self.device, ranks)
        asked = {FIXED_SHAPE: ("fixed_shape", recipe.fixed_shape), COMPILED_LOSS: ("compile", recipe.compile)}
        for check in paths.checks:
            option, value = asked.get(check.path, ("", None))
            if value and check.why_left_out is not None:
                raise Unavailable(option, check.why_left_out, "leave this option out")
        return paths

    def _flops(self, batch: Batch) -> float:
        assert isinstance(batch, PretrainingBatch | FixedBatch)
        return pretraining_flops(self.recipe.model, batch.lengths, batch.counts["masked_tokens"])

    def _write_first_checkpoint(self, start: StartRecord, optimizer: Optimizer, identity: dict[str, str]) -> None:
        """Evaluate the weights of the trained model, and save them as the checkpoint of step 0."""
        for line in start.lines():
            print(f"albert: note: {line}", file=sys.stderr)
        if self.held_out is not None:
            self.model.eval()
            figures = self._held_out_figures()
            curves = Curves(self.folder, 0, active=True)
            curves.write("evaluation", 0, **figures, tokens=0)
            curves.close()

        def write(directory: Path) -> None:
            self._save_model(directory)
            tensors = training_tensors(self.model, optimizer, world())
            write_training_state(directory, tensors, TrainingState(identity=identity))

        self.folder.save_checkpoint(0, write, self.recipe.keep_checkpoints)

    def _held_out_figures(self) -> dict[str, float]:
        assert self.held_out is not None
        return self.held_out.evaluate(self.model.to(self.device), self.device, self.recipe.resolved_precision)

    def _evaluate(self) -> dict[str, float]:
        """Held-out figures, with a warning if two evaluations in a row are no better than the baseline.

        There is no accuracy if all held-out tokens are unknown: such tokens are never masked.
        """
        figures = self._held_out_figures()
        last = self._last_evaluation()
        both = [f for f in (last, figures) if f and "masked_tokens_accuracy" in f]
        if len(both) == 2 and all(f["masked_tokens_accuracy"] <= f["masked_tokens_baseline"] for f in both):
            what = f"masked tokens, held out: {figures['masked_tokens_accuracy']:.1%} correct"
            hint = "still no better than a constant prediction; a lower rate or a longer warm-up may help"
            print(f"albert: note: {what}, {hint}", file=sys.stderr)
        return figures

    def _last_evaluation(self) -> dict[str, Any] | None:
        """The last evaluation in the journal."""
        records = [record for record in read_journal(self.folder.journal_path) if record["event"] == "evaluation"]
        return records[-1] if records else None

    def _save_model(self, directory: Path) -> None:
        write_model(directory, self.model, self.corpora[0].directory, extra=self._extra_config())

    def _model_is_current(self) -> bool:
        """Whether the model directory has the weights of the newest checkpoint; not so after a run continued."""
        if not self.folder.model_path.exists():
            return False
        newest = self.folder.checkpoints()[-1][1]
        return read_manifest(self.folder.model_path)[WEIGHTS_NAME] == read_manifest(newest)[WEIGHTS_NAME]

    def _extra_config(self) -> dict[str, Any]:
        """Keys of `config.json` besides the architecture."""
        return {
            "sentence_objective": self.recipe.sequences.objective,
            # Later positions are untrained.
            "max_sequence_length": max(
                self.recipe.sequences.max_length, self.start.trained_positions if self.start else 0
            ),
        }
