"""A run that is killed again and again, at any moment, ends with the bytes of the run that was left alone."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from reliability.interruptions import PHASES, Interrupter
from reliability.runs import final_files, journal_of

from albert.checkpoints.model_directory import open_model
from albert.runtime.json_files import save_json
from albert.runtime.manifest import verify_directory
from albert.training.run_folder import RunFolder

KILLS = 2 * len(PHASES)
"""The trial `random-kills` of the reliability programme does the same with two hundred."""


@pytest.fixture(scope="module")
def arguments_for(tiny_recipe, tiny_corpus, tmp_path_factory):
    """The words of the command for a run's directory."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    schedule = replace(tiny_recipe.schedule, total_steps=48)  # five kills cost 16 steps at most
    recipe = replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=3)
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    save_json(path, recipe)
    return lambda run: ["pretrain", str(path), "--data", str(tiny_corpus), "--output", str(run), "--device", "cpu"]


@pytest.fixture(scope="module")
def undisturbed(fork_server, arguments_for, tmp_path_factory):
    """The run that nobody killed, and its directory."""
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    run = fork_server.start(arguments_for(directory))
    assert run.finish() == 0, run.printed
    return run, directory


@pytest.fixture
def reference(undisturbed):
    """The directory alone."""
    return undisturbed[1]


def test_a_run_killed_at_any_moment_ends_bit_identical(fork_server, undisturbed, arguments_for, reference, tmp_path):
    directory = tmp_path / "run"
    killer = Interrupter(fork_server, undisturbed[0], random.Random())
    died_in = []
    for turn in range(KILLS):
        met = killer.interrupt(arguments_for(directory), PHASES[turn % len(PHASES)], signal.SIGKILL)
        died_in.append(met.phase if met.code == -signal.SIGKILL else None)
        for _, checkpoint in RunFolder(directory).checkpoints():
            verify_directory(checkpoint)
    assert None not in died_in, f"a run ended before its kill: {died_in}"
    assert fork_server.start(arguments_for(directory)).finish() == 0
    assert final_files(directory) == final_files(reference)
    assert journal_of(directory) == journal_of(reference)
    assert not [entry for entry in directory.rglob(".*") if entry.name != ".lock"]


def test_a_run_killed_in_a_process_of_its_own_ends_bit_identical(arguments_for, reference, fork_server, tmp_path):
    """Without the fork server, as a user starts it."""
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "albert", *arguments_for(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        process.stderr.readline()  # the first line of progress: it trains
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert fork_server.start(arguments_for(directory)).finish() == 0
    assert final_files(directory) == final_files(reference)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_stopped_by_a_signal_ends_bit_identical(fork_server, arguments_for, reference, tmp_path, number, code):
    run = fork_server.start(arguments_for(tmp_path / "run"))
    run.wait_until(lambda: run.phase == "save")
    run.signal(number)
    assert run.finish() == code, run.printed
    assert RunFolder(tmp_path / "run").newest_checkpoint() is not None
    assert fork_server.start(arguments_for(tmp_path / "run")).finish() == 0
    assert final_files(tmp_path / "run") == final_files(reference)
    assert journal_of(tmp_path / "run") == journal_of(reference)


def test_a_checkpoint_can_be_opened_as_a_model(reference):
    for _, checkpoint in RunFolder(reference).checkpoints():
        opened = open_model(checkpoint, "pretraining")
        report = opened.loading_report
        assert not (report.missing or report.unexpected or report.newly_initialised)
        assert opened.extra["sentence_objective"] == "sop"


def test_the_same_command_on_a_finished_run_changes_nothing(fork_server, arguments_for, reference):
    before = final_files(reference), journal_of(reference)
    assert fork_server.start(arguments_for(reference)).finish() == 0
    assert (final_files(reference), journal_of(reference)) == before
