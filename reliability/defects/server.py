"""Defects by which the server would take on more than it can, or give a caller another one's answer, or none."""

from reliability.defects.defect import Defect

_BATCHER, _GATE = "inference/server/batching.py", "inference/server/middleware.py"
_OF_BATCHER, _OF_LIMITS = "inference/server/test_batcher.py::", "inference/server/test_limits.py::"

SERVER = (
    Defect(
        name="a request of many texts finds room in the queue as one",
        file="inference/server/batching.py",
        old="return self.texts + texts <= self._most_texts and",
        new="return self.texts + 1 <= self._most_texts and",
        tests=(_OF_BATCHER + "test_a_request_finds_room_as_a_whole_or_not_at_all",),
    ),
    Defect(
        name="options are not counted in the queue",
        file=_BATCHER,
        old="return self.counted, self.tokens",
        new="return 1, self.tokens",
        tests=(_OF_BATCHER + "test_options_count_as_texts",),
    ),
    Defect(
        name="a body may grow without an end",
        file=_GATE,
        old="            if came > most:\n",
        new="            if False:\n",
        tests=(_OF_LIMITS + "test_a_large_body_is_refused_by_its_length_and_while_it_comes",),
    ),
    Defect(
        name="a length that is told is not believed",
        file=_GATE,
        old="if lengths and int(lengths[0]) > limits.body_bytes:",
        new="if False:",
        tests=(_OF_LIMITS + "test_a_large_body_is_refused_by_its_length_and_while_it_comes",),
    ),
    Defect(
        name="a panic of a library ends the worker",
        file=_BATCHER,
        old="except BaseException as error:  # a panic",
        new="except Exception as error:  # a panic",
        tests=(_OF_BATCHER + "test_a_panic_fails_its_text_and_the_worker_goes_on",),
    ),
    Defect(
        name="one text that cannot be computed fails all that share its batch",
        file=_BATCHER,
        old="if len(batch) == 1 or failures.count > MOST_FAILURES or",
        new="if batch or",
        tests=(_OF_BATCHER + "test_a_text_that_cannot_be_computed_fails_alone",),
    ),
    Defect(
        name="the answers of a request come in another order",
        file=_BATCHER,
        old="request.outcomes[item.place] = outcome",
        new="request.outcomes[-1 - item.place] = outcome",
        tests=("inference/server/test_answers.py::test_answers_are_those_of_the_predictor",),
    ),
    Defect(
        name="questions with other options share a batch",
        file=_BATCHER,
        old="item.call == batch[0].call",
        new="item.call.name == batch[0].call.name",
        tests=(_OF_BATCHER + "test_the_same_question_with_other_options_is_another_call",),
    ),
    Defect(
        name="what nobody waits for is computed all the same",
        file=_BATCHER,
        old="        self._waiting = [item for item in self._waiting if item.request is not request]\n",
        new="",
        tests=(_OF_BATCHER + "test_what_was_dropped_is_not_computed",),
    ),
    Defect(
        name="a number that is not finite is an answer",
        file=_BATCHER,
        old="[answer if is_finite(answer) else NotFinite(batch[0].call.name) for answer in answers]",
        new="answers",
        tests=(_OF_BATCHER + "test_a_number_that_is_not_finite_is_no_answer",),
    ),
    Defect(
        name="a large request is computed to its end before another one begins",
        file=_BATCHER,
        old="                turns[is_long] += each.tokens\n",
        new="",
        tests=(_OF_BATCHER + "test_a_small_request_comes_before_the_later_texts_of_a_large_one",),
    ),
    Defect(
        name="a long text is computed without a pause",
        file=_BATCHER,
        old="                self._turns.pass_on()\n",
        new="",
        tests=(_OF_BATCHER + "test_a_long_text_lets_others_compute_between_its_pieces",),
    ),
    Defect(
        name="a lack of memory is met by smaller and smaller batches",
        file=_BATCHER,
        old=' or (kind == "memory" and failures.lacked_memory)',
        new="",
        tests=(_OF_BATCHER + "test_a_batch_that_lacks_memory_is_computed_again_once_in_parts",),
    ),
    Defect(
        name="a page from elsewhere reads replies by a name that it makes resolve to this machine",
        file=_GATE,
        old="            if not self._service.hosts.allow(",
        new="            if False and not self._service.hosts.allow(",
        tests=(_OF_LIMITS + "test_a_foreign_host_is_refused",),
    ),
    Defect(
        name="fill-mask may be asked for any number of candidates",
        file="inference/server/middleware.py",
        old="    if masks * top_k > limits.candidates:",
        new="    if False:",
        tests=(_OF_LIMITS + "test_masks_times_candidates_are_bounded",),
    ),
    Defect(
        name="the server ends before it has answered what it accepted",
        file="inference/server/serving.py",
        old="            over = late or not self.service.in_progress\n",
        new="            over = True\n",
        tests=("inference/server/test_ending.py::test_accepted_requests_are_answered_and_new_ones_refused",),
    ),
    Defect(
        name="a slow header is waited for without an end",
        file="inference/server/serving.py",
        old="        if what is Waiting.HEADER:\n            self._alarm",
        new="        if what is None:\n            self._alarm",
        tests=("inference/server/test_connections.py::test_who_sends_too_slowly_is_told_and_closed",),
    ),
)
