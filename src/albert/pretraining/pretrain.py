"""Pre-training: a prepared corpus and a recipe become a model directory."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.card import ModelCard
from albert.checkpoints.model_directory import save_model_directory, write_model
from albert.model.albert import AlbertForPreTraining
from albert.model.parameter_count import count_parameters
from albert.optim.optimizer import build_optimizer
from albert.optim.schedule import warmup_then_linear
from albert.pretraining.batches import PretrainingBatches
from albert.pretraining.intrinsic_evaluation import HeldOutSamples
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.samples import PretrainingSamples
from albert.runtime.devices import describe_machine, fastest_precision, pick_device, seed_torch
from albert.runtime.distributed import World, process_group, sum_over_ranks, wait_for_all, world
from albert.runtime.durable_files import MANIFEST_NAME, file_hash
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.journal import read_journal
from albert.runtime.strict_json import load_json, save_json, to_json
from albert.text.shards import TokenCorpus
from albert.training.loop import TrainingPlan, TrainingResult, train
from albert.training.run_folder import RunFolder

FREE_TO_CHANGE = ("workers", "checkpoint_minutes", "checkpoint_every", "keep_checkpoints")
"""What may differ when a run is resumed: it changes no number."""


@dataclass(frozen=True)
class PretrainingResult:
    """A finished pre-training run."""

    run: Path
    model: Path
    """The model directory."""
    training: TrainingResult
    evaluation: Mapping[str, float]
    """Held-out figures of the finished model."""


def pretrain(recipe: PretrainingRecipe, data: Path, output: Path, device: str = "auto") -> PretrainingResult:
    """Pre-train, or go on with what `output` holds.

    Args:
        recipe: the whole run.
        data: what `albert prepare` wrote.
        output: the run's directory.
        device: "auto", "cpu" or "cuda".

    Raises:
        InvalidConfiguration: `output` holds a run of another recipe or corpus.
        DamagedData, MissingInput: the corpus or the newest checkpoint is damaged or absent.
        Diverged, Stopped: see `training.loop.train`.
    """
    place = pick_device(device, world().local_rank)
    with process_group(place) as here:
        corpus = TokenCorpus.open(data, "train", verify=here.is_first)
        run = RunFolder(output)
        recipe = _settle(recipe, corpus, run, place, here)
        # Everything that can be refused is, before the first file is written.
        if recipe.batch_size % here.size:
            why = f"{recipe.batch_size} sequences cannot be shared out evenly over {here.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a multiple")
        samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
        if not here.is_first:
            wait_for_all(here)
            return _pretrain(recipe, corpus, samples, None, run, place)
        held_out = _held_out(recipe, corpus)
        with run.locked():
            _keep_recipe(run, recipe)
            wait_for_all(here)
            return _pretrain(recipe, corpus, samples, held_out, run, place)


def _pretrain(
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    samples: PretrainingSamples,
    held_out: HeldOutSamples | None,
    run: RunFolder,
    place: torch.device,
) -> PretrainingResult:
    here = world()
    seed_torch("initialization", recipe.seed)
    model = AlbertForPreTraining(recipe.model).to(place)
    if recipe.sequences.objective == "none":  # nothing asks these two, and weight decay alone would shrink them away
        for part in (model.albert.pooler, model.sop_classifier):
            assert part is not None
            part.requires_grad_(False)
    optimizer = build_optimizer(recipe.optimizer, model)
    peak, schedule = recipe.optimizer.learning_rate, recipe.schedule
    extra = {
        "sentence_objective": recipe.sequences.objective,
        "max_sequence_length": recipe.sequences.max_length,  # positions beyond it were never trained
    }
    result = train(
        model,
        optimizer,
        lambda step: warmup_then_linear(step, peak, schedule.warmup_steps, schedule.total_steps),
        PretrainingBatches(samples, recipe.batch_size, recipe.micro_batch_size),
        pretraining_objective,
        _plan(recipe),
        run,
        device=place,
        identity={"recipe": _fingerprint(recipe), "corpus": file_hash(corpus.directory / MANIFEST_NAME)},
        save_model=lambda directory: write_model(directory, model, corpus.directory, extra=extra),
        evaluate=None if held_out is None else lambda: held_out.evaluate(model, place, recipe.settled_precision),
        description="Pre-training",
    )
    evaluation = result.evaluation
    if here.is_first:
        evaluations = [record for record in read_journal(run.journal_path) if record["event"] == "evaluation"]
        if evaluations:
            evaluation = {k: v for k, v in evaluations[-1].items() if k not in ("event", "time", "step")}
        if not run.model_path.exists():
            card = _card(run, recipe, corpus, result, evaluation)
            save_model_directory(run.model_path, model, corpus.directory, extra=extra, card=card)
    wait_for_all(here)
    return PretrainingResult(run.path, run.model_path, result, evaluation)


def _settle(
    recipe: PretrainingRecipe, corpus: TokenCorpus, run: RunFolder, place: torch.device, here: World
) -> PretrainingRecipe:
    """The recipe with nothing left open: the corpus's vocabulary, and one precision for all ranks and for all time."""
    precision = recipe.precision
    if precision == "auto" and run.recipe_path.exists():
        precision = load_json(PretrainingRecipe, run.recipe_path).precision
    if precision == "auto":
        precision = fastest_precision(place)
    against = sum_over_ranks(torch.tensor(float(precision == "fp32"), device=place), here)
    precision = "fp32" if against > 0 else "bf16"
    return replace(recipe, model=replace(recipe.model, vocab_size=corpus.vocab_size), precision=precision)


def _plan(recipe: PretrainingRecipe) -> TrainingPlan:
    total = recipe.schedule.total_steps
    return TrainingPlan(
        total_steps=total,
        seed=recipe.seed,
        clip_norm=recipe.clip_norm,
        precision=recipe.settled_precision,
        log_every=recipe.log_every,
        evaluate_every=recipe.evaluate_every or max(1, total // 10),
        checkpoint_every=recipe.checkpoint_every,
        checkpoint_minutes=recipe.checkpoint_minutes,
        keep_checkpoints=recipe.keep_checkpoints,
        workers=recipe.workers,
    )


def _held_out(recipe: PretrainingRecipe, corpus: TokenCorpus) -> HeldOutSamples | None:
    try:
        held_out = TokenCorpus.open(corpus.directory, "held_out", verify=False)
    except MissingInput:
        return None
    if held_out.n_tokens == 0:
        return None
    return HeldOutSamples(held_out, recipe.sequences, recipe.masking, recipe.evaluation_sequences)


def _keep_recipe(run: RunFolder, recipe: PretrainingRecipe) -> None:
    """Save the recipe of a new run; refuse to go on with a run of another."""
    if not run.recipe_path.exists():
        save_json(run.recipe_path, recipe)
        return
    kept = _flat(to_json(load_json(PretrainingRecipe, run.recipe_path)))
    for key, value in _flat(to_json(recipe)).items():
        if kept[key] != value and key not in FREE_TO_CHANGE:
            why = f"this run was started with {key} {kept[key]}, now it is {value}"
            raise InvalidConfiguration(run.path, why, "choose another output, or the run's own recipe.json")


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _fingerprint(recipe: PretrainingRecipe) -> str:
    fixed = {key: value for key, value in _flat(to_json(recipe)).items() if key not in FREE_TO_CHANGE}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _card(
    run: RunFolder,
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    result: TrainingResult,
    evaluation: Mapping[str, float],
) -> str:
    names = {
        "masked_tokens_accuracy": "masked-token accuracy, held out",
        "masked_tokens_baseline": "the most frequent token instead",
        "sentence_order_accuracy": f"sentence-task ({recipe.sequences.objective}) accuracy, held out",
        "sentence_order_baseline": "the more frequent order instead",
    }
    return ModelCard(
        name=run.path.name,
        architecture="AlbertForPreTraining",
        description=f"An ALBERT encoder pre-trained with n-gram masking and the sentence objective "
        f'"{recipe.sequences.objective}" for {result.steps:,} steps, {result.tokens:,} tokens.',
        parameters=count_parameters(recipe.model).by_part(),
        recipe={key: str(value) for key, value in _flat(to_json(recipe)).items()}
        | {"machine": ", ".join(f"{key} {value}" for key, value in describe_machine().items())},
        data=[f"{corpus.n_documents:,} documents, {corpus.n_tokens:,} tokens of {corpus.vocab_size:,} pieces"],
        scores={name: evaluation[key] for key, name in names.items() if key in evaluation},
    ).render()
