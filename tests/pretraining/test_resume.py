"""A killed run ends with the bytes of an uninterrupted one.

The trials `random-kills` and `signals` (tests/reliability/test_interruptions.py) interrupt runs in every phase.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from dev.reliability.runs import final_files, journal_of

from albert.checkpoints.model_directory import open_model
from albert.runtime.json_files import save_versioned
from albert.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def command(tiny_recipe, tiny_corpus, tmp_path_factory):
    """The arguments of the command for a run."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    schedule = replace(tiny_recipe.schedule, total_steps=12)
    recipe = replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=3)
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    save_versioned(path, recipe)
    return lambda run: ["pretrain", str(path), "--data", str(tiny_corpus), "--output", str(run), "--device", "cpu"]


@pytest.fixture(scope="module")
def reference(fork_server, command, tmp_path_factory):
    """An uninterrupted run."""
    directory = tmp_path_factory.mktemp("reference") / "run"
    run = fork_server.start(command(directory))
    assert run.finish() == 0, run.printed
    return directory


def test_a_killed_process_resumes_to_the_same_bytes(command, reference, fork_server, tmp_path):
    """In a process of its own, as a user starts it."""
    directory = tmp_path / "run"
    words = [sys.executable, "-m", "albert", *command(directory)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        process.stderr.readline()  # progress of the training
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert fork_server.start(command(directory)).finish() == 0
    assert final_files(directory) == final_files(reference)


def test_a_checkpoint_is_a_model_directory(reference):
    for _, checkpoint in RunFolder(reference).checkpoints():
        opened = open_model(checkpoint, "pretraining")
        report = opened.loading_report
        assert not (report.missing or report.unexpected or report.newly_initialised)
        assert opened.extra["sentence_objective"] == "sop"


def test_the_same_command_on_a_finished_run_changes_nothing(fork_server, command, reference):
    before = final_files(reference), journal_of(reference)
    assert fork_server.start(command(reference)).finish() == 0
    assert (final_files(reference), journal_of(reference)) == before
