"""A run that is killed ends with the bytes of the run that was left alone.

The trials `random-kills` and `signals` (tests/reliability/test_interruptions.py) interrupt runs in every phase.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from reliability.runs import final_files, journal_of

from albert.checkpoints.model_directory import open_model
from albert.runtime.json_files import save_json
from albert.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def arguments_for(tiny_recipe, tiny_corpus, tmp_path_factory):
    """The words of the command for a run's directory."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    schedule = replace(tiny_recipe.schedule, total_steps=24)
    recipe = replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=3)
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    save_json(path, recipe)
    return lambda run: ["pretrain", str(path), "--data", str(tiny_corpus), "--output", str(run), "--device", "cpu"]


@pytest.fixture(scope="module")
def reference(fork_server, arguments_for, tmp_path_factory):
    """The directory of the run that nobody killed."""
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    run = fork_server.start(arguments_for(directory))
    assert run.finish() == 0, run.printed
    return directory


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
