"""Defects by which a score would be another than the official one, or an answer another than the text's."""

from reliability.defects.defect import Defect

_GLUE, _WINDOWS, _ANSWERS = "tasks/glue.py", "tasks/features.py", "tasks/answers.py"
_EVALUATION = "finetuning/evaluation.py"
_BATCH_SIZES = "finetuning/test_finetune.py::test_the_size_of_evaluation_batches_changes_no_answer"

SCORES = (
    Defect(
        name="the context of a question is stripped, so that answers are elsewhere",
        file="tasks/squad.py",
        old='context = _get(paragraph, "context", str, place)',
        new='context = _get(paragraph, "context", str, place).strip()',
        tests=("tasks/test_sources.py::test_blanks_around_a_context_belong_to_it",),
    ),
    Defect(
        name="windows skip tokens between them",
        file=_WINDOWS,
        old="        start += min(stride, room)\n",
        new="        start += room + 1\n",
        tests=("tasks/test_windows.py::test_every_token_is_in_a_window_and_is_judged_in_exactly_one",),
    ),
    Defect(
        name="a stride that skips tokens is allowed",
        file=_WINDOWS,
        old="    if room < stride:\n",
        new="    if False:\n",
        tests=("tasks/test_windows.py::test_a_stride_that_would_skip_tokens_is_refused",),
    ),
    Defect(
        name="a token is judged where it has least context",
        file=_WINDOWS,
        old="context = np.minimum(left, left[::-1])",
        new="context = -np.minimum(left, left[::-1]) / n_tokens",
        tests=("tasks/test_windows.py::test_a_token_is_judged_where_it_has_most_context",),
    ),
    Defect(
        name="an answer loses its last character",
        file=_ANSWERS,
        old="Candidate(context[start:end], start, end,",
        new="Candidate(context[start : end - 1], start, end,",
        tests=("tasks/test_windows.py::test_gold_answers_are_reachable_and_answers_are_slices",),
    ),
    Defect(
        name="an answer may end before it begins",
        file=_ANSWERS,
        old="last = first[:, None] + np.arange(max_tokens)",
        new="last = first[:, None] - np.arange(max_tokens)",
        tests=("tasks/test_answers.py::test_independent_logits_give_every_allowed_span_its_share",),
    ),
    Defect(
        name="the threshold of no answer has the wrong sign",
        file="tasks/answers.py",
        old="answered=each.no_answer <= threshold.value",
        new="answered=each.no_answer >= threshold.value",
        tests=("finetuning/test_absent_answers.py",),
    ),
    Defect(
        name="the labels of MNLI are swapped",
        file=_GLUE,
        old='target=Choice(("contradiction", "entailment", "neutral"), "gold_label"),',
        new='target=Choice(("contradiction", "entailment", "neutral"), "gold_label",\n'
        '        names=("entailment", "contradiction", "neutral")),',
        tests=("tasks/test_declarations.py::test_labels_are_shown_in_their_own_words_and_numbers_as_what_they_mean",),
    ),
    Defect(
        name="outputs are matched with labels by place, not by name",
        file=_EVALUATION,
        old="        logits = logits[:, list(label_columns)]\n",
        new="        pass\n",
        tests=("finetuning/test_finetune.py::test_labels_are_matched_by_name_whatever_their_order",),
    ),
    Defect(
        name="quotes in a table of GLUE are markup",
        file="tasks/examples.py",
        old='        fields = line.split("\\t")\n        where',
        new='        fields = [field.strip(\'"\') for field in line.split("\\t")]\n        where',
        tests=(
            "tasks/test_sources.py::test_quotes_and_odd_line_ends_are_text_and_no_row_is_lost",
            "tasks/test_sources.py::test_an_open_quote_swallows_nothing",
        ),
    ),
    Defect(
        name="a ragged row is passed over",
        file="tasks/examples.py",
        old='raise DamagedData(where, f"has {len(fields)} tab-separated fields where {len(columns)} are expected")',
        new="continue",
        tests=("tasks/test_sources.py::test_a_ragged_row_is_an_error_with_its_line",),
    ),
    Defect(
        name="the metric of CoLA is accuracy",
        file=_GLUE,
        old="    metrics=(matthews_correlation,),\n    recipe=",
        new="    metrics=(accuracy,),\n    recipe=",
        tests=("tasks/test_declarations.py::test_metrics_are_the_official_ones_in_their_order",),
    ),
    Defect(
        name="accuracy comes before F1 in MRPC",
        file=_GLUE,
        old="    metrics=(f1, accuracy),\n    recipe=_table_14(2e-5, 32, 800, 200, examples=3668)",
        new="    metrics=(accuracy, f1),\n    recipe=_table_14(2e-5, 32, 800, 200, examples=3668)",
        tests=("tasks/test_declarations.py::test_metrics_are_the_official_ones_in_their_order",),
    ),
    Defect(
        name="the metrics of STS-B are swapped",
        file=_GLUE,
        old="    metrics=(pearson, spearman),\n",
        new="    metrics=(spearman, pearson),\n",
        tests=("tasks/test_declarations.py::test_metrics_are_the_official_ones_in_their_order",),
    ),
    Defect(
        name="F1 is that of the other class",
        file="tasks/metrics.py",
        old='predicted, pos_label=1, average="binary"',
        new='predicted, pos_label=0, average="binary"',
        tests=("tasks/test_metrics.py::test_f1_equals_scikit_learn",),
    ),
    Defect(
        name="articles count in an answer",
        file="tasks/answers.py",
        old='_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION))',
        new="text.lower().translate(_WITHOUT_PUNCTUATION)",
        tests=("tasks/test_answer_metrics.py::test_span_scores_by_hand",),
    ),
    Defect(
        name="rows without a prediction are left out of the score",
        file="tasks/metrics.py",
        old="    if missing:\n        raise DamagedData(",
        new="    identifiers = [each for each in identifiers if each in predictions]\n"
        "    if False:\n        raise DamagedData(",
        tests=("tasks/test_metrics.py::test_a_missing_prediction_is_refused",),
    ),
    Defect(
        name="the last batch is left out of an evaluation",
        file=_EVALUATION,
        old="        for piece in pieces:\n",
        new="        for piece in pieces[:-1]:\n",
        tests=(_BATCH_SIZES,),
    ),
    Defect(
        name="a model is evaluated with its dropout",
        file=_EVALUATION,
        old="    model.eval()\n",
        new="    model.train()\n",
        tests=(_BATCH_SIZES,),
    ),
    Defect(
        name="both texts of a pair have the type of the first",
        file="tasks/features.py",
        old="        types[: self.first_lengths[index]] = 0\n",
        new="        types[:] = 0\n",
        tests=("tasks/test_features.py::test_one_text_and_two_texts",),
    ),
    Defect(
        name="what is cut off a text is not counted",
        file="tasks/features.py",
        old="truncated, tokens_cut = truncated + (cut > 0), tokens_cut + cut",
        new="truncated, tokens_cut = 0, 0",
        tests=("tasks/test_features.py::test_cuts_are_counted_and_the_special_tokens_stay",),
    ),
    Defect(
        name="the longer text of a pair stays whole and the shorter one is cut",
        file="tasks/features.py",
        old="        return [first, room - first]\n",
        new="        return [room - second, second] if second < room else [half, room - half]\n",
        tests=("tasks/test_features.py::test_truncation_is_longest_first",),
    ),
    Defect(
        name="what is cut off a question of RACE is its option",
        file="tasks/race.py",
        old="kept_question = question[-question_length:]",
        new="kept_question = question[:question_length]",
        tests=("tasks/test_race.py::test_the_passage_loses_its_end_and_the_question_its_beginning",),
    ),
)
