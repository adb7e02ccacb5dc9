import signal

import pytest

from albert.runtime import errors
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, did_you_mean
from albert.training.run_folder import Stopped

CODES = {
    "UsageError": 2,
    "Diverged": 3,
    "CheckFailed": 4,
    "DamagedData": 65,
    "MissingInput": 66,
    "Unavailable": 69,
    "OutOfResources": 71,
    "CannotCreate": 73,
    "WriteFailed": 74,
    "TryAgain": 75,
    "InvalidConfiguration": 78,
}


def test_exit_codes_are_those_documented():
    assert {
        kind.__name__: kind.exit_code for kind in AlbertError.__subclasses__() if kind.__module__ == errors.__name__
    } == CODES
    assert {name for name in vars(errors) if name in CODES} == set(CODES)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 143)])
def test_a_run_that_was_stopped_ends_like_the_signal(number, code):
    assert Stopped("run", number).exit_code == code


def test_an_error_is_one_line_of_subject_reason_and_remedy():
    assert str(MissingInput("data", "no such directory")) == "data: no such directory"
    error = MissingInput("data", "no such directory", "run albert prepare")
    assert str(error) == "data: no such directory; run albert prepare"
    assert (error.subject, error.why, error.remedy) == ("data", "no such directory", "run albert prepare")


def test_a_near_miss_is_offered_and_else_everything_known():
    assert did_you_mean("stepz", ["steps", "seed"]) == "did you mean 'steps'?"
    assert did_you_mean("zzz", ["steps", "seed"]) == "known: steps, seed"
    assert did_you_mean("zzz", []) == ""


def test_an_error_that_quotes_a_file_is_one_line():
    error = DamagedData("a\nb", "holds \x1b[2J and \u2028", "look\r")
    assert str(error) == r"a\nb: holds \x1b[2J and \u2028; look\r"


def test_a_long_list_of_what_is_known_is_cut_with_its_count():
    words = [f"option-{number:03d}" for number in range(100)]
    said = did_you_mean("nothing alike", words)
    assert said.startswith("known: option-000, option-001, ") and said.endswith(" and 87 more")
    assert len(said) < 200
