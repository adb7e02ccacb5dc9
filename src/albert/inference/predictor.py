"""`Predictor`: an opened model, which classifies, scores, answers, tags, chooses, fills masks, predicts order, embeds.

What a call passes:

1. A method such as `classify` checks its arguments, and makes an `Example` of each text, pair or question.
2. `replies` has the way of every request, also of the server and of `albert predict --input`: the model's pipeline
   (`albert.tasks`, a file each) encodes examples as sequences of token ids; the network runs (`_outputs`; packed, so
   that texts of any number and lengths are computed together without padding); the pipeline decodes the outputs, and
   makes a reply of what it decoded for each example.

Replies have the keys of transformers' pipelines, and `tokens_cut` if the text was cut. Each is the same as for its text
alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from albert.checkpoints import config_json, model_directory
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import Kind, kind_of
from albert.checkpoints.sentence_transformers import SentenceVectors, open_dense, sentence_vectors_of
from albert.inference.abilities import lengths_of, pipelines_of, trained_on_pairs
from albert.inference.copies import CopiedByPath
from albert.inference.engine import PackedModel, PrecisionChoice, choose_precision
from albert.inference.texts import (
    MEANINGLESS_VECTOR,
    check_lists,
    check_options,
    check_pairs,
    check_second_texts,
    check_text,
    check_texts,
    check_top_k,
    note_cut,
    note_empty,
)
from albert.model.albert import AlbertForPairClassification, PooledEncoder, Pooling, set_depth
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.embed import piece_weights
from albert.tasks.examples import Example, Features, asked
from albert.tasks.fill_mask import FilledMask, MaskFeatures
from albert.tasks.label_threshold import LabelThreshold
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import RankedOption
from albert.tasks.order import PredictedOrder
from albert.tasks.pipeline import Pipeline, UnansweredTexts
from albert.tasks.pipelines import endpoints
from albert.tasks.regression import Regression
from albert.tasks.single_label import LabelScore
from albert.tasks.span import FoundAnswer
from albert.tasks.table_task import table_task_of
from albert.tasks.tagging import TaggedWord, WordInText, text_to_tag
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer


class Predictor(CopiedByPath):
    """A trained model with its tokenizer and device, for inference.

    Methods raise InvalidConfiguration if the model has no trained head for them, and UsageError for inputs that are not
    strings or for lists of different lengths.

    Args:
        model_kind: which heads it was opened with.
        precision: of the encoder's matrix products; "auto" is fp32 on a CPU, and bf16 on a GPU that has it in hardware.
        depth: number of layers to apply; None: all that it was trained with.
        threshold: with several labels per text, the probability from which on a label is predicted; None: the model's.

    Raises:
        DamagedData: the tokenizer is not the one that the model was trained with.
        InvalidConfiguration: the model has fewer layers.
        Unavailable: the device does not support the precision.
    """

    def __init__(
        self,
        opened: model_directory.OpenedModel,
        model_kind: Kind,
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
        self.pipelines = pipelines_of(model_kind, opened, threshold)
        """What it can do; a head that the file lacks, or that was never trained, does not count."""
        if threshold is not None and not any(isinstance(pipeline, MultiLabel) for pipeline in self.pipelines):
            raise InvalidConfiguration("threshold", f"{opened.directory} gives one label to a text", "leave it out")
        self.precision = choose_precision(precision, device)
        """Of the encoder's matrix products: fp32, bf16 or int8."""
        self.depth = opened.config.num_hidden_layers if depth is None else depth
        """Number of layers applied."""
        if depth is not None:
            set_depth(opened.model, depth)
        self.packed_model = PackedModel(opened.model, device, precision=self.precision)
        """The model with its head, for packed batches."""
        self.lengths = lengths_of(model_kind, opened)
        """Tokens of a sequence and of a question, and the step between windows."""
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
        overrides: Mapping[str, Any] | None = None,
        precision: PrecisionChoice = "auto",
        depth: int | None = None,
        threshold: float | None = None,
    ) -> "Predictor":
        """Open a model directory, a run directory, or a Hub id, with its own head.

        Args:
            device: "auto" (the GPU if there is one), "cpu", "cuda", or one GPU of several: "cuda:1".
            overrides: fields of the configuration to replace, such as `{"hidden_act": "gelu_new"}`.
            threshold: see the class.

        Raises:
            MissingInput, Unavailable, DamagedData: the model is missing, cannot be downloaded, or is damaged.
            InvalidConfiguration: a shape or a setting does not fit.
        """
        torch_device = pick_device(device)
        choose_precision(precision, torch_device)
        directory = find_model(path_or_id)
        config, extra = config_json.read_config(directory)
        tokenizer = load_tokenizer(directory)
        model_directory.require_matching_tokenizer(tokenizer, directory, config, extra)  # before any weight is read
        model_kind = kind_of(extra)
        opened = model_directory.open_model(directory, model_kind, overrides=overrides)
        opened.loading_report.warn_if_unverified()
        how: dict[str, Any] = {"precision": precision, "depth": depth, "threshold": threshold}
        predictor = cls(opened, model_kind, tokenizer, torch_device, **how)
        predictor._opened_from = {"path_or_id": directory.absolute(), "device": device, "overrides": overrides, **how}
        return predictor

    # ---- From examples to replies ------------------------------------------------------------------------------------

    def replies(self, pipeline: Pipeline, examples: Sequence[Example]) -> list[Any]:
        """The reply of a pipeline of this model to each example; raises UnansweredTexts for those that have none."""
        features = pipeline.encode(examples, self.tokenizer, pipeline.fitted(self.lengths))
        decoded = pipeline.decode(self._outputs(pipeline, features), features)
        replies: list[Any] = []
        reasons: dict[int, tuple[str, str | None]] = {}
        subject = ""
        tokens_cut = features.cut_of_examples  # of each sequence of each example
        for number, (example, found, cut) in enumerate(zip(examples, decoded, tokens_cut, strict=True)):
            try:
                replies.append(pipeline.reply(example, found, cut))
            except UnansweredTexts as error:
                subject = error.subject
                reasons[number] = error.reasons[0]
        if reasons:
            raise UnansweredTexts(subject, reasons)
        return replies

    def replies_or_errors(self, pipeline: Pipeline, examples: Sequence[Example]) -> list[Any]:
        """The reply to each example, or the error why it has none."""
        try:
            return self.replies(pipeline, examples)
        except UnansweredTexts as error:
            reasons = error.reasons
            answerable = [example for number, example in enumerate(examples) if number not in reasons]
            others = iter(self.replies(pipeline, answerable) if answerable else [])
            return [error.only(number) if number in reasons else next(others) for number in range(len(examples))]

    def _outputs(self, pipeline: Any, features: Features) -> Any:
        """What the network gives for the sequences, in their order, as `decode` of the pipeline takes it.

        Of the head: float32 [labels] for each of a classifier, [] of a multiple choice, [length, labels] of a tagger,
        [length, 2] of answers (start and end). A pipeline that `runs` something else gets the logits at masks, vectors
        [texts, D], or what the heads give after each layer.
        """
        sequences = features.sequences
        ids = [sequences.token_ids(number) for number in range(len(sequences))]
        types = [sequences.token_type_ids(number) for number in range(len(sequences))]
        match pipeline.runs:
            case "masks":
                none = [np.zeros(0, np.int64)] * len(ids)
                positions = features.positions if isinstance(features, MaskFeatures) else none
                return self.packed_model.at(ids, types, positions)
            case "vectors":
                rows = self._pooled_model(pipeline.pooling).rows(ids, types)
                vectors = np.asarray(rows, np.float32).reshape(len(ids), self.config.hidden_size)
                if self.dense is None:
                    return vectors
                with torch.inference_mode():
                    return self.dense(torch.from_numpy(vectors)).numpy()
            case "layers":
                assert isinstance(features, MaskFeatures)
                masks = features.positions if pipeline.fills_masks else [np.zeros(0, np.int64)] * len(ids)
                judges_order = pipeline.order is not None
                return self.packed_model.after_layers(ids, types, masks, bool(pipeline.labels), judges_order)
        return self.packed_model.rows(ids, types)

    def _pooled_model(self, pooling: Pooling) -> PackedModel:
        """The encoder with a pooling, made once."""
        if pooling not in self._pooled:
            weights = torch.from_numpy(piece_weights(self.tokenizer)) if pooling == "weighted" else None
            encoder: Any = getattr(self.network, "albert", self.network)
            self._pooled[pooling] = PackedModel(PooledEncoder(encoder, pooling, weights), self.device)
        return self._pooled[pooling]

    @property
    def network(self) -> nn.Module:
        """The model with its head."""
        return self.packed_model.model

    # ---- What the model can do ---------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        can = ", ".join(self.abilities) or "embed texts; no trained head"
        values: dict[str, object] = {}
        if self.can("classify") or self.can("tag"):
            values = {"labels": self.labels if len(self.labels) <= 10 else f"{len(self.labels)} of them"}
        values |= {"depth": self.depth, "max_length": self.read_length}
        values |= {"precision": self.precision, "device": str(self.device)}
        settings = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<{type(self).__name__} {self.name!r}: {can}; {settings}>"

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
        return list(self.pipeline("classify", "score", "tag").output_names)

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
        return {} if task is None else task.columns_by_use

    @property
    def abilities(self) -> tuple[str, ...]:
        """What its head can do, in words ("classify texts")."""
        return tuple(pipeline.needs for pipeline in self.pipelines if pipeline.needs is not None)

    @property
    def label_threshold(self) -> LabelThreshold | None:
        """Which labels are predicted, of a model that gives several labels to a text."""
        return next((task.threshold for task in self.pipelines if isinstance(task, MultiLabel)), None)

    def can(self, name: str) -> bool:
        """Whether the model has a pipeline of this name."""
        return any(pipeline.name == name for pipeline in self.pipelines)

    def pipeline(self, *names: str) -> Any:
        """The model's pipeline with one of some names; raises InvalidConfiguration if it has none."""
        for pipeline in self.pipelines:
            if pipeline.name in names:
                return pipeline
        remedy = f"this model can {' and '.join(self.abilities)}" if self.abilities else "fine-tune it first"
        raise InvalidConfiguration(self.name, f"has no trained head to {endpoints()[names[0]].needs}", remedy)

    # ---- What users call --------------------------------------------------------------------------------------------

    def classify(self, text: str, pair: str | None = None) -> list[LabelScore]:
        """`classify_batch` of one text."""
        self._check_text_or_pair(text, pair, "classify", "score")
        return self.classify_batch([text], None if pair is None else [pair])[0]

    def classify_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[LabelScore]]:
        """Every label with its probability, most likely first, for each text (or text and pair).

        The `score` of a regression model is the predicted number. With several labels per text `predicted` says which
        ones are predicted. Entries of a text that was cut have `tokens_cut`; a note says how many texts are empty."""
        pipeline = self.pipeline("classify", "score")
        replies = self.replies(pipeline, self._texts_or_pairs(texts, pairs))
        note_empty(texts, pairs)
        return [[number] for number in replies] if isinstance(pipeline, Regression) else replies

    def score(self, text: str, pair: str | None = None) -> float:
        """`score_batch` of one text."""
        self._check_text_or_pair(text, pair, "score")
        return self.score_batch([text], None if pair is None else [pair])[0]

    def score_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """The number that a regression model or a cross-encoder predicts for each text (or text and pair).

        A cross-encoder's is that of `CrossEncoder.predict` of sentence-transformers: with the activation that its files
        name, else a sigmoid. A note says how many texts were cut; `classify_batch` gives `tokens_cut` of each."""
        numbers = self.replies(self.pipeline("score"), self._texts_or_pairs(texts, pairs))
        cut = [number.get("tokens_cut", 0) for number in numbers]
        note_cut(cut, self.max_length, "classify_batch says how many of each text were not")
        note_empty(texts, pairs)
        return [number["score"] for number in numbers]

    def _check_text_or_pair(self, text: str, pair: str | None, *pipelines: str) -> None:
        """Check the arguments of a call for one text, with the names that they have there."""
        check_text("text", text)
        if pair is not None:
            check_text("pair", pair)
        self.pipeline(*pipelines)
        check_second_texts("pair", pair is not None, self.reads_pairs)

    def _texts_or_pairs(self, texts: Sequence[str], pairs: Sequence[str] | None) -> list[Example]:
        """An example for each text, or pair of texts."""
        check_second_texts("pairs", pairs is not None, self.reads_pairs)
        check_texts("texts", texts)
        if pairs is None:
            return [asked(text) for text in texts]
        check_pairs("pairs", pairs, "texts", texts)
        return [asked(*both) for both in zip(texts, pairs, strict=True)]

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
        pipeline = self.pipeline("answer")
        check_pairs("contexts", contexts, "questions", questions)
        check_top_k(top_k)
        examples = [asked(*texts) for texts in zip(questions, contexts, strict=True)]
        return self.replies(replace(pipeline, top_k=int(top_k)), examples)

    def tag(self, text: str) -> list[WordInText]:
        """`tag_batch` of one text."""
        check_text("text", text)
        return self.tag_batch([text])[0]

    def tag_batch(self, texts: Sequence[str]) -> list[list[WordInText]]:
        """The top label of every word of each text: `word`, `entity`, `score`, its characters `start`..`end`.

        Texts are split into words as the sentences of CoNLL: punctuation, quotes, `n't` and `'s` are words of their
        own, and so is every Chinese character. `tag_sentences` takes words as they are. Long texts are read in
        overlapping windows."""
        pipeline = self.pipeline("tag")
        check_texts("texts", texts)
        return self.replies(pipeline, [text_to_tag(text) for text in texts])

    def tag_sentences(self, sentences: Sequence[Sequence[str]]) -> list[list[TaggedWord]]:
        """The top label of every word of sentences split into words: `word`, `entity`, `score`.

        As in evaluation, every word has an entry, even one without a piece of its own."""
        pipeline = self.pipeline("tag")
        check_lists("sentences", sentences)
        return self.replies(pipeline, [asked(*words) for words in sentences])

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
        pipeline = self.pipeline("choose")
        check_texts("contexts", contexts)
        questions = [""] * len(contexts) if questions is None else questions
        check_pairs("questions", questions, "contexts", contexts)
        check_options(options, contexts)
        rows = zip(questions, contexts, options, strict=True)
        return self.replies(pipeline, [asked(question, context, options=tuple(own)) for question, context, own in rows])

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
        pipeline = self.pipeline("fill-mask")
        check_texts("texts", texts)
        check_top_k(top_k)
        return self.replies(replace(pipeline, top_k=int(top_k)), [asked(text) for text in texts])

    def order(self, first: str, second: str) -> PredictedOrder:
        """`order_batch` of one pair."""
        check_text("first", first)
        check_text("second", second)
        return self.order_batch([first], [second])[0]

    def order_batch(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[PredictedOrder]:
        """Predict whether two adjacent segments are in order: `label`, `score`, `probability_in_order` for each pair.

        A model trained on next-sentence prediction says instead whether the second follows the first in their text or
        comes from another one, with `probability_next`."""
        pipeline = self.pipeline("order")
        check_pairs("seconds", seconds, "firsts", firsts)
        return self.replies(pipeline, [asked(*texts) for texts in zip(firsts, seconds, strict=True)])

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
        check_texts("texts", texts)
        pipeline = self.pipeline("embed").changed(pooling, normalize, prompt)
        examples = [asked(text) for text in texts]
        features = pipeline.encode(examples, self.tokenizer, pipeline.fitted(self.lengths))
        return pipeline.decode(self._outputs(pipeline, features), features), features.cut.tolist()

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
