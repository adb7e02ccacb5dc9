"""What identifies a pre-training run: recipe, corpora and initial weights, compared on resuming and across ranks.

Also the start from a trained model (`Init`): its weights, in the recipe's architecture and the corpus's vocabulary."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import sentence_objective
from albert.checkpoints.model_directory import (
    FINGERPRINT_KEY,
    OpenedModel,
    open_model,
    read_config,
    tokenizer_of,
    weights_fingerprint,
)
from albert.checkpoints.warm_start import (
    PieceOrigins,
    pieces_by_text,
    require_equal_widths,
    same_pieces,
    trained_length,
    warm_start,
)
from albert.model.albert import AlbertForPreTraining
from albert.model.config import Extension
from albert.pretraining.recipe import (
    RECIPES,
    DropoutChanges,
    Head,
    PretrainingRecipe,
    StartRecord,
    dropout_at,
    saved_recipe,
)
from albert.runtime.devices import default_precision, seed_torch
from albert.runtime.distributed import code_fingerprint, require_same_on_ranks, sum_over_ranks
from albert.runtime.environment import Ranks
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import (
    differences,
    fingerprint_of,
    flatten,
    identity_settings,
    load_json,
    read_json_object,
    save_json,
    to_json,
)
from albert.runtime.legacy import RECIPE_FIELDS_ADDED, removed_settings
from albert.runtime.manifest import MANIFEST_NAME, file_hash
from albert.runtime.removed import WHY
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import vocabulary_file
from albert.training.run_folder import RunFolder

CHANGEABLE = (
    "workers",
    "checkpoint_minutes",
    "checkpoint_every",
    "keep_checkpoints",
    "parallelism",
    "peer_timeout_minutes",
    "fixed_shape",
    "compile",
    "deterministic",
)
"""Settings that may change when a run is resumed: they do not change the results, except in the last bits."""

CHANGEABLE_FOR_LATER_UPDATES = ("max_tokens", "max_minutes", "on_divergence", "max_rollbacks")
"""Settings that may change as well: they affect later updates only."""


def resolve_recipe(
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    run: RunFolder,
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
    if run.recipe_path.exists():
        saved = saved_recipe(run)
        precision = saved.precision if precision == "auto" else precision
        if saved.dropout_changes[: len(changes)] != changes:
            why = f"this run was started with dropout_changes {saved.dropout_changes}, now it is {changes}"
            raise InvalidConfiguration(run.path, why, "change dropout during a run with --change-dropout")
        changes = saved.dropout_changes
    if change_dropout is not None:
        changes = _add_dropout_change(recipe, changes, run, change_dropout)
    if precision == "auto":
        precision = default_precision(device)
    in_fp32 = sum_over_ranks(torch.tensor(float(precision == "fp32"), device=device), ranks)
    precision = "fp32" if in_fp32 > 0 else "bf16"
    model = replace(recipe.model, vocab_size=corpus.vocab_size)
    return replace(recipe, model=model, precision=precision, dropout_changes=changes)


def check_and_save_recipe(run: RunFolder, recipe: PretrainingRecipe) -> None:
    """Save the recipe of a new run; for a resumed run, compare the recipe and save what may change.

    Raises:
        InvalidConfiguration: the run has another recipe.
    """
    if run.recipe_path.exists():
        saved = saved_recipe(run)
        removed = removed_settings(PretrainingRecipe.__name__, read_json_object(run.recipe_path))
        for name, value in removed.items():
            print(f"albert: note: {run.path} continues without {name} {value}, which {WHY}", file=sys.stderr)
        before = flatten(to_json(replace(saved, dropout_changes=recipe.dropout_changes)))
        now = identity_settings(flatten(to_json(recipe)), (*CHANGEABLE, *CHANGEABLE_FOR_LATER_UPDATES), {})
        for key, old, new in differences(before, now):
            why = f"this run was started with {key} {old}, now it is {new}"
            raise InvalidConfiguration(run.path, why, "choose another output, or the run's own recipe.json")
        changed = {name: getattr(recipe, name) for name in (*CHANGEABLE_FOR_LATER_UPDATES, "dropout_changes")}
        recipe = replace(saved, **changed)
        if recipe == saved and not removed:
            return
    save_json(run.recipe_path, recipe)


def recipe_fingerprint(recipe: PretrainingRecipe) -> str:
    """A hash of the settings that must not change during a run; dropout may, as recorded in the recipe."""
    changeable = (*CHANGEABLE, *CHANGEABLE_FOR_LATER_UPDATES, "dropout_changes")
    return fingerprint_of(identity_settings(flatten(to_json(recipe)), changeable, RECIPE_FIELDS_ADDED))


def _add_dropout_change(
    recipe: PretrainingRecipe, changes: DropoutChanges, run: RunFolder, probability: float
) -> DropoutChanges:
    """The changes with one at the newest checkpoint, unless dropout has this value already."""
    checkpoints = run.checkpoints()
    if not checkpoints:
        remedy = "a new run takes --model.hidden-dropout-prob and --model.attention-probs-dropout-prob"
        raise InvalidConfiguration("--change-dropout", f"{run.path} has no checkpoint to continue from", remedy)
    step = checkpoints[-1][0]
    initial = {recipe.model.hidden_dropout_prob, recipe.model.attention_probs_dropout_prob}
    now = dropout_at(changes, step)
    if ({now} if now is not None else initial) == {probability}:
        return changes
    if step >= recipe.schedule.total_steps:
        remedy = f"start another run with --init {run.path}"
        raise InvalidConfiguration("--change-dropout", f"{run.path} has taken all its updates", remedy)
    return tuple(sorted([change for change in changes if change[0] != step] + [(step, probability)]))


# --------------------------------------------------------------------------------------------------------------------
# Pre-training from the weights of a trained model, in the recipe's architecture and the corpus's vocabulary.
#
# Optimiser and schedule start from zero. The run's `start.json` has a hash of the weights, and its checkpoint of step 0
# the weights themselves, so the run no longer needs the model.

_HEADS: dict[Head, str] = {"masked_tokens": "predictions.", "sentence_order": "sop_classifier."}


@dataclass(frozen=True, kw_only=True)
class Init:
    """A trained model to start from, and how its weights may be changed."""

    model: str
    """A model directory, a pre-training run, or a Hub id."""
    revision: str | None = None
    """Of the Hub repository."""
    resize_vocabulary: bool = False
    """Whether the corpus may have another tokenizer than the model."""
    extend_positions: Extension | None = None
    """How to initialise positions beyond the trained ones; None: tile them where the model has none."""
    drop_heads: tuple[Head, ...] = ()
    """Heads to initialise randomly."""


def warm_start_for_pretraining(
    init: Init, recipe: PretrainingRecipe, model: AlbertForPreTraining, corpus: TokenCorpus
) -> StartRecord:
    """Load the weights of a trained model into a randomly initialised one.

    Raises:
        MissingInput, Unavailable, DamagedData: the trained model cannot be opened.
        InvalidConfiguration: its widths, its layers or its tokenizer are not those of the recipe and the corpus.
    """
    directory = find_model(init.model, init.revision)
    require_equal_widths(read_config(directory)[0], recipe.model)
    seed_torch("warm start", recipe.seed)  # for heads missing in the file
    opened = open_model(directory, "pretraining")
    origins, tokenizer = _match_pieces(opened, corpus, init)
    tensors = opened.model.state_dict()
    weights = weights_fingerprint(tensors)
    dropped = {head: _HEADS[head] for head in init.drop_heads}
    objective = recipe.sequences.objective
    trained_objective = sentence_objective(opened.extra)
    notes = []
    if objective != trained_objective and "none" not in (objective, trained_objective):
        dropped["sentence_order"] = _HEADS["sentence_order"]
        notes.append(f"the sentence head was trained for {trained_objective}, this run trains {objective}")
    result = warm_start(
        {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(dropped.values()))},
        opened.config,
        model.state_dict(),
        recipe.model,
        origins=origins,
        extend_positions=init.extend_positions,
        trained_positions=trained_length(opened.extra),
    )
    model.load_state_dict(result.tensors)
    report = opened.loading_report
    initialised = [*report.newly_initialised, *result.drawn]
    notes += [*result.notes, *([f"newly initialised: {', '.join(initialised)}"] if initialised else [])]
    notes += filter(None, [report.not_used])
    return StartRecord(
        source=model_name(init.model, init.revision),
        weights=weights,
        tokenizer=tokenizer,
        extend_positions=init.extend_positions,
        drop_heads=init.drop_heads,
        trained_positions=result.trained_positions,
        notes=tuple(notes),
    )


def recipe_for_model(init: Init) -> PretrainingRecipe:
    """The recipe `continue` with a model's architecture, sentence objective and maximum length, if known.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: its `config.json` cannot be read.
    """
    config, extra = read_config(find_model(init.model, init.revision))
    length = min(trained_length(extra) or 512, config.max_position_embeddings)
    recipe = RECIPES["continue"]
    sequences = replace(recipe.sequences, max_length=length, objective=sentence_objective(extra))
    return replace(recipe, model=config, sequences=sequences)


def _match_pieces(opened: OpenedModel, corpus: TokenCorpus, init: Init) -> tuple[PieceOrigins, str | None]:
    """The model's piece for each piece of the corpus; and the model's tokenizer fingerprint if it is another."""
    new = corpus.tokenizer()
    recorded = opened.extra.get(FINGERPRINT_KEY)
    if recorded is not None and new.matches_fingerprint(str(recorded)):
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not vocabulary_file(opened.directory).is_file():
        why = "has no tokenizer, so its embeddings cannot be matched to the corpus's pieces"
        raise MissingInput(init.model, why, "put the model's tokenizer beside its weights")
    old = tokenizer_of(opened)
    if old.fingerprint == new.fingerprint:
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not init.resize_vocabulary:
        why = f"has tokenizer {old.fingerprint[:12]}, {corpus.directory} was prepared with {new.fingerprint[:12]}"
        remedy = "prepare the corpus with the model's tokenizer, or match the pieces with --resize-vocabulary"
        raise InvalidConfiguration(init.model, why, remedy)
    return pieces_by_text(old, opened.config.vocab_size, new), old.fingerprint


# --------------------------------------------------------------------------------------------------------------------
# All ranks of a pre-training run need identical arguments.


def require_same_arguments(
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    run: RunFolder,
    init: Init | None,
    change_dropout: float | None,
    ranks: Ranks,
    device: torch.device,
) -> None:
    """Compare code, recipe, data and checkpoints across ranks.

    Raises:
        InvalidConfiguration: a rank has other arguments than the first, or sees other files.
    """
    facts = {
        "code": code_fingerprint(),
        "torch": torch.__version__,
        "recipe": repr((recipe, change_dropout)),
        "tokenizer": " ".join(corpus.description.tokenizer_fingerprint for corpus in corpora),
        "corpus": " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in corpora),
        "model to start from": repr(init),
        "newest checkpoint": repr([step for step, _ in run.checkpoints()[-1:]]),
    }
    require_same_on_ranks(facts, ranks, device)


# --------------------------------------------------------------------------------------------------------------------
# The corpora of a run, recorded in its `corpora.json`: another corpus is refused with the differences.

RECORD_NAME = "corpora.json"


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """A prepared corpus."""

    name: str
    """The last part of its path when the run was started."""
    documents: int
    tokens: int
    tokenizer: str
    """The fingerprint of its tokenizer."""
    manifest: str
    """SHA-256 of its manifest, which has those of its files."""

    def __str__(self) -> str:
        size = f"{self.documents:,} documents, {self.tokens:,} tokens"
        return f"{self.name} ({size}, tokenizer {self.tokenizer[:8]}, manifest {self.manifest[:8]})"


@dataclass(frozen=True, kw_only=True)
class CorpusRecords:
    """The corpora of a run, in order."""

    corpora: tuple[CorpusRecord, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.corpora))


def corpus_records(corpora: Sequence[TokenCorpus]) -> CorpusRecords:
    """The records of opened corpora."""
    records = [
        CorpusRecord(
            name=corpus.directory.resolve().name,
            documents=corpus.n_documents,
            tokens=corpus.n_tokens,
            tokenizer=corpus.tokenizer_fingerprint,
            manifest=file_hash(corpus.directory / MANIFEST_NAME),
        )
        for corpus in corpora
    ]
    return CorpusRecords(corpora=tuple(records))


def check_and_save_corpora(run: RunFolder, corpora: Sequence[TokenCorpus]) -> None:
    """Save the corpora of a new run; compare those of a resumed one.

    A run that is older than these records is checked by the fingerprints of its checkpoints alone.

    Raises:
        InvalidConfiguration: the run was trained on other corpora, or in another order.
    """
    now = corpus_records(corpora)
    path = run.path / RECORD_NAME
    if path.exists():
        saved = load_json(CorpusRecords, path)
        if [corpus.manifest for corpus in saved.corpora] != [corpus.manifest for corpus in now.corpora]:
            why = f"this run was started with the corpus {saved}, now it is {now}"
            raise InvalidConfiguration(run.path, why, "give the run's own corpus, or choose another output")
    elif not run.checkpoints():
        save_json(path, now)
