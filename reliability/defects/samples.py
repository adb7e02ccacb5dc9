"""Defects by which pre-training would learn from other samples than the paper's, or from other ones after a resume."""

from reliability.defects.defect import Defect

_SAMPLES, _ORDER = "pretraining/sampling.py", "pretraining/segments.py"
_MASKS, _BATCHES = "pretraining/masking.py", "pretraining/batches.py"

SAMPLES = (
    Defect(
        name="the label of the sentence order is the wrong way round",
        file=_ORDER,
        old="np.where(coins, SWAPPED, IN_ORDER)",
        new="np.where(coins, IN_ORDER, SWAPPED)",
        tests=("pretraining/test_samples.py::test_order_segments_does_what_the_coin_says",),
    ),
    Defect(
        name="a sequence of one sentence gets a label of its order",
        file=_ORDER,
        old="""np.zeros(len(coins), dtype=bool) if objective == "none" else second.length > 0""",
        new="""np.zeros(len(coins), dtype=bool) if objective == "none" else second.length >= 0""",
        tests=(
            "pretraining/test_samples.py::test_a_single_sentence_has_no_order_to_predict_and_never_a_foreign_segment",
        ),
    ),
    Defect(
        name="sentence order is learnt from segments of other documents",
        file=_ORDER,
        old='    if objective == "nsp":\n        others',
        new='    if objective in ("nsp", "sop"):\n        others',
        tests=("pretraining/test_samples.py::test_segments_are_adjacent_in_the_document_whichever_comes_first",),
    ),
    Defect(
        name="a foreign segment comes from the same document",
        file="pretraining/segments.py",
        old="found = (self._document[drawn] != document[waiting]) & (begin < end)",
        new="found = begin < end",
        tests=("pretraining/test_foreign_segments.py",),
    ),
    Defect(
        name="the lengths of n-grams are drawn uniformly",
        file=_MASKS,
        old="weights = 1 / np.arange(1, recipe.max_ngram + 1)",
        new="weights = np.ones(recipe.max_ngram)",
        tests=("pretraining/test_ngram_masking.py::test_span_lengths_are_drawn_with_one_over_n",),
    ),
    Defect(
        name="all chosen tokens that are not masked become random ones",
        file=_MASKS,
        old="fates < _of_32_bits(random), random_tokens, labels)",
        new="fates <= _of_32_bits(1.0), strangers, labels)",
        tests=("pretraining/test_ngram_masking.py::test_80_percent_become_masks_10_random_10_stay",),
    ),
    Defect(
        name="special tokens are drawn as random replacements",
        file=_MASKS,
        old="self.replacements = np.flatnonzero(~self.special)",
        new="self.replacements = np.arange(len(self.special))",
        tests=(
            "pretraining/test_ngram_masking.py::test_special_tokens_are_never_masked_and_never_drawn_as_replacements",
        ),
    ),
    Defect(
        name="an n-gram goes on behind its segment",
        file=_MASKS,
        old="        n = np.minimum(n, words.to_segment_end)\n",
        new="",
        tests=("pretraining/test_ngram_masking.py::test_a_mask_never_crosses_a_separator",),
    ),
    Defect(
        name="the position of a masked token is one too far",
        file=_SAMPLES,
        old="self.masked_positions[first:last] - before,",
        new="self.masked_positions[first:last] - before + 1,",
        tests=("pretraining/test_samples.py::test_parts_of_a_batch_are_its_samples",),
    ),
    Defect(
        name="the same tokens are masked in every epoch",
        file=_SAMPLES,
        old='item_keys("masks", self._seed, place.epoch, ',
        new='item_keys("masks", self._seed, 0, ',
        tests=("pretraining/test_samples.py::test_the_same_text_is_masked_differently_in_every_epoch",),
    ),
    Defect(
        name="masks depend on what else is in the batch",
        file=_SAMPLES,
        old='item_keys("masks", self._seed, place.epoch, items[place.which])',
        new='item_keys("masks", self._seed, place.epoch, np.arange(len(place.which)))',
        tests=("pretraining/test_samples.py::test_any_batch_gives_what_each_sample_is_alone",),
    ),
    Defect(
        name="the types of the two segments are swapped",
        file=_SAMPLES,
        old="np.tile([0, 1], len(lengths))",
        new="np.tile([1, 0], len(lengths))",
        tests=("pretraining/test_samples.py::test_a_sample_is_cls_first_sep_second_sep",),
    ),
    Defect(
        name="the second segment does not begin where the first one ends",
        file=_ORDER,
        old="Runs(split, end - split)",
        new="Runs(split + 1, end - split - 1)",
        tests=("pretraining/test_samples.py::test_segments_are_adjacent_in_the_document_whichever_comes_first",),
    ),
    Defect(
        name="a sentence that is too long is cut to a sequence, and its rest is lost",
        file="pretraining/segments.py",
        old="-(-(table.end - table.begin) // max_tokens)",
        new="(table.end - table.begin) // max_tokens",
        tests=(
            "pretraining/test_segments.py::test_a_sentence_longer_than_allowed_is_cut_into_equal_parts_without_an_order",
        ),
    ),
    Defect(
        name="all epochs come in the same order",
        file="pretraining/sampling.py",
        old='stream("order", self._seed, epoch, number)',
        new='stream("order", self._seed, number)',
        tests=(
            "pretraining/test_samples.py::test_sequences_that_are_always_cut_alike_come_in_another_order_in_every_epoch",
        ),
    ),
    Defect(
        name="every process trains on the samples of the first one",
        file=_BATCHES,
        old="np.arange(first + rank, first + self._batch_size, world_size)",
        new="np.arange(first, first + self._batch_size, world_size)",
        tests=("pretraining/test_batches.py::test_all_ranks_together_see_exactly_what_a_single_process_sees",),
    ),
    Defect(
        name="the last, smaller micro-batch is left out",
        file=_BATCHES,
        old="for i in range(0, len(made.lengths), micro_batch_size):",
        new="for i in range(0, len(made.lengths) - micro_batch_size + 1, micro_batch_size):",
        tests=(
            "pretraining/test_batches.py::test_micro_batches_change_nothing_but_how_much_is_held_at_a_time",
            "pretraining/test_intrinsic_evaluation.py::test_the_figures_do_not_depend_on_the_batches",
        ),
    ),
    Defect(
        name="evaluation repeats samples until its last batch is full",
        file="pretraining/evaluation.py",
        old="numbers = np.arange(min(limit, samples.per_epoch))",
        new="numbers = np.arange(-(-min(limit, samples.per_epoch) // batch_size) * batch_size)",
        tests=(
            "pretraining/test_intrinsic_evaluation.py::test_the_figures_do_not_depend_on_the_batches",
            "pretraining/test_intrinsic_evaluation.py::test_a_limit_is_kept",
        ),
    ),
    Defect(
        name="another corpus goes on with a run",
        file="pretraining/run_identity.py",
        old="if [each.manifest for each in kept.corpora] != [each.manifest for each in now.corpora]:",
        new="if False:",
        tests=("pretraining/test_run_limits.py::test_another_corpus_is_refused_with_what_differs",),
    ),
)
