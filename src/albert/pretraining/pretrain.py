"""Pre-training: a prepared corpus and a recipe become a model directory."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from albert.checkpoints.model_directory import save_model_directory, write_model
from albert.checkpoints.tensor_files import WEIGHTS_NAME
from albert.model.albert import AlbertForPreTraining
from albert.model.dropout import set_dropout
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatches
from albert.pretraining.corpus_record import keep_corpora
from albert.pretraining.dropout_changes import DropoutChanges, dropout_at
from albert.pretraining.intrinsic_evaluation import HeldOutSamples, HeldOutTests
from albert.pretraining.mixture import SampleSource, open_corpora
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.recipe_samples import held_out_samples, training_samples
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.run_card import run_card
from albert.pretraining.run_plan import meter_of, plan_of
from albert.pretraining.run_recipe import keep_recipe, recipe_fingerprint, settle
from albert.pretraining.same_start import refuse_another_start_elsewhere
from albert.pretraining.sample_statistics import tokens_cut
from albert.pretraining.sentence_order import head_task
from albert.pretraining.start_record import StartRecord, kept_start, refuse_another_start
from albert.pretraining.untrained_model import untrained_model
from albert.pretraining.warm_start import Init, warm_start_for_pretraining
from albert.runtime.devices import pick_device
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.journal import read_journal
from albert.runtime.late_modules import load_by_name
from albert.runtime.manifests import MANIFEST_NAME, file_hash, read_manifest
from albert.runtime.sharding import gather_weights, sharded_copy
from albert.runtime.strict_json import save_json, to_json
from albert.runtime.world import World, world
from albert.text.preparation.shards import TokenCorpus
from albert.training.curves import Curves, Logger
from albert.training.loop import train
from albert.training.plan import TrainingResult
from albert.training.run_folder import RunFolder
from albert.training.training_state import TrainingState, training_tensors, write_training_state


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
        recipe: the whole run.
        data: what `albert prepare` wrote; of several corpora, `recipe.mixture` are the weights.
        output: the run's directory.
        device: "auto", "cpu" or "cuda".
        init: a trained model to start from, in place of random weights. A run that has begun needs it no more; given
            all the same, it must be the one that the run was started from.
        change_dropout: go on with this dropout, from the newest checkpoint to the end; the recipe keeps the change.
        wandb: the project at Weights & Biases where the curves go as well.

    Raises:
        Unavailable: wandb is asked for and not installed.
        InvalidConfiguration: `output` holds a run of another recipe, corpus or start, or weights cannot move.
        DamagedData, MissingInput: the corpus, the trained model or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.train`.
    """
    logging = None if wandb is None else load_by_name("albert.training.wandb_logger", "wandb")
    place = pick_device(device, world().local_rank)
    with process_group(place, recipe.peer_timeout_minutes) as here:
        corpora = open_corpora([data] if isinstance(data, Path) else data, verify=here.is_first)
        corpus = corpora[0]
        run = RunFolder(output)
        refuse_another_start_elsewhere(recipe, corpora, run, init, change_dropout, here, place)
        recipe = settle(recipe, corpus, run, place, here, change_dropout)
        # Everything that can be refused is, before the first file is written.
        if recipe.batch_size % here.size:
            why = f"{recipe.batch_size} sequences cannot be shared out evenly over {here.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a multiple")
        samples = training_samples(recipe, corpora)
        model = untrained_model(recipe)
        model.albert.encoder.checkpointing = recipe.activation_checkpointing
        if not here.is_first:
            wait_for_all(here)
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
            wait_for_all(here)
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
        here, recipe, run = world(), self.recipe, self.run
        if recipe.sequences.objective == "none":  # nothing asks these, and weight decay alone would shrink them away
            for part in (self.model.albert.pooler, self.model.sop_classifier):
                assert part is not None
                part.requires_grad_(False)
        model, gather = self._trained(here)
        optimizer = build_optimizer(recipe.optimizer, model)
        identity = self._identity()
        if self.start is not None:
            if here.is_first and not run.checkpoints():
                self._begin(self.start, optimizer, identity)
            wait_for_all(here)
        peak, schedule = recipe.optimizer.learning_rate, recipe.schedule
        set_dropout_of = _dropout_by_step(model, recipe.dropout_changes)
        result = train(
            model,
            optimizer,
            lambda step, used: schedule.learning_rate(step, peak, used),
            PretrainingBatches(self.samples, recipe.batch_size, recipe.micro_batch_size, recipe.hard_examples),
            pretraining_objective,
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
        )
        set_dropout_of(result.steps - 1)  # a run that had taken all its updates took none now
        if gather is not None:
            gather()
        evaluation = result.evaluation
        if here.is_first:
            evaluations = [record for record in read_journal(run.journal_path) if record["event"] == "evaluation"]
            if evaluations:
                evaluation = {k: v for k, v in evaluations[-1].items() if k not in ("event", "time", "step", "seconds")}
            if not self._model_is_written():
                card = run_card(run.path.name, recipe, self.corpora, result, evaluation, self.start)
                save_model_directory(
                    run.model_path, self.model, self.tokenizer_directory, extra=self._extra(), card=card, replace=True
                )
        wait_for_all(here)
        return PretrainingResult(run.path, run.model_path, result, evaluation, self.start)

    def _trained(self, here: World) -> tuple[AlbertForPreTraining, Callable[[], None] | None]:
        """The model that learns, and what brings its weights into the whole one where that is another."""
        if self.recipe.parallelism == "data" or here.size == 1:
            return self.model.to(self.place), None
        model = sharded_copy(self.model, here, self.place)
        self.model.eval()
        return model, partial(gather_weights, model, self.model, here)

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
