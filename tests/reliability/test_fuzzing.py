"""Mutated inputs of every parser, a few of each, and all that ever failed, from tests/reliability/regressions."""

import os
import pickle
import random
import signal
import time
from pathlib import Path

import pytest
from dev.reliability import fuzzing
from dev.reliability.confined import Limits, confined
from dev.reliability.fuzzing import BY_NAME, PARSERS, Parser, mutated
from dev.reliability.material import Material
from dev.reliability.trials import Tries

REGRESSIONS = Path(__file__).resolve().parent / "regressions"
KEPT = sorted(path for path in REGRESSIONS.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def material(tmp_path_factory) -> Material:
    return Material(tmp_path_factory.mktemp("fuzzing") / "material")


@pytest.mark.trial
def test_every_parser_ends_in_one_error_of_ours_or_an_answer(tmp_path):
    count = fuzzing.fuzzing.counts["quick"]
    outcome = Tries(count, 0, tmp_path)
    fuzzing.fuzzing.run(outcome)
    assert outcome.failures == []
    assert outcome.tried == count >= 2 * len(PARSERS)
    assert outcome.details["refused"] > 0 < outcome.details["read"]


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_failed_is_one_error_of_ours_or_an_answer(kept, material, tmp_path):
    parser = BY_NAME[kept.parent.name]
    fuzzing.arrange(parser, material, tmp_path / "here")
    path = tmp_path / "here" / parser.file
    path.write_bytes(kept.read_bytes())
    limits = Limits(tmp_path, seconds=20)
    assert [verdict.failure for verdict in confined(lambda _: fuzzing.read_watched(parser, path), 1, limits)] == [""]


def test_there_are_regressions_of_known_parsers():
    assert KEPT
    assert {path.parent.name for path in KEPT} <= set(BY_NAME)


@pytest.mark.parametrize("form", sorted({parser.form for parser in PARSERS}))
def test_a_number_is_a_mutation_and_mutations_differ(form, material):
    samples = next(parser.samples(material) for parser in PARSERS if parser.form == form)
    made = [mutated(samples, form, random.Random(number)) for number in range(20)]
    assert made == [mutated(samples, form, random.Random(number)) for number in range(20)]
    assert len(set(made)) > 10


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda path: int(path.read_text()), "builtins.ValueError"),
        (lambda path: bytearray(1 << 40), "builtins.MemoryError"),
        (lambda path: (path.parent.parent.parent.parent / "elsewhere").write_text("x"), "open for writing"),
        (lambda path: pickle.loads(b"cos\nsystem\n."), "pickle.find_class"),
        (lambda path: os.kill(os.getpid(), signal.SIGKILL), "the process ended with -9"),
        (lambda path: time.sleep(60), "it took longer than 1 s"),
    ],
)
def test_a_parser_that_misbehaves_is_caught(material, tmp_path, read, why):
    careless = Parser("careless", "a.txt", "text", lambda material: [b"no number\n"], read)
    tries = fuzzing.Mutations(material, tmp_path / "deep" / "deeper", 0, [careless])
    (verdict,) = confined(tries.work, 1, Limits(tmp_path / "deep" / "deeper", seconds=1))
    assert why in verdict.failure
