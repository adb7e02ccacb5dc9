"""Which wheel of torch `make quickstart` installs."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


@pytest.fixture
def module(script, monkeypatch):
    module = script("torch_index")
    monkeypatch.delenv("CUDA", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    return module


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def test_without_a_gpu_it_is_the_wheel_for_cpus(module, monkeypatch):
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(module, "CPU_INDEX", index)
        assert module.choose()[0] == f"--extra-index-url {index}"


def test_an_index_that_cannot_be_reached_is_left_out(module, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(module, "CPU_INDEX", f"http://127.0.0.1:{closed.getsockname()[1]}")
        option, why = module.choose()
    assert option == "" and "127.0.0.1" in why


def test_a_gpu_cuda_and_macos_take_the_usual_wheel(module, monkeypatch):
    monkeypatch.setattr(module, "is_reachable", lambda address: True)
    monkeypatch.setenv("CUDA", "1")
    assert module.choose()[0] == ""
    monkeypatch.delenv("CUDA")
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    assert module.choose()[0] == ""
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    monkeypatch.setattr("sys.platform", "darwin")
    assert module.choose()[0] == ""


def test_a_failing_nvidia_smi_is_no_gpu(script, tmp_path, monkeypatch):
    module = script("torch_index")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not module.has_gpu()
    smi = tmp_path / "nvidia-smi"
    for text, found in (("exit 9", False), ("echo 'GPU 0: Some (UUID: x)'", True), ("echo 'No devices'", False)):
        smi.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        smi.chmod(0o755)
        assert module.has_gpu() is found
