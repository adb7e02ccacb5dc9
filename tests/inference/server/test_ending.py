"""On shutdown the server answers accepted requests, refuses new ones, and reports those that it did not answer."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.inference.server.running_servers import in_background, wait_until

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


def test_command_serves_until_sigterm(saved, config):
    path = saved(AlbertForPreTraining(config))
    with subprocess.Popen(
        [sys.executable, "-m", "albert", "serve", str(path), "--port", "0", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            address = process.stderr.readline().split("listening at ")[1].split(",")[0]
            assert address.startswith("http://127.0.0.1:")
            assert "fill masks" in process.stderr.readline()
            body = json.dumps({"texts": ["the [MASK]"]}).encode()
            request = urllib.request.Request(f"{address}/fill-mask", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as reply:
                assert len(json.load(reply)["results"][0][0]) == 5
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr.read() == "albert serve: stopped: every accepted request was answered\n"
        finally:
            process.kill()
