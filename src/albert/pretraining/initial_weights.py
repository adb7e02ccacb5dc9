"""Pre-training from the weights of a trained model (`Init`), in the recipe's architecture and the corpus's vocabulary.

Optimiser and schedule start from zero. The run's `start.json` has a hash of the weights, and its checkpoint of step 0
the weights themselves, so the run no longer needs the model."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from albert.checkpoints.card import base_of
from albert.checkpoints.config_json import read_config
from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import sentence_objective
from albert.checkpoints.model_directory import (
    FINGERPRINT_KEY,
    OpenedModel,
    open_model,
    tokenizer_of,
    weights_fingerprint,
)
from albert.checkpoints.sentence_transformers import sentence_vectors_of
from albert.checkpoints.warm_start import (
    PieceOrigins,
    pieces_by_text,
    require_equal_widths,
    same_pieces,
    trained_length,
    warm_start,
)
from albert.model.albert import AlbertForPreTraining
from albert.pretraining.saved_run import Head, StartRecord
from albert.recipes.pretraining import RECIPES, PretrainingRecipe
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import to_json
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import vocabulary_file

_HEADS: dict[Head, str] = {"masked_tokens": "predictions.", "sentence_order": "sop_classifier."}


@dataclass(frozen=True, kw_only=True)
class Init:
    """A trained model to start from, and how its weights may be changed."""

    model: str
    """A model directory, a pre-training run, or a Hub id."""
    resize_vocabulary: bool = False
    """Whether the corpus may have another tokenizer than the model."""
    extend_positions: bool = False
    """Whether positions that the model has but never trained are replaced by copies of the trained ones."""
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
    directory = find_model(init.model)
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
    vectors = _carried_vectors(opened)
    if vectors is not None:
        notes.append(vectors.note)
    return StartRecord(
        source=model_name(init.model),
        weights=weights,
        tokenizer=tokenizer,
        extend_positions=init.extend_positions,
        drop_heads=init.drop_heads,
        trained_positions=result.trained_positions,
        notes=tuple(notes),
        sentence_vectors=None if vectors is None else vectors.settings,
        base=to_json(base_of(directory)),
    )


class _CarriedVectors(NamedTuple):
    settings: dict[str, Any]
    note: str


def _carried_vectors(opened: OpenedModel) -> _CarriedVectors | None:
    """How the model's texts become vectors, without Dense modules; None if it has no files of sentence-transformers.

    Dense modules map the vectors of the encoder as it was; after more pre-training they would map others.
    """
    vectors = sentence_vectors_of(opened.extra)
    if vectors is None:
        return None
    kept = replace(vectors, dense=())
    note = f"the files of sentence-transformers are carried over: {kept.description}"
    if vectors.dense:
        widths = ", ".join(f"{layer.in_features} to {layer.out_features}" for layer in vectors.dense)
        note += f" Left out: its Dense modules ({widths}), which fit the vectors of the encoder as it was."
    return _CarriedVectors(to_json(kept), note)


def recipe_for_model(init: Init) -> PretrainingRecipe:
    """The recipe `continue` with a model's architecture, sentence objective and maximum length, if known.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: its `config.json` cannot be read.
    """
    config, extra = read_config(find_model(init.model))
    length = min(trained_length(extra) or 512, config.max_position_embeddings)
    recipe = RECIPES["continue"]
    sequences = replace(recipe.sequences, max_length=length, objective=sentence_objective(extra))
    return replace(recipe, model=config, sequences=sequences)


def _match_pieces(opened: OpenedModel, corpus: TokenCorpus, init: Init) -> tuple[PieceOrigins, str | None]:
    """The model's piece for each piece of the corpus; and the model's tokenizer fingerprint if it is another."""
    new = corpus.tokenizer()
    recorded = opened.extra.get(FINGERPRINT_KEY)
    if recorded == new.fingerprint:
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
