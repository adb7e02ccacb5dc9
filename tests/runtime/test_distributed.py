"""Process groups, lost peers, and the check that all ranks have the same settings."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import albert
from albert.runtime.distributed import (
    Ranks,
    code_fingerprint,
    process_group,
    replicate,
    sum_over_ranks,
    wait_for_all,
    world,
)
from albert.runtime.errors import TryAgain

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, Ranks(rank=0, size=1, local_rank=0)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Ranks()),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Ranks(rank=3, size=4, local_rank=1)),
    ],
)
def test_ranks_are_those_that_the_launcher_set(monkeypatch, environment, ranks):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert world() == ranks
    assert world().is_first == (ranks.rank == 0)


def test_single_process_needs_no_process_group():
    model, values = nn.Linear(2, 2), torch.tensor([1.0, 2.0])
    with process_group(CPU) as ranks:
        assert not torch.distributed.is_initialized()
        assert replicate(model, ranks, CPU) is model
        assert sum_over_ranks(values, ranks) is values
        wait_for_all(ranks)


@pytest.fixture
def second_of_two(monkeypatch):
    """Set the environment of rank 1 of 2, without a process group."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:20372: Connection reset by peer. GLHF!"),
        RuntimeError("[gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:20372"),
        RuntimeError("[gloo/transport/tcp/pair.cc:300] writev [127.0.0.1]:20372: Broken pipe"),
        RuntimeError("[gloo/transport/tcp/pair.cc:391] Socket closed [127.0.0.1]:20372"),
        RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation"),
        torch.distributed.DistNetworkError("The client socket has failed to connect"),
    ],
)
def test_lost_peer_raises_try_again(second_of_two, error):
    with pytest.raises(TryAgain, match="process 1: lost another process") as failure, process_group(CPU):
        raise error
    assert failure.value.exit_code == 75


@pytest.mark.parametrize("error", [KeyError("a"), RuntimeError("shape '[2, 3]' is invalid"), TryAgain("a", "b")])
def test_other_errors_pass_unchanged(second_of_two, error):
    with pytest.raises(type(error)) as failure, process_group(CPU):
        raise error
    assert failure.value is error


WATCHED = """
import os, sys, time
import torch
from albert.runtime.distributed import process_group
with process_group(torch.device("cpu"), watch=True) as ranks:
    if sys.argv[1] == "dies" and ranks.rank == 1:
        os._exit(9)
    time.sleep(0 if sys.argv[1] == "ends" else 60)
"""


@pytest.mark.parametrize(("how", "codes"), [("dies", [75, 9]), ("ends", [0, 0])])
def test_process_that_cannot_be_interrupted_ends_when_its_peer_dies(fork_server, tmp_path, how, codes):
    """Both sleep for a minute, which gloo does not interrupt either, as in a wait for NCCL."""
    (tmp_path / "watched.py").write_text(WATCHED, encoding="utf-8")
    ranks = fork_server.start_world([["python", str(tmp_path / "watched.py"), how]] * 2)
    assert [rank.finish() for rank in ranks] == codes
    assert ("process 0: lost process 1; the same command resumes" in ranks[0].printed) == (how == "dies")


def test_code_fingerprint_covers_every_source_file(monkeypatch, tmp_path):
    root = tmp_path / "albert"
    shutil.copytree(Path(albert.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    before = code_fingerprint()
    monkeypatch.setattr(albert, "__file__", str(root / "__init__.py"))
    assert code_fingerprint() == before
    with open(root / "model" / "attention.py", "a", encoding="utf-8") as file:
        file.write("\n")
    assert code_fingerprint() != before
