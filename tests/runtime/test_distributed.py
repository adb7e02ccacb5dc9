import time

import pytest
import torch
from torch import nn

from albert.runtime.distributed import Ranks, process_group, replicate, sum_over_ranks, wait_for_all, world
from albert.runtime.errors import TryAgain

CPU = torch.device("cpu")


def test_without_a_launcher_there_is_one_process():
    assert world() == Ranks(rank=0, size=1, local_rank=0)
    assert world().is_first


def test_the_launcher_says_who_we_are(monkeypatch):
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert world() == Ranks(rank=3, size=4, local_rank=1)
    assert not world().is_first


def test_one_process_communicates_with_nobody():
    model = nn.Linear(2, 2)
    values = torch.tensor([1.0, 2.0])
    with process_group(CPU) as here:
        assert not torch.distributed.is_initialized()
        assert replicate(model, here, CPU) is model
        assert sum_over_ranks(values, here) is values
        wait_for_all(here)


def test_the_launcher_may_start_a_single_process(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    with process_group(CPU) as here:
        assert here == Ranks()


@pytest.fixture
def two_processes(monkeypatch):
    """One of two, as far as it can tell."""
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
def test_a_lost_peer_is_a_reason_to_try_again(two_processes, error):
    with pytest.raises(TryAgain, match="process 1: lost another process") as failure, process_group(CPU):
        raise error
    assert failure.value.exit_code == 75


@pytest.mark.parametrize("error", [KeyError("a"), RuntimeError("shape '[2, 3]' is invalid"), TryAgain("a", "b")])
def test_an_error_of_our_own_passes(two_processes, error):
    with pytest.raises(type(error)) as failure, process_group(CPU):
        raise error
    assert failure.value is error


WATCHED = """
import os, sys, time
import torch
from albert.runtime.distributed import process_group
with process_group(torch.device("cpu"), watch=True) as here:
    if sys.argv[1] == "dies" and here.rank == 1:
        os._exit(9)
    time.sleep(0 if sys.argv[1] == "ends" else 60)
"""


@pytest.mark.parametrize(("how", "codes"), [("dies", [75, 9]), ("ends", [0, 0])])
def test_a_process_that_waits_for_nothing_we_can_interrupt_ends_when_another_died(fork_server, tmp_path, how, codes):
    """As one does that waits for NCCL: here both sleep, which gloo does not interrupt either."""
    (tmp_path / "watched.py").write_text(WATCHED, encoding="utf-8")
    started = time.monotonic()
    ranks = fork_server.start_world([["python", str(tmp_path / "watched.py"), how]] * 2)
    assert [rank.finish() for rank in ranks] == codes
    assert time.monotonic() - started < 55
    assert ("process 0: lost process 1; the same command resumes" in ranks[0].printed) == (how == "dies")
