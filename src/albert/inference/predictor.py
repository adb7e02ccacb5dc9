"""`Predictor`: a trained model that classifies, scores, answers, tags, chooses, fills masks, predicts order, embeds.

Results have the keys of transformers' pipelines, and `tokens_cut` if the text was cut. Sequences are packed: texts of
any number and lengths are computed together without padding, and each result is the same as for its text alone."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from albert.checkpoints import model_directory
from albert.checkpoints.hub import HUB_FILES, find_model
from albert.checkpoints.huggingface import Kind, kind_of
from albert.checkpoints.loading import QUANTIZATION_KEY
from albert.checkpoints.sentence_transformers import (
    SentencePooling,
    SentenceVectors,
    open_dense,
    sentence_vectors_of,
    write_sentence_vectors,
)
from albert.inference import explanations, tasks
from albert.inference.abilities import ANSWERING, CHOOSING, CLASSIFYING, FILLING, ORDERING, SCORING, TAGGING
from albert.inference.early_exit import early_exit_of
from albert.inference.engine import PackedModel, PrecisionChoice, choose_precision
from albert.model.albert import AlbertForPairClassification, PooledEncoder, Pooling, set_depth
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.files import new_directory
from albert.runtime.manifest import MANIFEST_NAME
from albert.tasks.answers import THRESHOLD_KEY, saved_threshold
from albert.tasks.inputs import Pair
from albert.tasks.label_threshold import LabelThreshold, saved_label_threshold
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import table_task_of
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer


def check_pooling(pooling: str) -> None:
    """Raises UsageError for an unknown pooling."""
    if pooling not in get_args(Pooling):
        raise UsageError(f"pooling {pooling!r}", "unknown", f"use {', '.join(get_args(Pooling))}")


def _check_top_k(top_k: int) -> None:
    if isinstance(top_k, bool) or not isinstance(top_k, Integral) or top_k < 1:
        raise UsageError("top_k", f"is {top_k!r}, a whole number of at least 1 is needed")


def _check_lists(name: str, lists: Sequence[Sequence[str]]) -> None:
    if not hasattr(lists, "__getitem__") or isinstance(lists, str | Mapping):
        raise UsageError(name, f"is {type(lists).__name__}, a list of lists of texts is expected")
    for number, texts in enumerate(lists, start=1):
        tasks.check_texts(f"{name}, number {number}", texts)


HALF_WEIGHT_AT = 1e-3
"""The probability of a piece that gets weight 1/2 (rarest: 1); Arora et al. use 1e-3 to 1e-4."""
SPECIAL_WEIGHT = 1e-6
"""Weight of [CLS] and [SEP]: negligible beside words, but a text without words still has a vector."""


def piece_weights(tokenizer: Tokenizer) -> Float32[np.ndarray, " V"]:
    """a / (a + p) for a piece of probability p (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence
    embeddings"), with p of the tokenizer's unigram model."""
    log_probabilities = tokenizer.log_probabilities()
    if log_probabilities is None:
        why = "needs a SentencePiece vocabulary, whose pieces have probabilities"
        raise UsageError("pooling 'weighted'", why, "use mean")
    weights = HALF_WEIGHT_AT / (HALF_WEIGHT_AT + np.exp(log_probabilities))
    weights[[piece for piece in tokenizer.special_ids if piece != tokenizer.unk_id]] = SPECIAL_WEIGHT
    weights[tokenizer.unk_id] = 1.0
    return weights.astype(np.float32)


# --------------------------------------------------------------------------------------------------------------------
# The predictor.


class Predictor:
    """A trained model with its tokenizer and device, for inference.

    Methods raise InvalidConfiguration if the model has no trained head for them, and UsageError for inputs that are not
    strings or for lists of different lengths.

    Args:
        kind: which heads it was opened with.
        precision: of the encoder's matrix products; "auto" is bf16 where the device has it in hardware, else fp32.
        depth: number of layers to apply; None: all that it was trained with.
        patience: early exit after this many consecutive exits agree; None applies all layers.
        threshold: with several labels per text, the probability from which on a label is predicted; None: the model's.

    Raises:
        DamagedData: the tokenizer is not the one that the model was trained with.
        InvalidConfiguration: the model has fewer layers, or does not support early exit.
        Unavailable: the device does not support the precision.
    """

    _open_again: Callable[[], "Predictor"]

    def __init__(
        self,
        opened: model_directory.OpenedModel,
        kind: Kind,
        tokenizer: Tokenizer,
        device: torch.device,
        precision: PrecisionChoice = "auto",
        depth: int | None = None,
        patience: int | None = None,
        threshold: float | None = None,
    ) -> None:
        self.name = str(opened.directory)
        self.config = opened.config
        self.extra = opened.extra
        self.loading_report = opened.loading_report
        self.tokenizer = tokenizer
        self.device = device
        model_directory.require_matching_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
        self.abilities = tasks.abilities_of(kind, opened)
        """Abilities ("classify texts"); a head that the file lacks, or that was never trained, does not count."""
        self.precision = choose_precision(precision, device)
        """Of the encoder's matrix products: fp32, bf16 or int8."""
        self.depth = opened.config.num_hidden_layers if depth is None else depth
        """Number of layers applied; with `patience` the maximum."""
        if depth is not None:
            set_depth(opened.model, depth)
        self.patience = patience
        model = PackedModel(opened.model, device, precision=self.precision)
        classifier = model if patience is None else early_exit_of(model, patience, self.extra, self.name)
        self._network = tasks.Network(model, classifier, tokenizer, tasks.lengths_of(kind, opened))
        has_unanswerable = kind == "joint_question_answering" or THRESHOLD_KEY in self.extra
        self._null_threshold = saved_threshold(self.extra, self.name) if has_unanswerable else None
        self.label_threshold: LabelThreshold | None = None
        """Which labels are predicted, for a model that gives several labels to a text."""
        if self.extra.get("problem_type") == "multi_label_classification":
            self.label_threshold = saved_label_threshold(self.extra, self.name, threshold)
        elif threshold is not None:
            raise InvalidConfiguration("threshold", f"{self.name} gives one label to a text", "leave it out")
        self._pooled: dict[Pooling, PackedModel] = {}
        self.sentence_vectors = sentence_vectors_of(self.extra) or SentenceVectors()
        """How texts become vectors: as the files of sentence-transformers say, else the mean over all tokens."""
        self._dense = open_dense(self.sentence_vectors)

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
        patience: int | None = None,
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
        how: dict[str, Any] = {"precision": precision, "depth": depth, "patience": patience, "threshold": threshold}
        predictor = cls(opened, kind, tokenizer, torch_device, **how)
        predictor._open_again = partial(cls.open, directory, device, overrides=overrides, **how)
        return predictor

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or one in another process, is opened from the same files."""
        return self._open_again, ()

    def __repr__(self) -> str:
        can = ", ".join(self.abilities) or "embed texts; no trained head"
        values: dict[str, object] = {}
        if {CLASSIFYING, TAGGING} & set(self.abilities):
            values = {"labels": self.labels if len(self.labels) <= 10 else f"{len(self.labels)} of them"}
        values |= {"depth": self.depth} | ({} if self.patience is None else {"patience": self.patience})
        values |= {"max_length": self.max_length, "precision": self.precision, "device": str(self.device)}
        settings = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<{type(self).__name__} {self.name!r}: {can}; {settings}>"

    @property
    def network(self) -> nn.Module:
        """The model with its head."""
        return self._network.model.model

    @property
    def max_length(self) -> int:
        """Tokens in a sequence, `[CLS]` and `[SEP]` included."""
        return self._network.max_length

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes, of the tags, or of the one predicted number."""
        self._require(*(TAGGING,) if TAGGING in self.abilities else (CLASSIFYING, SCORING))
        return model_directory.label_names(self.extra, self._network.model.model.classifier.out_features)

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the model was fine-tuned on pairs of texts; None if unknown."""
        if isinstance(self.network, AlbertForPairClassification):
            return True
        table_task = table_task_of(Path(self.name))
        if table_task is not None:
            return table_task.pair is not None
        task = DECLARED.get(str((self.extra.get("finetuning") or {}).get("task")))
        return None if task is None else isinstance(task.inputs, Pair)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of the table that the model was trained on, by what they are used for; empty if unknown."""
        task = table_task_of(Path(self.name))
        if task is None:
            return {}
        used = {"text": task.text or task.words, "pair": task.pair, "question": task.question}
        used["context"] = task.text if task.kind == "multiple-choice" else task.context
        return {name: column for name, column in used.items() if column is not None}

    def _require(self, *abilities: str) -> None:
        if not any(ability in self.abilities for ability in abilities):
            remedy = f"this model can {' and '.join(self.abilities)}" if self.abilities else "fine-tune it first"
            raise InvalidConfiguration(self.name, f"has no trained head to {abilities[0]}", remedy)

    def classify(self, text: str, pair: str | None = None, *, explain: bool = False) -> list[tasks.Prediction]:
        """`classify_batch` of one text."""
        return self.classify_batch([text], None if pair is None else [pair], explain=explain)[0]

    def classify_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[list[tasks.Prediction]]:
        """Every label with its probability, most likely first, for each text (or text and pair).

        The `score` of a regression model is the predicted number. With several labels per text `predicted` says which
        ones are predicted. Entries of a text that was cut have `tokens_cut`, and with early exit `depth`.

        With `explain` each word is left out in turn, and the entry of the first label (with several labels per text,
        of each predicted one) has `explanation`: a list of `word`, its characters `start`..`end`, and `change`, by how
        much the score is higher with the word than without it; the largest changes first. Words of pairs have `part`,
        "text" or "pair". The work is that of as many texts as there are words."""
        self._require(CLASSIFYING, SCORING)
        scores, fields = self._classified(texts, pairs)
        ranked = tasks.ranked_labels(scores, fields, self.labels, self.label_threshold)
        if explain:
            names = self.labels
            entries = [
                own[:1] if self.label_threshold is None else [entry for entry in own if entry["predicted"]]
                for own in ranked
            ]
            chosen = [[names.index(entry["label"]) for entry in own] for own in entries]
            explained = explanations.explain(
                lambda some, others: self._classified(some, others)[0], texts, pairs, scores, chosen
            )
            for own, words_of in zip(entries, explained, strict=True):
                for entry, words in zip(own, words_of, strict=True):
                    entry["explanation"] = words
        return ranked

    def score(self, text: str, pair: str | None = None) -> float:
        """`score_batch` of one text."""
        return self.score_batch([text], None if pair is None else [pair])[0]

    def score_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """The number that a regression model predicts for each text (or text and pair)."""
        self._require(SCORING)
        scores, _ = self._classified(texts, pairs)
        return scores[:, 0].tolist()

    def answer(self, question: str, context: str, top_k: int = 1) -> tasks.Prediction | list[tasks.Prediction]:
        """`answer_batch` of one question: the best answer, or a list of the `top_k` best when it is more than one."""
        answers = self.answer_batch([question], [context], top_k)[0]
        return answers[0] if top_k == 1 else answers

    def answer_batch(
        self, questions: Sequence[str], contexts: Sequence[str], top_k: int = 1
    ) -> list[list[tasks.Prediction]]:
        """The spans of each context that best answer its question, as exact slices of it, best first.

        Long contexts are read in overlapping windows. `score` is the probability among all spans of at most 30 tokens
        in all windows; `start` and `end` count characters, `answer == context[start:end]`. A model trained with
        unanswerable questions gives an empty answer where its threshold decides so.

        Raises:
            UnansweredTexts: contexts that hold no text.
        """
        self._require(ANSWERING)
        tasks.check_pairs("contexts", contexts, "questions", questions)
        _check_top_k(top_k)
        return tasks.find_answers(self._network, questions, contexts, top_k, self._null_threshold)

    def tag(self, text: str) -> list[tasks.Prediction]:
        """`tag_batch` of one text."""
        return self.tag_batch([text])[0]

    def tag_batch(self, texts: Sequence[str]) -> list[list[tasks.Prediction]]:
        """The top label of every word of each text: `word`, `entity`, `score`, its characters `start`..`end`.

        Texts are split into words as the sentences of CoNLL: punctuation, quotes, `n't` and `'s` are words of their
        own, and so is every Chinese character. `tag_sentences` takes words as they are. Long texts are read in
        overlapping windows."""
        self._require(TAGGING)
        tasks.check_texts("texts", texts)
        return tasks.tag_words(self._network, texts, self.labels)

    def tag_sentences(self, sentences: Sequence[Sequence[str]]) -> list[list[tasks.Prediction]]:
        """The top label of every word of sentences split into words: `word`, `entity`, `score`.

        As in evaluation, every word has an entry, even one without a piece of its own."""
        self._require(TAGGING)
        _check_lists("sentences", sentences)
        return tasks.tag_given_words(self._network, sentences, self.labels)

    def choose(self, context: str, options: Sequence[str], question: str = "") -> list[tasks.Prediction]:
        """`choose_batch` of one question."""
        return self.choose_batch([context], [options], [question])[0]

    def choose_batch(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], questions: Sequence[str] | None = None
    ) -> list[list[tasks.Prediction]]:
        """The options of each question, most likely first: `option`, its `index` in the input, its `score`.

        Each is read after the context, appended to the question or in place of a blank `_` in it; the scores are
        probabilities over the options, of which there are at least two."""
        self._require(CHOOSING)
        tasks.check_texts("contexts", contexts)
        questions = [""] * len(contexts) if questions is None else questions
        tasks.check_pairs("questions", questions, "contexts", contexts)
        _check_lists("options", options)
        if len(options) != len(contexts):
            raise UsageError("options", f"{len(options)} lists for {len(contexts)} contexts", "give one for each")
        for choices in options:
            if len(choices) < 2:
                raise UsageError("options", f"{len(choices)} of them", "give at least two to choose from")
        return tasks.rank_options(self._network, contexts, questions, options)

    def fill_mask(self, text: str, top_k: int = 5) -> list[tasks.Prediction] | list[list[tasks.Prediction]]:
        """`fill_mask_batch` of one text: for one mask its predictions, for several a list of such lists."""
        results = self.fill_mask_batch([text], top_k)[0]
        return results[0] if len(results) == 1 else results

    def fill_mask_batch(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[tasks.Prediction]]]:
        """For each text, for each of its `[MASK]`, the `top_k` most likely tokens: `score` (probability), `token`,
        `token_str` and `sequence`. Each mask is predicted with the others still masked.

        Raises:
            UnansweredTexts: no mask, or a text that is too long.
        """
        self._require(FILLING)
        tasks.check_texts("texts", texts)
        _check_top_k(top_k)
        return tasks.fill_masks(self._network, texts, top_k)

    def order(self, first: str, second: str) -> tasks.Prediction:
        """`order_batch` of one pair."""
        return self.order_batch([first], [second])[0]

    def order_batch(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[tasks.Prediction]:
        """Predict whether two adjacent segments are in order: `label`, `score`, `probability_in_order` for each pair.

        A model trained on next-sentence prediction says instead whether the second follows the first in their text or
        comes from another one, with `probability_next`."""
        self._require(ORDERING)
        tasks.check_pairs("seconds", seconds, "firsts", firsts)
        return tasks.predict_orders(self._network, firsts, seconds, self.extra.get("sentence_objective"))

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
        after the pooling are applied in any case.

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
        return self.embed_counted(texts, pooling, normalize, prompt)[0]

    def embed_counted(
        self,
        texts: Sequence[str],
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
    ) -> tuple[Float32[np.ndarray, "texts D"], list[int]]:
        """`embed`, and the number of tokens of each text that did not fit."""
        tasks.check_texts("texts", texts)
        own = self.sentence_vectors
        pooling = own.pooling if pooling is None else pooling
        normalize = own.normalize if normalize is None else normalize
        check_pooling(pooling)
        if not isinstance(normalize, bool | np.bool_):
            raise UsageError("normalize", f"is {normalize!r}, true or false is expected")
        before = own.prompt(prompt, self.name)
        if before or own.lower_case:
            texts = [(before + text).lower() if own.lower_case else before + text for text in texts]
        if pooling not in self._pooled:
            model = self._network.model.model
            weights = torch.from_numpy(piece_weights(self.tokenizer)) if pooling == "weighted" else None
            pooled = PooledEncoder(getattr(model, "albert", model), pooling, weights)
            self._pooled[pooling] = PackedModel(pooled, self.device)
        encoded = tasks.encode_texts(self.tokenizer, (texts,), self.embedding_length)
        rows = self._pooled[pooling].rows(encoded.ids, encoded.token_types)
        vectors = np.asarray(rows, np.float32).reshape(len(texts), self.config.hidden_size)
        if self._dense is not None:
            with torch.inference_mode():
                vectors = self._dense(torch.from_numpy(vectors)).numpy()
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return vectors, encoded.cut

    @property
    def vector_width(self) -> int:
        """The number of dimensions of the vectors of `embed`: H, or that of the model's last Dense module."""
        return self.sentence_vectors.width(self.config.hidden_size)

    @property
    def embedding_length(self) -> int:
        """Tokens of a text to embed, special ones included: as the files of sentence-transformers say."""
        stated = self.sentence_vectors.max_length
        return self.max_length if stated is None else min(stated, self.config.max_position_embeddings)

    def _classified(
        self, texts: Sequence[str], pairs: Sequence[str] | None
    ) -> tuple[Float32[np.ndarray, "texts labels"], list[tasks.Prediction]]:
        tasks.check_texts("texts", texts)
        if pairs is not None:
            tasks.check_pairs("pairs", pairs, "texts", texts)
        elif isinstance(self.network, AlbertForPairClassification):
            remedy = "give a second text with each (--pair on the command line)"
            raise UsageError("pairs", "are missing: this model compares two texts", remedy)
        parts = (texts,) if pairs is None else (texts, pairs)
        return tasks.classify_texts(self._network, parts, len(self.labels), self.extra.get("problem_type"))


class TrainedModel(NamedTuple):
    """A model whose outputs all come from weights of the file; an encoder without a trained pooler has none.

    `left_out` names the head that `config.json` lists but that was not trained; empty if there is none."""

    opened: model_directory.OpenedModel
    kind: Kind
    left_out: str = ""


def open_trained(directory: Path) -> TrainedModel:
    """Open a model directory with the trained part of its head."""
    stated = kind_of(model_directory.read_config(directory)[1])
    kind = stated
    opened = model_directory.open_model(directory, kind)
    left_out = ""
    can = tasks.abilities_of(kind, opened)
    if kind == "pretraining" and FILLING in can and ORDERING not in can:
        kind = "masked_lm"
        left_out = "the order of segments"
    elif kind != "encoder" and not can:
        kind = "encoder"
        left_out = f"the head for {stated}"
    if left_out:
        opened = model_directory.open_model(directory, kind)
    if kind == "encoder" and any(name.startswith("albert.pooler.") for name in opened.loading_report.drawn):
        model: Any = opened.model
        model.pooler = None
    return TrainedModel(opened, kind, left_out)


# --------------------------------------------------------------------------------------------------------------------
# Export to sentence-transformers: `modules.json` lists the modules, each with a folder of settings, as in its
# documentation of saved models. The vectors are those of `Predictor.embed`.


def save_for_sentence_transformers(
    model: str | Path,
    output: Path,
    pooling: SentencePooling | None = None,
    normalize: bool | None = None,
    *,
    revision: str | None = None,
    replace: bool = False,
) -> tuple[int, int]:
    """Copy the files of a model to a directory that `SentenceTransformer(output)` opens, as do transformers and albert.

    Pooling and normalisation are the model's own unless they are given; without its own the mean over all tokens.

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
    if config.attention_window is not None:
        why = f"its attention window ({config.attention_window}) is not supported by sentence-transformers"
        raise InvalidConfiguration(directory, why, "use albert.load(...).embed")
    kind = kind_of(extra)
    opened = model_directory.open_model(directory, kind)  # checks the files before they are copied
    model_directory.tokenizer_of(opened)
    with new_directory(output, replace=replace) as copy:
        for file in {file for pattern in HUB_FILES for file in directory.glob(pattern)}:
            if file.parent == directory and file.name != MANIFEST_NAME:
                shutil.copyfile(file, copy / file.name)
        own = sentence_vectors_of(extra) or SentenceVectors()
        max_length = own.max_length or tasks.lengths_of(kind, opened).max_length
        vectors = replaced(
            own,
            pooling=pooling or own.pooling,
            normalize=own.normalize if normalize is None else normalize,
            max_length=max_length,
        )
        write_sentence_vectors(copy, vectors, config.hidden_size)
    return vectors.width(config.hidden_size), max_length
