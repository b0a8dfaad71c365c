"""A store with the protocol of S3 on this machine, and the environment that leads to it.

It answers one request after the other: moto looks for an object and creates it in two steps, which must not be mixed.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

_PROGRAM = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
"""

ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What clients find in the environment; the endpoint is that of the server."""


@contextmanager
def object_server(bucket: str) -> Iterator[None]:
    """Run a server with an empty bucket; within the block, the environment of this process leads to it."""
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            urlopen(Request(f"{endpoint}/{bucket}", method="PUT")).close()
            with pytest.MonkeyPatch.context() as changed:
                for name, value in (ENVIRONMENT | {"AWS_ENDPOINT_URL": endpoint}).items():
                    changed.setenv(name, value)
                yield
        finally:
            server.kill()
