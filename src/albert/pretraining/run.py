"""`pretrain`: a prepared corpus and a recipe become a model directory."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.checkpoints.model_directory import ModelCard, save_model_directory, write_model
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
from albert.pretraining.evaluation import HeldOutSamples, HeldOutTests, held_out_samples, training_samples
from albert.pretraining.fixed_shape import FixedBatch, FixedBatches, PretrainingLoss, fixed_objective, shape_of
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import (
    DropoutChanges,
    PretrainingRecipe,
    StartRecord,
    dropout_at,
    kept_start,
    refuse_another_start,
)
from albert.pretraining.run_identity import (
    Init,
    keep_corpora,
    keep_recipe,
    recipe_fingerprint,
    refuse_another_start_elsewhere,
    resolve_recipe,
    warm_start_for_pretraining,
)
from albert.pretraining.segments import head_task
from albert.pretraining.statistics import tokens_cut
from albert.runtime.devices import (
    describe_machine,
    deterministic_kernels,
    measured_matmul_rate,
    pick_device,
    seed_torch,
)
from albert.runtime.distributed import gather_weights, process_group, sharded_copy, wait_for_all
from albert.runtime.environment import Ranks, load_by_name, world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import flatten, read_journal, save_json, to_json
from albert.runtime.manifest import MANIFEST_NAME, file_hash, read_manifest
from albert.text.shards import TokenCorpus
from albert.training.logging import Curves, Logger, Meter, TrainingPlan, TrainingResult
from albert.training.loop import Training
from albert.training.run_folder import RunFolder
from albert.training.state import TrainingState, training_tensors, write_training_state
from albert.training.update import Batch, BatchSource, training_workers

# --------------------------------------------------------------------------------------------------------------------
# What the training loop is told by a recipe.


def plan_of(recipe: PretrainingRecipe) -> TrainingPlan:
    """How long and how often."""
    total = recipe.schedule.total_steps
    return TrainingPlan(
        total_steps=total,
        max_tokens=recipe.max_tokens,
        max_minutes=recipe.max_minutes,
        seed=recipe.seed,
        clip_norm=recipe.clip_norm,
        on_divergence=recipe.on_divergence,
        spike_deviations=recipe.spike_deviations,
        max_rollbacks=recipe.max_rollbacks,
        precision=recipe.settled_precision,
        log_every=recipe.log_every,
        evaluate_every=recipe.evaluate_every or max(1, total // 10),
        checkpoint_every=recipe.checkpoint_every,
        checkpoint_minutes=recipe.checkpoint_minutes,
        keep_checkpoints=recipe.keep_checkpoints,
        workers=recipe.workers,
    )


def meter_of(recipe: PretrainingRecipe, place: torch.device) -> Meter:
    """What tells the useful work of a batch, and what this device could do."""

    def flops(batch: Batch) -> float:
        assert isinstance(batch, PretrainingBatch | FixedBatch)
        return pretraining_flops(recipe.model, batch.lengths, batch.counts["masked_tokens"])

    return Meter(flops, partial(measured_matmul_rate, place, recipe.settled_precision))


# --------------------------------------------------------------------------------------------------------------------
# The model card of a pre-training run.


def run_card(
    name: str,
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    result: TrainingResult,
    evaluation: Mapping[str, float],
    start: StartRecord | None,
    question: str,
) -> str:
    """What the run was, from what to what."""
    names = {
        "masked_tokens_accuracy": "masked-token accuracy, held out",
        "masked_tokens_baseline": "the most frequent token instead",
        "masked_tokens_repeated_accuracy": "of rare masked tokens, those that their sequence shows elsewhere",
        "masked_tokens_unrepeated_accuracy": "of rare masked tokens, those that it does not",
        "sentence_order_accuracy": f"sentence-task ({recipe.sequences.objective}) accuracy, held out",
        "sentence_order_baseline": "the more frequent order instead",
    }
    unit, most = recipe.masking.unit, recipe.masking.max_ngram
    at_once = f"one {unit}" if most == 1 else f"one to {most} {unit}s"
    return ModelCard(
        name=name,
        architecture="AlbertForPreTraining",
        attention_window=recipe.model.effective_window,
        description=f"An ALBERT encoder pre-trained with {recipe.masking.share:.0%} of the tokens masked, {at_once} "
        f'at a time, and the sentence objective "{recipe.sequences.objective}" for '
        f"{result.steps:,} steps, {result.tokens:,} tokens ({result.ending}).",
        parameters=count_parameters(recipe.model).by_part(),
        recipe=flatten(to_json(recipe))
        | {"machine": ", ".join(f"{key} {value}" for key, value in describe_machine().items())},
        data=[
            f"{each.n_documents:,} documents, {each.n_tokens:,} tokens of {each.vocab_size:,} pieces"
            for each in corpora
        ]
        + ([] if start is None else start.lines()),
        scores={name: evaluation[key] for key, name in names.items() if key in evaluation},
        scores_note=_asked_again(recipe),
        question=question or ModelCard.question,
    ).render()


MOST_ASKED = 10_000
"""Sentences that are looked at for one that can be asked."""


def masked_question(corpus: TokenCorpus) -> str:
    """A sentence with one word masked, to be asked of a model in the language of its corpus.

    Of the held-out documents, where there are any: the first sentence of 8 to 24 tokens that has, behind its first
    four, a word of one piece and four letters or more. Empty where none of the first sentences is like that.
    """
    if corpus.description.shards.get("held_out"):
        corpus = TokenCorpus(corpus.directory, "held_out", corpus.description)
    tokenizer = corpus.tokenizer()
    starts_word, end = tokenizer.word_starts(), 0
    for length in corpus.lengths(0).sentences[:MOST_ASKED].tolist():
        begin, end = end, end + length
        if not 8 <= length <= 24:
            continue
        ids = corpus.read(begin, end).tolist()
        for place in range(4, len(ids) - 1):
            word = tokenizer.decode(ids[place : place + 1])
            if starts_word[ids[place]] and starts_word[ids[place + 1]] and word.isalpha() and len(word) >= 4:
                return f"{tokenizer.decode(ids[:place])} [MASK] {tokenizer.decode(ids[place + 1 :])}"
    return ""


def _asked_again(recipe: PretrainingRecipe) -> str:
    """The command that asks any models for the masked tokens of the same text; nothing where it has not such masks."""
    asked = recipe.masking
    if asked != replace(MaskingRecipe(), share=asked.share, max_ngram=asked.max_ngram):
        return ""
    command = (
        f"albert evaluate pretraining --model MODEL... --data CORPUS --max-ngram {recipe.masking.max_ngram} "
        f"--max-length {recipe.sequences.max_length} --sequences {recipe.evaluation_sequences}"
    )
    said = "Measured by the run, on its own pairs. The same sequences in the order of the text, for any models:"
    return f"{said}\n\n```bash\n{command}\n```"


# --------------------------------------------------------------------------------------------------------------------
# The model that a run begins with, drawn by the recipe's seed.


def untrained_model(recipe: PretrainingRecipe) -> AlbertForPreTraining:
    """Random weights, and positions as the recipe has them; the same for the same recipe and torch build."""
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
    """What it was started from; None: random weights."""
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
    """Pre-train, or go on with what `output` holds; a run that has ended, when the recipe has come to allow more.

    Args:
        data: what `albert prepare` wrote; of several corpora, `recipe.mixture` are the weights.
        init: a trained model to start from, in place of random weights. A run that has begun needs it no more; given
            all the same, it must be the one that the run was started from.
        change_dropout: go on with this dropout, from the newest checkpoint to the end; the recipe keeps the change.
        wandb: the project at Weights & Biases where the curves go as well.

    Raises:
        Unavailable: wandb is asked for and not installed.
        InvalidConfiguration: `output` holds a run of another recipe, corpus or start, or weights cannot move.
        DamagedData, MissingInput: the corpus, the trained model or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.Training`.
    """
    logging = None if wandb is None else load_by_name("albert.training.wandb_logger", "wandb")
    place = pick_device(device, world().local_rank)
    with (
        deterministic_kernels(place, recipe.deterministic),
        process_group(place, recipe.peer_timeout_minutes) as ranks,
    ):
        corpora = open_corpora([data] if isinstance(data, Path) else data, verify=ranks.is_first)
        corpus = corpora[0]
        run = RunFolder(output)
        refuse_another_start_elsewhere(recipe, corpora, run, init, change_dropout, ranks, place)
        recipe = resolve_recipe(recipe, corpus, run, place, ranks, change_dropout)
        # Everything that can be refused is, before the first file is written.
        if recipe.batch_size % ranks.size:
            why = f"{recipe.batch_size} sequences cannot be shared out evenly over {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a multiple")
        samples = training_samples(recipe, corpora)
        model = untrained_model(recipe)
        model.albert.encoder.checkpointing = recipe.activation_checkpointing
        if not ranks.is_first:
            wait_for_all(ranks)
            return _Run(recipe, corpora, samples, None, run, place, model, kept_start(run)).complete()
        held_out = held_out_samples(recipe, corpora)
        start = None if init is None else warm_start_for_pretraining(init, recipe, model, corpus)
        refuse_another_start(run, start)
        with run.locked():
            if start is not None and not run.start_path.exists():
                save_json(run.start_path, start)
            keep_corpora(run, corpora)
            keep_recipe(run, recipe)
            if recipe.sequences.keep_pairs:
                cut = tokens_cut(corpora, recipe.sequences, recipe.seed)
                print(f"albert: note: sequences.keep_pairs: {cut.name}: {cut.seen:.1%}", file=sys.stderr)
            loggers = [] if logging is None else [logging.WandbLogger(run, wandb, to_json(recipe))]
            wait_for_all(ranks)
            return _Run(recipe, corpora, samples, held_out, run, place, model, kept_start(run), loggers).complete()


@dataclass(frozen=True)
class _Run:
    """Everything a run needs, put together once."""

    recipe: PretrainingRecipe
    corpora: Sequence[TokenCorpus]
    samples: SampleSource
    held_out: HeldOutSamples | HeldOutTests | None
    run: RunFolder
    place: torch.device
    model: AlbertForPreTraining
    """The whole model, with the weights that the run begins with on the first rank. A sharded run trains a copy and
    brings that one's weights here."""
    start: StartRecord | None
    loggers: Sequence[Logger] = ()

    @property
    def tokenizer_directory(self) -> Path:
        """Where the tokenizer of all corpora lies."""
        return self.corpora[0].directory

    def complete(self) -> PretrainingResult:
        """Train to the end, evaluate, and write everything."""
        ranks, recipe, run = world(), self.recipe, self.run
        if recipe.sequences.objective == "none":  # nothing asks these, and weight decay alone would shrink them away
            for part in (self.model.albert.pooler, self.model.sop_classifier):
                assert part is not None
                part.requires_grad_(False)
        model, called, gather = self._trained(ranks)
        optimizer = build_optimizer(recipe.optimizer, model)
        identity = self._identity()
        if self.start is not None:
            if ranks.is_first and not run.checkpoints():
                self._begin(self.start, optimizer, identity)
            wait_for_all(ranks)
        peak, schedule = recipe.optimizer.learning_rate, recipe.schedule
        set_dropout_of = _dropout_by_step(model, recipe.dropout_changes)
        result = Training(
            model,
            optimizer,
            lambda step, used: schedule.learning_rate(step, peak, used),
            self._batches(called),
            pretraining_objective if called is None else fixed_objective,
            plan_of(recipe),
            run,
            device=self.place,
            identity=identity,
            save_model=self._save_model,
            gather=gather,
            evaluate=None if self.held_out is None else self._evaluate,
            before_step=set_dropout_of,
            meter=meter_of(recipe, self.place),
            loggers=self.loggers,
            description="Pre-training",
            called=called,
            compute_workers=self._workers(called),
        ).complete()
        set_dropout_of(result.steps - 1)  # a run that had taken all its updates took none now
        if gather is not None:
            gather()
        evaluation, question = result.evaluation, masked_question(self.corpora[0])
        if ranks.is_first:
            evaluations = [record for record in read_journal(run.journal_path) if record["event"] == "evaluation"]
            if evaluations:
                evaluation = {k: v for k, v in evaluations[-1].items() if k not in ("event", "time", "step", "seconds")}
            if not self._model_is_written():
                card = run_card(run.path.name, recipe, self.corpora, result, evaluation, self.start, question)
                save_model_directory(
                    run.model_path, self.model, self.tokenizer_directory, extra=self._extra(), card=card, replace=True
                )
        wait_for_all(ranks)
        return PretrainingResult(run.path, run.model_path, result, evaluation, self.start, question)

    def _trained(self, ranks: Ranks) -> tuple[AlbertForPreTraining, PretrainingLoss | None, Callable[[], None] | None]:
        """The model that learns; its loss where micro-batches have a fixed shape; and what brings the weights into the
        whole model where that is another."""
        recipe, on_gpu = self.recipe, self.place.type == "cuda"
        compiled = recipe.compile if recipe.compile is not None else on_gpu and recipe.fixed_shape is not False
        fixed = recipe.fixed_shape if recipe.fixed_shape is not None else on_gpu or compiled
        loss = PretrainingLoss(self.model, shape_of(recipe, self.samples, ranks.size)) if fixed else None
        gather = None
        if recipe.parallelism == "data" or ranks.size == 1:
            model = self.model.to(self.place)
        else:
            cut = sharded_copy(self.model if loss is None else loss, ranks, self.place)
            loss, model = (cut, cut.model) if isinstance(cut, PretrainingLoss) else (None, cut)
            self.model.eval()
            gather = partial(gather_weights, model, self.model, ranks)
        if loss is not None and compiled:
            loss.compile_graph()
        return model, loss, gather

    def _batches(self, called: PretrainingLoss | None) -> BatchSource:
        """The samples of each step in micro-batches."""
        recipe = self.recipe
        if called is not None:
            return FixedBatches(self.samples, recipe.batch_size, called.shape, recipe.hard_examples)
        return PretrainingBatches(
            self.samples, recipe.batch_size, recipe.micro_batch_size, recipe.hard_examples, self._workers(called)
        )

    def _workers(self, called: PretrainingLoss | None) -> int:
        """Threads that train at the same time: one where a graph is compiled for micro-batches of a fixed shape."""
        return training_workers(self.place, world()) if called is None else 1

    def _begin(self, start: StartRecord, optimizer: Optimizer, identity: dict[str, str]) -> None:
        """Score the weights as they came, and keep them as the checkpoint of step 0."""
        for line in start.lines():
            print(f"albert: note: {line}", file=sys.stderr)
        if self.held_out is not None:
            self.model.eval()
            evaluation = self._measure()
            curves = Curves(self.run, 0, active=True)
            curves.write("evaluation", 0, **evaluation, tokens=0)
            curves.close()

        def write(directory: Path) -> None:
            self._save_model(directory)
            tensors = training_tensors(self.model, optimizer, world())
            write_training_state(directory, tensors, TrainingState(identity=identity))

        self.run.save_checkpoint(0, write, self.recipe.keep_checkpoints)

    def _identity(self) -> dict[str, str]:
        corpus = " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in self.corpora)
        begun_with = {} if self.start is None else {"initial weights": self.start.fingerprint}
        return {"recipe": recipe_fingerprint(self.recipe), "corpus": corpus, **begun_with}

    def _measure(self) -> dict[str, float]:
        assert self.held_out is not None
        return self.held_out.evaluate(self.model.to(self.place), self.place, self.recipe.settled_precision)

    def _evaluate(self) -> dict[str, float]:
        """Held-out figures while it learns; what stays at a constant answer is told."""
        found = self._measure()
        before = [record for record in read_journal(self.run.journal_path) if record["event"] == "evaluation"][-1:]
        if before and all(one["masked_tokens_accuracy"] <= one["masked_tokens_baseline"] for one in (*before, found)):
            what = f"masked tokens, held out: {found['masked_tokens_accuracy']:.1%} right"
            hint = "as before no better than a constant answer; a lower rate or a longer warm-up may help"
            print(f"albert: note: {what}, {hint}", file=sys.stderr)
        return found

    def _save_model(self, directory: Path) -> None:
        write_model(directory, self.model, self.tokenizer_directory, extra=self._extra())

    def _model_is_written(self) -> bool:
        """Whether the run's model is that of its newest checkpoint: a run that went on has an older one."""
        if not self.run.model_path.exists():
            return False
        written, newest = (read_manifest(path) for path in (self.run.model_path, self.run.checkpoints()[-1][1]))
        return written[WEIGHTS_NAME] == newest[WEIGHTS_NAME]

    def _extra(self) -> dict[str, Any]:
        """Keys of `config.json` beside the architecture."""
        longest = self.recipe.sequences.max_length
        return {
            "sentence_objective": head_task(self.recipe.sequences.objective),
            # Positions beyond it were never trained.
            "max_sequence_length": max(longest, self.start.trained_positions if self.start else 0),
        }


def _dropout_by_step(model: AlbertForPreTraining, changes: DropoutChanges) -> Callable[[int], dict[str, float]]:
    """What the training loop calls before every update: it sets the dropout, and tells a change where it happens."""

    def before_step(step: int) -> dict[str, float]:
        probability = dropout_at(changes, step)
        if probability is None:
            return {}
        set_dropout(model, probability)
        return {"dropout": probability} if (step, probability) in changes else {}

    return before_step
