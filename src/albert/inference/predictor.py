"""`Predictor`: a trained model that classifies, scores, answers, tags, chooses, fills masks, predicts order, embeds.

Results have the keys of transformers' pipelines, and `tokens_cut` if the text was cut. Sequences are packed: texts of
any number and lengths are computed together without padding, and each result is the same as for its text alone."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import asdict
from dataclasses import replace as replaced
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from albert.checkpoints import model_directory
from albert.checkpoints.card import CARD_NAME, Card, base_of, model_card
from albert.checkpoints.cross_encoders import ACTIVATION_KEY
from albert.checkpoints.families import family_of
from albert.checkpoints.hub import (
    EXAMPLES_NAME,
    HUB_FILES,
    INDEX_NAME,
    MODULES_NAME,
    PROMPTS_NAME,
    WEIGHTS_NAME,
    find_model,
    first_example,
    name_of,
)
from albert.checkpoints.huggingface import Kind, kind_of
from albert.checkpoints.loading import QUANTIZATION_KEY, stored_tensors, write_tensors
from albert.checkpoints.model_directory import CONFIG_NAME
from albert.checkpoints.sentence_transformers import (
    SENTENCE_KEY,
    SentencePooling,
    SentenceVectors,
    open_dense,
    sentence_vectors_of,
    stated_length,
    write_sentence_vectors,
)
from albert.inference.abilities import ABILITIES, CLASSIFY, EMBED, FILL_MASK, ORDER, SCORE, TAG, Ability, Lengths
from albert.inference.abilities.answer import FoundAnswer, find_answers
from albert.inference.abilities.choose import RankedOption, rank_options
from albert.inference.abilities.classify import LabelScore, rank_labels, score_texts
from albert.inference.abilities.embed import embed_texts, piece_weights
from albert.inference.abilities.fill_mask import FilledMask, fill_masks
from albert.inference.abilities.order import PredictedOrder, predict_orders
from albert.inference.abilities.tag import TaggedWord, WordInText, tag_sentences, tag_texts
from albert.inference.engine import PackedModel, PrecisionChoice, choose_precision
from albert.inference.texts import (
    MEANINGLESS_VECTOR,
    check_second_texts,
    check_text,
    check_texts,
    note_cut,
    note_empty,
)
from albert.model.albert import AlbertForPairClassification, PooledEncoder, Pooling, set_depth
from albert.runtime.devices import pick_device
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import read_json_object, save_json, to_json
from albert.runtime.manifest import MANIFEST_NAME
from albert.tasks.answers import THRESHOLD_KEY, saved_threshold
from albert.tasks.inputs import Pair
from albert.tasks.label_threshold import LabelThreshold, saved_label_threshold
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import table_task_of
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

MIN_LENGTH = 5  # [CLS] a [SEP] b [SEP]


def lengths_of(kind: Kind, opened: model_directory.OpenedModel) -> Lengths:
    """The lengths that a model was fine-tuned with, by default the paper's; at most its number of positions, and for a
    model of another library the length that its tokenizer states."""
    positions = opened.config.max_position_embeddings
    of_paper = (ability.lengths for ability in ABILITIES.values() if kind in ability.heads)
    default = next((lengths for lengths in of_paper if lengths is not None), Lengths(positions, 64, 128))
    stated = dict(opened.extra.get("finetuning") or {})
    if model_directory.FINGERPRINT_KEY not in opened.extra:  # other libraries cut texts where the tokenizer says
        of_tokenizer = stated_length(opened.directory) or positions
        default = default._replace(max_length=min(default.max_length, of_tokenizer))
    if "max_sequence_length" in opened.extra:
        stated["max_length"] = opened.extra["max_sequence_length"]
    lengths = default._asdict()
    for name in lengths:
        value = stated.get(name, lengths[name])
        least = MIN_LENGTH if name == "max_length" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            key = "max_sequence_length" if name == "max_length" else f"finetuning: {name}"
            subject = f"{opened.directory / 'config.json'}: {key}"
            raise InvalidConfiguration(subject, f"is {value!r}, at least {least} tokens are needed")
        lengths[name] = value
    return Lengths(**lengths | {"max_length": min(lengths["max_length"], positions)})


def trained_abilities(kind: Kind, opened: model_directory.OpenedModel) -> tuple[Ability, ...]:
    """What the head of a model opened as this kind can do."""
    return tuple(ability for ability in ABILITIES.values() if ability.is_trained(kind, opened))


def trained_on_pairs(directory: Path, extra: Mapping[str, Any]) -> bool | None:
    """Whether a model that reads a text or two was fine-tuned on pairs of texts; None if unknown.

    Args:
        extra: the keys of its `config.json` besides the architecture.
    """
    table_task = table_task_of(directory)
    if table_task is not None:
        return table_task.pair is not None
    if ACTIVATION_KEY in extra:
        return True
    task = DECLARED.get(str((extra.get("finetuning") or {}).get("task")))
    return None if task is None else isinstance(task.inputs, Pair)


# --------------------------------------------------------------------------------------------------------------------
# The predictor.


class Predictor:
    """A trained model with its tokenizer and device, for inference.

    Methods raise InvalidConfiguration if the model has no trained head for them, and UsageError for inputs that are not
    strings or for lists of different lengths.

    Args:
        kind: which heads it was opened with.
        precision: of the encoder's matrix products; "auto" is fp32 on a CPU, and bf16 on a GPU that has it in hardware.
        depth: number of layers to apply; None: all that it was trained with.
        threshold: with several labels per text, the probability from which on a label is predicted; None: the model's.

    Raises:
        DamagedData: the tokenizer is not the one that the model was trained with.
        InvalidConfiguration: the model has fewer layers.
        Unavailable: the device does not support the precision.
    """

    _opened_from: Mapping[str, Any]
    """The absolute directory and the other arguments of `open`."""

    def __init__(
        self,
        opened: model_directory.OpenedModel,
        kind: Kind,
        tokenizer: Tokenizer,
        device: torch.device,
        precision: PrecisionChoice = "auto",
        depth: int | None = None,
        threshold: float | None = None,
    ) -> None:
        self.name = str(opened.directory)
        self.directory = opened.directory.absolute()
        self.config = opened.config
        self.extra = opened.extra
        self.loading_report = opened.loading_report
        self.tokenizer = tokenizer
        self.device = device
        model_directory.require_matching_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
        self.abilities = tuple(str(ability.needs) for ability in trained_abilities(kind, opened))
        """Abilities ("classify texts"); a head that the file lacks, or that was never trained, does not count."""
        self.precision = choose_precision(precision, device)
        """Of the encoder's matrix products: fp32, bf16 or int8."""
        self.depth = opened.config.num_hidden_layers if depth is None else depth
        """Number of layers applied."""
        if depth is not None:
            set_depth(opened.model, depth)
        self.packed_model = PackedModel(opened.model, device, precision=self.precision)
        """The model with its head, for packed batches."""
        self.lengths = lengths_of(kind, opened)
        """Tokens of a sequence and of a question, and the step between windows."""
        has_unanswerable = kind == "joint_question_answering" or THRESHOLD_KEY in self.extra
        self.null_threshold = saved_threshold(self.extra, self.name) if has_unanswerable else None
        """When a question has no answer; None for a model that always answers."""
        self.label_threshold: LabelThreshold | None = None
        """Which labels are predicted, for a model that gives several labels to a text."""
        if self.extra.get("problem_type") == "multi_label_classification":
            self.label_threshold = saved_label_threshold(self.extra, self.name, threshold)
        elif threshold is not None:
            raise InvalidConfiguration("threshold", f"{self.name} gives one label to a text", "leave it out")
        self._pooled: dict[Pooling, PackedModel] = {}
        self.sentence_vectors = sentence_vectors_of(self.extra) or SentenceVectors()
        """How texts become vectors: as the files of sentence-transformers say, else the mean over all tokens."""
        self.dense = open_dense(self.sentence_vectors)
        """The Dense modules after the pooling; None if there are none."""

    @classmethod
    def open(
        cls,
        path_or_id: str | Path,
        device: str | torch.device = "auto",
        *,
        revision: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        precision: PrecisionChoice = "auto",
        depth: int | None = None,
        threshold: float | None = None,
    ) -> "Predictor":
        """Open a model directory, a run directory, or a Hub id, with its own head.

        Args:
            device: "auto" (the GPU if there is one), "cpu", "cuda", or one GPU of several: "cuda:1".
            revision: a branch, tag or commit of a Hub id.
            overrides: fields of the configuration to replace, such as `{"hidden_act": "gelu_new"}`.
            threshold: see the class.

        Raises:
            MissingInput, Unavailable, DamagedData: the model is missing, cannot be downloaded, or is damaged.
            InvalidConfiguration: a shape or a setting does not fit.
        """
        torch_device = pick_device(device)
        choose_precision(precision, torch_device)
        directory = find_model(path_or_id, revision)
        config, extra = model_directory.read_config(directory)
        tokenizer = load_tokenizer(directory)
        model_directory.require_matching_tokenizer(tokenizer, directory, config, extra)  # before any weight is read
        kind = kind_of(extra)
        opened = model_directory.open_model(directory, kind, overrides=overrides)
        opened.loading_report.warn_if_unverified()
        how: dict[str, Any] = {"precision": precision, "depth": depth, "threshold": threshold}
        predictor = cls(opened, kind, tokenizer, torch_device, **how)
        predictor._opened_from = {
            "path_or_id": directory.absolute(),
            "device": device,
            "overrides": overrides,
            **how,
        }
        return predictor

    @classmethod
    def open_the_same(cls, fingerprint: str, **arguments: Any) -> "Predictor":
        """`open`, for a model that had this fingerprint; DamagedData if another one is there now."""
        predictor = cls.open(**arguments)
        if predictor.fingerprint() != fingerprint:
            remedy = "put the earlier model back, or open this one with albert.load"
            raise DamagedData(predictor.name, "is another model than the one that was pickled", remedy)
        return predictor

    def fingerprint(self) -> str:
        """SHA-256 of what decides the answers: weights as they are in memory, configuration and vocabulary."""
        settings = {"config": asdict(self.config), "extra": self.extra, "tokenizer": self.tokenizer.fingerprint}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
        parts = [self.network, *([] if self.dense is None else [self.dense])]
        for part in parts:
            for name, tensor in sorted(part.state_dict().items()):
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has the model's absolute path and fingerprint, and refuses another model in its place."""
        return partial(type(self).open_the_same, self.fingerprint(), **self._opened_from), ()

    def __copy__(self) -> "Predictor":
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> "Predictor":
        """A copy with weights of its own, which nothing that happens to the files can change."""
        copied = copy(self)
        memo[id(self)] = copied
        copied.packed_model = deepcopy(self.packed_model, memo)
        copied.dense = deepcopy(self.dense, memo)
        copied.extra = deepcopy(self.extra, memo)
        copied._pooled = {}
        return copied

    def __repr__(self) -> str:
        can = ", ".join(self.abilities) or "embed texts; no trained head"
        values: dict[str, object] = {}
        if self.can(CLASSIFY) or self.can(TAG):
            values = {"labels": self.labels if len(self.labels) <= 10 else f"{len(self.labels)} of them"}
        values |= {"depth": self.depth, "max_length": self.read_length}
        values |= {"precision": self.precision, "device": str(self.device)}
        settings = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<{type(self).__name__} {self.name!r}: {can}; {settings}>"

    @property
    def network(self) -> nn.Module:
        """The model with its head."""
        return self.packed_model.model

    @property
    def max_length(self) -> int:
        """Tokens in a sequence, `[CLS]` and `[SEP]` included."""
        return self.lengths.max_length

    @property
    def read_length(self) -> int:
        """Tokens that are read of a text: by the head, or for its vector if the model has no trained head."""
        return self.max_length if self.abilities else self.embedding_length

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes, of the tags, or of the one predicted number."""
        self.require(CLASSIFY, SCORE, TAG)
        model: Any = self.network
        return model_directory.label_names(self.extra, model.classifier.out_features)

    @cached_property
    def reads_pairs(self) -> bool | None:
        """Whether the model was fine-tuned on pairs of texts; None if unknown."""
        if isinstance(self.network, AlbertForPairClassification):
            return True
        return trained_on_pairs(self.directory, self.extra)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of the table that the model was trained on, by what they are used for; empty if unknown."""
        task = table_task_of(self.directory)
        if task is None:
            return {}
        text = task.spans[0] if task.spans is not None else task.text or task.words
        used = {"text": text, "pair": task.pair, "question": task.question}
        used["context"] = task.text if task.kind == "multiple-choice" else task.context
        return {name: column for name, column in used.items() if column is not None}

    def can(self, ability: Ability) -> bool:
        """Whether the model has the trained head that an ability needs."""
        return ability.needs is None or ability.needs in self.abilities

    def require(self, *abilities: Ability) -> None:
        """Raises InvalidConfiguration if the model has none of some abilities."""
        if not any(self.can(ability) for ability in abilities):
            remedy = f"this model can {' and '.join(self.abilities)}" if self.abilities else "fine-tune it first"
            raise InvalidConfiguration(self.name, f"has no trained head to {abilities[0].needs}", remedy)

    def _check_second_texts(self, name: str, are_given: bool, *abilities: Ability) -> None:
        """Raises UsageError for second texts that the model was not trained with, or that are missing."""
        self.require(*abilities)
        check_second_texts(name, are_given, self.reads_pairs)

    def pooled_model(self, pooling: Pooling) -> PackedModel:
        """The encoder with a pooling, made once."""
        if pooling not in self._pooled:
            weights = torch.from_numpy(piece_weights(self.tokenizer)) if pooling == "weighted" else None
            encoder: Any = getattr(self.network, "albert", self.network)
            pooled = PooledEncoder(encoder, pooling, weights)
            self._pooled[pooling] = PackedModel(pooled, self.device)
        return self._pooled[pooling]

    def classify(self, text: str, pair: str | None = None) -> list[LabelScore]:
        """`classify_batch` of one text."""
        check_text("text", text)
        if pair is not None:
            check_text("pair", pair)
        self._check_second_texts("pair", pair is not None, CLASSIFY, SCORE)
        return self.classify_batch([text], None if pair is None else [pair])[0]

    def classify_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[LabelScore]]:
        """Every label with its probability, most likely first, for each text (or text and pair).

        The `score` of a regression model is the predicted number. With several labels per text `predicted` says which
        ones are predicted. Entries of a text that was cut have `tokens_cut`; a note says how many texts are empty."""
        self._check_second_texts("pairs", pairs is not None, CLASSIFY, SCORE)
        ranked = rank_labels(self, texts, pairs)
        note_empty(texts, pairs)
        return ranked

    def score(self, text: str, pair: str | None = None) -> float:
        """`score_batch` of one text."""
        check_text("text", text)
        if pair is not None:
            check_text("pair", pair)
        self._check_second_texts("pair", pair is not None, SCORE)
        return self.score_batch([text], None if pair is None else [pair])[0]

    def score_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """The number that a regression model or a cross-encoder predicts for each text (or text and pair).

        A cross-encoder's is that of `CrossEncoder.predict` of sentence-transformers: with the activation that its files
        name, else a sigmoid. A note says how many texts were cut; `classify_batch` gives `tokens_cut` of each."""
        self._check_second_texts("pairs", pairs is not None, SCORE)
        scores = score_texts(self, texts, pairs)
        note_empty(texts, pairs)
        return scores

    def answer(self, question: str, context: str, top_k: int = 1) -> FoundAnswer | list[FoundAnswer]:
        """`answer_batch` of one question: the best answer, or a list of the `top_k` best when it is more than one."""
        check_text("question", question)
        check_text("context", context)
        answers = self.answer_batch([question], [context], top_k)[0]
        return answers[0] if top_k == 1 else answers

    def answer_batch(
        self, questions: Sequence[str], contexts: Sequence[str], top_k: int = 1
    ) -> list[list[FoundAnswer]]:
        """The spans of each context that best answer its question, as exact slices of it, best first.

        Long contexts are read in overlapping windows. `score` is the probability among all spans of at most 30 tokens
        in all windows; `start` and `end` count characters, `answer == context[start:end]`. A model trained with
        unanswerable questions gives an empty answer where its threshold decides so.

        Raises:
            UnansweredTexts: contexts that hold no text.
        """
        return find_answers(self, questions, contexts, top_k)

    def tag(self, text: str) -> list[WordInText]:
        """`tag_batch` of one text."""
        check_text("text", text)
        return self.tag_batch([text])[0]

    def tag_batch(self, texts: Sequence[str]) -> list[list[WordInText]]:
        """The top label of every word of each text: `word`, `entity`, `score`, its characters `start`..`end`.

        Texts are split into words as the sentences of CoNLL: punctuation, quotes, `n't` and `'s` are words of their
        own, and so is every Chinese character. `tag_sentences` takes words as they are. Long texts are read in
        overlapping windows."""
        return tag_texts(self, texts)

    def tag_sentences(self, sentences: Sequence[Sequence[str]]) -> list[list[TaggedWord]]:
        """The top label of every word of sentences split into words: `word`, `entity`, `score`.

        As in evaluation, every word has an entry, even one without a piece of its own."""
        return tag_sentences(self, sentences)

    def choose(self, context: str, options: Sequence[str], question: str = "") -> list[RankedOption]:
        """`choose_batch` of one question."""
        check_text("context", context)
        check_texts("options", options)
        check_text("question", question)
        return self.choose_batch([context], [options], [question])[0]

    def choose_batch(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], questions: Sequence[str] | None = None
    ) -> list[list[RankedOption]]:
        """The options of each question, most likely first: `option`, its `index` in the input, its `score`.

        Each is read after the context, appended to the question or in place of a blank `_` in it; the scores are
        probabilities over the options, of which there are at least two."""
        return rank_options(self, contexts, options, questions)

    def fill_mask(self, text: str, top_k: int = 5) -> list[FilledMask] | list[list[FilledMask]]:
        """`fill_mask_batch` of one text: for one mask its predictions, for several a list of such lists."""
        check_text("text", text)
        results = self.fill_mask_batch([text], top_k)[0]
        return results[0] if len(results) == 1 else results

    def fill_mask_batch(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[FilledMask]]]:
        """For each text, for each of its `[MASK]`, the `top_k` most likely tokens: `score` (probability), `token`,
        `token_str` and `sequence`. Each mask is predicted with the others still masked.

        Raises:
            UnansweredTexts: no mask, or a text that is too long.
        """
        return fill_masks(self, texts, top_k)

    def order(self, first: str, second: str) -> PredictedOrder:
        """`order_batch` of one pair."""
        check_text("first", first)
        check_text("second", second)
        return self.order_batch([first], [second])[0]

    def order_batch(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[PredictedOrder]:
        """Predict whether two adjacent segments are in order: `label`, `score`, `probability_in_order` for each pair.

        A model trained on next-sentence prediction says instead whether the second follows the first in their text or
        comes from another one, with `probability_next`."""
        return predict_orders(self, firsts, seconds)

    def embed(
        self,
        texts: Sequence[str],
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        *,
        prompt: str | None = None,
    ) -> Float32[np.ndarray, "texts D"]:
        """A vector for each text: the last layer's output, pooled; works with any head.

        Without arguments the vectors are those of sentence-transformers, if the model has its files. Dense modules
        after the pooling are applied in any case. Notes say how many texts were cut, and how many are empty;
        `embed_counted` counts the tokens cut of each.

        Args:
            pooling: "mean" over all tokens, including [CLS] and [SEP]; "cls", the [CLS] token; "max" over all tokens;
                or "weighted", a mean that weights rare pieces higher (see `piece_weights`), better for models not
                trained for embeddings. None: the model's own, else the mean.
            normalize: scale to length 1, so that dot products are cosines. None: as the model's files say, else no.
            prompt: the name of one of the model's prompts, which is written before every text, such as "query"; ""
                for none. None: the model's default prompt, if it has one.

        Raises:
            UsageError: the model has no such prompt.
        """
        vectors, cut = self.embed_counted(texts, pooling, normalize, prompt)
        note_empty(texts, meaningless=MEANINGLESS_VECTOR)
        note_cut(cut, self.embedding_length, "embed_counted says how many of each text were not")
        return vectors

    def embed_counted(
        self,
        texts: Sequence[str],
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
    ) -> tuple[Float32[np.ndarray, "texts D"], list[int]]:
        """`embed`, and the number of tokens of each text that did not fit."""
        return embed_texts(self, texts, pooling, normalize, prompt)

    @property
    def vector_width(self) -> int:
        """The number of dimensions of the vectors of `embed`: H, or that of the model's last Dense module, or as many
        as its files keep."""
        return self.sentence_vectors.kept_width(self.config.hidden_size)

    @property
    def embedding_length(self) -> int:
        """Tokens of a text to embed, special ones included: as the files of sentence-transformers say."""
        stated = self.sentence_vectors.max_length
        return self.max_length if stated is None else min(stated, self.config.max_position_embeddings)


class TrainedModel(NamedTuple):
    """A model whose outputs all come from weights of the file; an encoder without a trained pooler has none.

    `abilities` are those of its head, of an encoder `EMBED`. `left_out` names the head that `config.json` lists but
    that was not trained; empty if there is none."""

    opened: model_directory.OpenedModel
    kind: Kind
    abilities: tuple[Ability, ...]
    left_out: str = ""


def open_trained(directory: Path) -> TrainedModel:
    """Open a model directory with the trained part of its head."""
    stated = kind_of(model_directory.read_config(directory)[1])
    kind = stated
    opened = model_directory.open_model(directory, kind)
    left_out = ""
    abilities = trained_abilities(kind, opened)
    if kind == "pretraining" and FILL_MASK in abilities and ORDER not in abilities:
        kind = "masked_lm"
        left_out = "the order of segments"
    elif not abilities:
        abilities = (EMBED,)
        if kind != "encoder":
            kind = "encoder"
            left_out = f"the head for {stated}"
    if left_out:
        opened = model_directory.open_model(directory, kind)
    if kind == "encoder" and any(name.startswith("albert.pooler.") for name in opened.loading_report.drawn):
        model: Any = opened.model
        model.pooler = None
    return TrainedModel(opened, kind, abilities, left_out)


# --------------------------------------------------------------------------------------------------------------------
# Export to sentence-transformers: `modules.json` lists the modules, each with a folder of settings, as in its
# documentation of saved models. The vectors are those of `Predictor.embed`.


_OF_A_HEAD = ("id2label", "label2id", "num_labels", "problem_type")
"""Keys of `config.json` that say what a head predicts."""


def save_for_sentence_transformers(
    model: str | Path,
    output: Path,
    pooling: SentencePooling | None = None,
    normalize: bool | None = None,
    *,
    revision: str | None = None,
    replace: bool = False,
) -> tuple[int, int]:
    """Copy a model to a directory that `SentenceTransformer(output)` opens, as do transformers and albert.

    Weights are written in float32, because sentence-transformers computes in the type of the file, and without a head,
    which has no part in vectors. Pooling and normalisation are the model's own unless they are given; without its own
    the mean over all tokens.

    Returns:
        The dimension of a vector, and the maximum length of a text in tokens.
    """
    known = get_args(SentencePooling)
    if pooling is not None and pooling not in known:
        raise UsageError(f"pooling {pooling!r}", "unknown to sentence-transformers", f"use {', '.join(known)}")
    directory = find_model(model, revision)
    config, extra = model_directory.read_config(directory)
    if QUANTIZATION_KEY in extra:
        why = "its matrices are integers, which sentence-transformers does not read"
        raise InvalidConfiguration(directory, why, "export the model that it was quantised from")
    if config.match_embedding:
        why = "its match embedding is not supported by sentence-transformers"
        raise InvalidConfiguration(model, why, "export the model that was fine-tuned")
    kind = kind_of(extra)
    opened = model_directory.open_model(directory, kind)  # checks the files before they are copied
    tokenizer = model_directory.tokenizer_of(opened)
    with new_directory(output, replace=replace) as copy:
        written_anew = (MANIFEST_NAME, MODULES_NAME, PROMPTS_NAME, INDEX_NAME, CONFIG_NAME, CARD_NAME, EXAMPLES_NAME)
        for file in {file for pattern in HUB_FILES for file in directory.glob(pattern)}:
            is_copied = file.name not in written_anew and file.suffix != ".safetensors"
            if file.parent == directory and is_copied:
                shutil.copyfile(file, copy / file.name)
        stored = stored_tensors(directory)
        heads = family_of(config).head_prefixes()
        encoder = [name for name in stored.by_name if name.split(".", 1)[0] not in heads]
        write_tensors(copy / WEIGHTS_NAME, stored.read(encoder, torch.float32))
        content = read_json_object(directory / CONFIG_NAME)
        for name in (*_OF_A_HEAD, "torch_dtype"):
            content.pop(name, None)
        encoder_class = model_directory.written_class("AlbertModel", config)
        save_json(copy / CONFIG_NAME, content | {"architectures": [encoder_class], "dtype": "float32"})
        own = sentence_vectors_of(extra) or SentenceVectors()
        max_length = own.max_length or lengths_of(kind, opened).max_length
        vectors = replaced(
            own,
            pooling=pooling or own.pooling,
            normalize=own.normalize if normalize is None else normalize,
            max_length=max_length,
        )
        write_sentence_vectors(copy, vectors, config.hidden_size)
        card = Card(
            name=output.name,
            description=f"{name_of(directory)} for sentence-transformers. {vectors.description}",
            example=first_example(directory),
            base=base_of(directory),
            library="sentence-transformers",
        )
        keys = extra | {SENTENCE_KEY: to_json(vectors)}
        facts = model_directory.written_model("AlbertModel", config, None, tokenizer, keys)
        write_text(copy / CARD_NAME, model_card(card, facts))
    return vectors.kept_width(config.hidden_size), max_length
