"""Addresses are relative, so that a reverse proxy can serve them below a path."""

import json
import re
import urllib.request
from importlib.resources import files
from urllib.parse import urljoin

import pytest
from tests.inference.server.running_servers import proxy

TEXT = {"texts": ["the ship"]}


@pytest.mark.parametrize("file", ["index.html", "documentation.html"])
def test_links_of_the_pages_are_relative(file):
    text = files("albert.inference.server").joinpath("page", file).read_text()
    links = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert len(links) >= 4 and not [link for link in links if link.startswith("/") or ":" in link]


def test_every_file_and_address_is_found_below_a_path(classifier, serve):
    server = serve(classifier)
    with proxy(server.port, "/models/") as port:

        def request(url: str, body: bytes | None = None) -> tuple[int, str]:
            sent = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(sent, timeout=60) as reply:
                return reply.status, reply.read().decode()

        base = f"http://127.0.0.1:{port}"
        for page in ("/models/", "/models/docs"):
            _, text = request(base + page)
            links = re.findall(r'(?:href|src)="([^#"]+)"', text)
            assert links and {request(urljoin(base + page, link))[0] for link in links} == {200}
        document_url = f"{base}/models/openapi.json"
        document = json.loads(request(document_url)[1])
        (server_url,) = [urljoin(document_url, each["url"]) for each in document["servers"]]
        assert server_url == f"{base}/models/"
        assert request(server_url.rstrip("/") + "/classify", json.dumps(TEXT).encode())[0] == 200


@pytest.mark.parametrize("address", ["/classify/", "/docs/", "/model/"])
def test_slash_at_the_end_is_answered_in_one_line_without_a_redirect(address, classifier, serve):
    server = serve(classifier)
    for reply in (server.request("GET", address), server.post(address, TEXT)):
        assert reply.status == 404 and "location" not in reply.headers
        assert reply.json == {"error": "no such address; write it without the slash at its end"}
