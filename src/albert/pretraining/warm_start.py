"""Pre-training that starts from a trained model: weights only, in the recipe's architecture and the corpus's pieces.

The optimiser starts anew and the warm-up runs. What the run was started from stands in its `start.json`, as a hash of
the weights; the weights themselves are its checkpoint of step 0, so that the run needs the model no more.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from albert.checkpoints.config_file import read_config
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import FINGERPRINT_KEY, OpenedModel, open_model
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.checkpoints.warm_start.warm_start import refuse_other_widths, warm_start
from albert.checkpoints.warm_start.warm_start_positions import trained_length
from albert.checkpoints.warm_start.warm_start_vocabulary import PieceOrigins, pieces_by_text, same_pieces
from albert.checkpoints.weights_fingerprint import weights_fingerprint
from albert.model.albert import AlbertForPreTraining
from albert.model.config import Extension
from albert.pretraining.named_recipes import continue_recipe
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.sentence_order import SentenceObjective, head_task
from albert.pretraining.start_record import Head, StartRecord
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.text.preparation.shards import TokenCorpus
from albert.text.tokenizer_directory import vocabulary_file

_HEADS: dict[Head, str] = {"masked_tokens": "predictions.", "sentence_order": "sop_classifier."}


@dataclass(frozen=True, kw_only=True)
class Init:
    """A trained model to start from, and what may become of it."""

    model: str
    """A model directory, a run that made one, or a Hub id."""
    revision: str | None = None
    """Of the Hub repository."""
    resize_vocabulary: bool = False
    """Whether the corpus may have another tokenizer than the model."""
    extend_positions: Extension | None = None
    """How positions beyond the trained ones are made; None: tiled where the model has none."""
    drop_heads: tuple[Head, ...] = ()
    """Heads to draw anew."""


def warm_start_for_pretraining(
    init: Init, recipe: PretrainingRecipe, model: AlbertForPreTraining, corpus: TokenCorpus
) -> StartRecord:
    """Put the weights of a trained model into one that was drawn at random.

    Args:
        init: what to start from.
        recipe: the run; its architecture is the model's.
        model: keeps its values where the trained model has none.
        corpus: its tokenizer is the one that the model gets.

    Raises:
        MissingInput, Unavailable, DamagedData: the trained model cannot be opened.
        InvalidConfiguration: its widths, its layers or its tokenizer are not those of the recipe and the corpus.
    """
    directory = find_model(init.model, init.revision)
    refuse_other_widths(read_config(directory)[0], recipe.model)
    seed_torch("warm start", recipe.seed)  # heads that the file lacks
    opened = open_model(directory, "pretraining")
    origins, tokenizer = _origins(opened, corpus, init)
    tensors = opened.model.state_dict()
    weights = weights_fingerprint(tensors)
    dropped = {head: _HEADS[head] for head in init.drop_heads}
    asked, objective = head_task(recipe.sequences.objective), sentence_objective(opened.extra)
    notes = []
    if asked != objective and "none" not in (asked, objective):
        dropped["sentence_order"] = _HEADS["sentence_order"]
        notes.append(f"the sentence head was trained for {objective}, this run asks for {asked}")
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
    drawn = [*report.newly_initialised, *result.drawn]
    notes += [*result.notes, *([f"new, drawn at random: {', '.join(drawn)}"] if drawn else [])]
    if report.unexpected:
        heads = Counter(name.split(".")[0] for name in report.unexpected)
        notes.append("in the file, not used here: " + ", ".join(f"{n} of {head}" for head, n in heads.items()))
    return StartRecord(
        source=_name(init),
        weights=weights,
        tokenizer=tokenizer,
        extend_positions=init.extend_positions,
        drop_heads=init.drop_heads,
        trained_positions=result.trained_positions,
        notes=tuple(notes),
    )


def recipe_like(init: Init) -> PretrainingRecipe:
    """The recipe `continue` for a model: nothing of its architecture changes.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: its `config.json` cannot be read.
    """
    config, extra = read_config(find_model(init.model, init.revision))
    return continue_recipe(config, trained_length(extra), sentence_objective(extra))


def sentence_objective(extra: dict) -> SentenceObjective:
    """What a model's sentence head was trained on; what nobody wrote down is ALBERT's."""
    kept = extra.get("sentence_objective", "sop")
    if kept not in ("sop", "nsp", "none"):
        raise InvalidConfiguration("config.json: sentence_objective", f"is {kept!r}, known are sop, nsp and none")
    return kept


def _origins(opened: OpenedModel, corpus: TokenCorpus, init: Init) -> tuple[PieceOrigins, str | None]:
    new, recorded = corpus.tokenizer(), opened.extra.get(FINGERPRINT_KEY)
    if recorded is not None and new.answers_to(str(recorded)):
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not vocabulary_file(opened.directory).is_file():
        why = "has no tokenizer: nothing tells which embedding is whose"
        raise MissingInput(init.model, why, "put the model's tokenizer beside its weights")
    old = tokenizer_of(opened)
    if old.fingerprint == new.fingerprint:
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not init.resize_vocabulary:
        ours, theirs = old.fingerprint[:12], new.fingerprint[:12]
        why = f"has tokenizer {ours}, {corpus.directory} was prepared with {theirs}"
        remedy = "prepare the corpus with the model's tokenizer, or let --resize-vocabulary match the pieces"
        raise InvalidConfiguration(init.model, why, remedy)
    return pieces_by_text(old, opened.config.vocab_size, new), old.fingerprint


def _name(init: Init) -> str:
    """A Hub id with its revision, or the last two parts of a path: a card tells what, not where on which machine."""
    short = "/".join(Path(init.model).parts[-2:])
    return f"{short}@{init.revision}" if init.revision else short
