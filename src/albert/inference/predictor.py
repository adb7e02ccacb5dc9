"""Text in, answers out: classify, score, answer a question, tag words, choose, fill a mask, judge an order, embed.

Results have the keys of transformers' pipelines. Sequences are packed, so texts of any number and lengths go through
together without padding, and each result is what its text alone would get. Nothing is cut in silence: a result that
saw only a part of its text says so by `tokens_cut`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from albert.inference.abilities import (
    ANSWERING,
    CHOOSING,
    CLASSIFYING,
    FILLING,
    ORDERING,
    SCORING,
    TAGGING,
    Prediction,
)
from albert.inference.answering import find_answers
from albert.inference.asked_texts import check_pairs, check_texts
from albert.inference.choosing import rank_options
from albert.inference.classifying import Classified, classify_texts, ranked_labels
from albert.inference.embedding import PooledEncoder, Pooling, check_pooling, embed_texts
from albert.inference.filling import fill_masks
from albert.inference.opened_predictor import OpenedPredictor
from albert.inference.ordering import judge_orders
from albert.inference.packed_model import PackedModel
from albert.inference.tagging import tag_given_words, tag_words
from albert.runtime.errors import UsageError

__all__ = ["Prediction", "Predictor"]


class Predictor(OpenedPredictor):
    """A trained model and the questions that it can be asked; see `OpenedPredictor` for how it is opened."""

    def classify(self, text: str, pair: str | None = None) -> list[Prediction]:
        """`classify_batch` of one text."""
        return self.classify_batch([text], None if pair is None else [pair])[0]

    def classify_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[Prediction]]:
        """Every label with its probability, the likeliest first, for each text (or text and pair).

        A regression model gives one entry, whose `score` is the predicted number. A text that was cut has
        `tokens_cut` beside its scores, and one that was decided early its `depth`.

        Raises:
            InvalidConfiguration: the model has no classifier.
            UsageError: not as many pairs as texts.
        """
        self._require(CLASSIFYING, SCORING)
        return ranked_labels(self._classified(texts, pairs), self.labels)

    def score(self, text: str, pair: str | None = None) -> float:
        """`score_batch` of one text."""
        return self.score_batch([text], None if pair is None else [pair])[0]

    def score_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        """The number that a regression model predicts for each text (or text and pair).

        Raises:
            InvalidConfiguration: the model predicts no number.
            UsageError: not as many pairs as texts.
        """
        self._require(SCORING)
        return self._classified(texts, pairs).scores[:, 0].tolist()

    def answer(self, question: str, context: str, top_k: int = 1) -> Prediction | list[Prediction]:
        """`answer_batch` of one question: the best answer, or a list of the `top_k` best when it is more than one."""
        found = self.answer_batch([question], [context], top_k)[0]
        return found[0] if top_k == 1 else found

    def answer_batch(self, questions: Sequence[str], contexts: Sequence[str], top_k: int = 1) -> list[list[Prediction]]:
        """The parts of each context that answer its question best, as exact slices of it, the best first.

        Long contexts are read in overlapping windows. `score` is the probability among all spans of at most
        30 tokens in all windows; `start` and `end` count characters, `answer == context[start:end]`. A model that
        learnt that a question may have no answer says so by an empty one, as its threshold decides.

        Raises:
            InvalidConfiguration: the model cannot answer questions.
            UnansweredTexts: contexts that hold no text.
            UsageError: not as many contexts as questions.
        """
        self._require(ANSWERING)
        check_pairs("contexts", contexts, "questions", questions)
        return find_answers(
            self._model, self.tokenizer, self._lengths, questions, contexts, top_k, self._null_threshold
        )

    def tag(self, text: str) -> list[Prediction]:
        """`tag_batch` of one text."""
        return self.tag_batch([text])[0]

    def tag_batch(self, texts: Sequence[str]) -> list[list[Prediction]]:
        """The likeliest label of every word of each text: `word`, `entity`, `score`, its characters `start`..`end`.

        A word is judged by its first piece; long texts are read in overlapping windows.

        Raises:
            InvalidConfiguration: the model does not tag words.
        """
        self._require(TAGGING)
        check_texts("texts", texts)
        starts = self._word_starts
        return tag_words(self._model, self.tokenizer, starts, self.max_length, texts, self.labels)

    def tag_sentences(self, sentences: Sequence[Sequence[str]]) -> list[list[Prediction]]:
        """The likeliest label of every word of sentences that come in words: `word`, `entity`, `score`.

        They are the answers of an evaluation: each word has one, also one that has no piece of its own.

        Raises:
            InvalidConfiguration: the model does not tag words.
            UsageError: a sentence is a text and not a list of words.
        """
        self._require(TAGGING)
        for number, words in enumerate(sentences, start=1):
            check_texts(f"sentences, number {number}", words)
        return tag_given_words(self._model, self.tokenizer, self.max_length, sentences, self.labels)

    def choose(self, context: str, options: Sequence[str], question: str = "") -> list[Prediction]:
        """`choose_batch` of one question."""
        return self.choose_batch([context], [options], [question])[0]

    def choose_batch(
        self, contexts: Sequence[str], options: Sequence[Sequence[str]], questions: Sequence[str] | None = None
    ) -> list[list[Prediction]]:
        """The options of each question, the likeliest first: `option`, its `index` among those given, its `score`.

        Each is read after the context, behind the question or in the place of a blank `_` in it; the scores are
        probabilities among the options.

        Raises:
            InvalidConfiguration: the model does not choose.
            UsageError: fewer than two options, or not as many questions as contexts.
        """
        self._require(CHOOSING)
        questions = [""] * len(contexts) if questions is None else questions
        check_pairs("questions", questions, "contexts", contexts)
        if len(options) != len(contexts):
            raise UsageError("options", f"{len(options)} lists for {len(contexts)} contexts", "give one for each")
        for each in options:
            check_texts("options", each)
            if len(each) < 2:
                raise UsageError("options", f"{len(each)} of them", "give at least two to choose from")
        lengths = self._lengths
        return rank_options(
            self._deciding, self.tokenizer, lengths.max_length, lengths.question_length, contexts, questions, options
        )

    def fill_mask(self, text: str, top_k: int = 5) -> list[Prediction] | list[list[Prediction]]:
        """`fill_mask_batch` of one text: for one mask its predictions, for several a list of such lists."""
        results = self.fill_mask_batch([text], top_k)[0]
        return results[0] if len(results) == 1 else results

    def fill_mask_batch(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Prediction]]]:
        """The likeliest pieces for each `[MASK]` of each text.

        Returns:
            For each text, for each of its masks, `top_k` predictions with `score` (probability), `token`, `token_str`
            and `sequence`; each mask is judged with the others still masked.

        Raises:
            UnansweredTexts: no mask, or more text than fits.
            InvalidConfiguration: the model cannot fill masks.
        """
        self._require(FILLING)
        check_texts("texts", texts)
        return fill_masks(self._model, self.tokenizer, self.max_length, texts, top_k)

    def order(self, first: str, second: str) -> Prediction:
        """`order_batch` of one pair."""
        return self.order_batch([first], [second])[0]

    def order_batch(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[Prediction]:
        """Whether two adjacent segments are in order: `label`, its `score`, `probability_in_order`, for each pair.

        A model that learnt next-sentence prediction says instead whether the second follows the first in their
        text or comes from another one, with `probability_next`.

        Raises:
            InvalidConfiguration: the model cannot judge an order.
            UsageError: not as many second segments as first ones.
        """
        self._require(ORDERING)
        check_pairs("seconds", seconds, "firsts", firsts)
        objective = self.extra.get("sentence_objective")
        return judge_orders(self._model, self.tokenizer, self.max_length, firsts, seconds, objective)

    def embed(
        self, texts: Sequence[str], pooling: Pooling = "mean", normalize: bool = False
    ) -> Float32[np.ndarray, "texts H"]:
        """A vector for each text: its tokens' last layer, pooled; any model can, whatever its head.

        Args:
            texts: any number of them.
            pooling: "mean" over all tokens, [CLS] and [SEP] among them, or what stands at "cls".
            normalize: to length 1, so that a product of two is their cosine.
        """
        return self.embed_counted(texts, pooling, normalize)[0]

    def embed_counted(
        self, texts: Sequence[str], pooling: Pooling = "mean", normalize: bool = False
    ) -> tuple[Float32[np.ndarray, "texts H"], list[int]]:
        """`embed`, and how many tokens of each text did not fit."""
        check_texts("texts", texts)
        check_pooling(pooling)
        if pooling not in self._pooled:
            model = self._model.model
            pooled = PooledEncoder(getattr(model, "albert", model), pooling)
            self._pooled[pooling] = PackedModel(pooled, self.device)
        return embed_texts(self._pooled[pooling], self.tokenizer, self.max_length, texts, normalize)

    def _classified(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Classified:
        check_texts("texts", texts)
        if pairs is not None:
            check_pairs("pairs", pairs, "texts", texts)
        parts = (texts,) if pairs is None else (texts, pairs)
        problem = self.extra.get("problem_type")
        return classify_texts(self._deciding, self.tokenizer, self.max_length, parts, len(self.labels), problem)
