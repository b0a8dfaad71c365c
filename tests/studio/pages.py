"""A page without a browser: requests to a Studio, and its streams read line by line."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

from genus.studio import Studio


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    studio: Studio, path: str, method: str = "GET", body: object = None, headers: dict[str, str] | None = None
) -> Answer:
    """One request; POSTs carry the header that changes need unless `headers` says otherwise."""
    connection = HTTPConnection(studio.host, studio.port, timeout=10)
    sent = {"X-Genus-Studio": "1"} if headers is None and method == "POST" else headers or {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def messages(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """The server-sent events of a stream: kind and data."""
    kind = ""
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


@contextmanager
def stream(studio: Studio, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The messages of a stream while the block runs."""
    connection = HTTPConnection(studio.host, studio.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    try:
        yield messages(answer)
    finally:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
        answer.close()
        connection.close()


class Page:
    """State: the rows of a page that applies what a stream of tables sends."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.snapshots = self.changes = 0

    def take(self, kind: str, data: Any) -> None:
        if kind == "snapshot":
            self.snapshots += 1
            self.tables = data["tables"]
            return
        self.changes += 1
        for table, rows in data.get("set", {}).items():
            for key, cells in rows.items():
                self.tables[table].setdefault(key, {}).update(cells)
        for table, keys in data.get("gone", {}).items():
            for key in keys:
                del self.tables[table][key]
