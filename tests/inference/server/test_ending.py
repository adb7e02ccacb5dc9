"""On shutdown the server answers accepted requests, refuses new ones, and reports those that it did not answer."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.inference.server.running_servers import in_background, wait_until

from albert.cli.main import run
from albert.inference.server.serving import NotDrained
from albert.model.albert import AlbertForPreTraining

TEXT = {"texts": ["the ship"]}


def test_accepted_requests_are_answered_and_no_more_are_accepted(classifier, blocked, serve):
    server = serve(classifier)
    with in_background(*(lambda: server.post("/classify", TEXT) for _ in range(5))) as replies:
        wait_until(lambda: server.service.in_progress == 5)
        with server.connected():  # a client that sends nothing does not delay the end
            server.server.handle_exit(signal.SIGTERM, None)
            time.sleep(0.5)  # the server looks ten times a second whether it should end
            with pytest.raises(ConnectionRefusedError):
                server.post("/classify", TEXT)
            blocked.released.set()
    assert [each.status for each in replies] == [200] * 5
    server.thread.join(10)
    assert not server.thread.is_alive() and server.server.failure is None


def test_unanswered_requests_are_reported(classifier, blocked, serve):
    server = serve(classifier, drain_seconds=0.3)
    with in_background(lambda: server.post("/classify", TEXT)) as replies:
        wait_until(lambda: server.service.in_progress == 1)
        server.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: server.server.failure)
    failure = server.server.failure
    assert isinstance(failure, NotDrained) and failure.exit_code == 143 and "1 requests" in str(failure)
    assert replies[0].status == 503
    blocked.released.set()


SLOW_SERVER = """
import sys, time
from albert.commands.serve import serve_main
from albert.inference.predictor import Predictor

def replies(predictor, pipeline, examples, replies=Predictor.replies):
    print("computing", file=sys.stderr, flush=True)
    time.sleep(1)
    return replies(predictor, pipeline, examples)

Predictor.replies = replies
sys.exit(serve_main(sys.argv[1:]))
"""


@contextmanager
def slow_server(path: Path, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves a model, each batch in a second and with a line of output, and its address."""
    command = [sys.executable, "-c", SLOW_SERVER, str(path), "--port", "0", "--threads", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **settings) as process:
        try:
            line = next(line for line in process.stderr if "listening at " in line)
            yield process, line.split("listening at ")[1].split(",")[0]
        finally:
            process.kill()


def fill_mask(address: str) -> int:
    """The number of results of a request."""
    body = json.dumps({"texts": ["the [MASK]"]}).encode()
    request = urllib.request.Request(f"{address}/fill-mask", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return len(json.load(reply)["results"])


@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGHUP, signal.SIGHUP),  # as from a closed terminal
        (signal.SIGUSR1,),
        (signal.SIGTERM, signal.SIGHUP),  # as from systemd with SendSIGHUP
    ],
)
def test_requests_in_flight_are_answered_after_a_signal(numbers, saved, config):
    with slow_server(saved(AlbertForPreTraining(config))) as (process, address), ThreadPoolExecutor() as threads:
        reply = threads.submit(fill_mask, address)
        assert next(process.stderr) == "computing\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.2)  # two signals at once are one
        assert reply.result(30) == 1
        assert process.wait(30) == 0
        assert process.stderr.read() == "albert: stopped: every accepted request was answered\n"


def test_ignored_hangup_stays_ignored(saved, config):
    def ignore() -> None:  # as nohup does
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with slow_server(saved(AlbertForPreTraining(config)), preexec_fn=ignore) as (process, address):
        process.send_signal(signal.SIGHUP)
        assert fill_mask(address) == 1 and process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_command_that_cannot_open_its_model_does_not_say_that_it_listens(saved, config):
    path = saved(AlbertForPreTraining(config))
    (path / "model.safetensors").write_bytes(b"cut")
    command = [sys.executable, "-m", "albert", "serve", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    first, error = done.stderr.splitlines()
    assert done.returncode != 0 and first == f"albert: loading {path}"
    assert error.startswith(f"albert: error: {path}/model.safetensors: ")


def test_command_serves_until_sigterm(saved, config):
    path = saved(AlbertForPreTraining(config))
    with subprocess.Popen(
        [sys.executable, "-m", "albert", "serve", str(path), "--port", "0", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stderr.readline() == f"albert: loading {path}\n"
            line = next(line for line in process.stderr if "listening at " in line)
            address = line.split("listening at ")[1].split(",")[0]
            assert address.startswith("http://127.0.0.1:") and "fill masks" in line
            body = json.dumps({"texts": ["the [MASK]"]}).encode()
            request = urllib.request.Request(f"{address}/fill-mask", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as reply:
                assert len(json.load(reply)["results"][0][0]) == 5
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr.read() == "albert: stopped: every accepted request was answered\n"
        finally:
            process.kill()


def test_every_line_of_the_log_begins_as_those_of_other_commands(saved, config, monkeypatch, capsys):
    """With what another precision would gain; a request that is not answered is an error."""
    listening = []

    def end(limits, open_predictor, listener, drain_seconds, started, hosts):
        started(open_predictor())
        listening.append(listener)
        raise NotDrained(signal.SIGTERM, 2)

    monkeypatch.setattr("albert.inference.server.serving.serve", end)
    monkeypatch.setattr("albert.runtime.devices.precision_advice", lambda device: "--precision bf16 (twice as fast)")
    monkeypatch.setattr("os._exit", sys.exit)
    path = saved(AlbertForPreTraining(config))
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(path), "--port", "0"])
    listening[0].close()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 128 + signal.SIGTERM
    assert lines[0] == f"albert: loading {path}"
    assert "albert: note: faster: --precision bf16 (twice as fast)" in lines
    assert lines[-2].startswith("albert: listening at http://127.0.0.1:")
    assert lines[-1] == "albert: error: server: ended with 2 requests unanswered; raise --drain-timeout"
    assert all(line.startswith("albert: ") for line in lines)
