"""Certificates for tests of TLS, made by the command `openssl`: an authority of its own, a server, and users."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.programs import need


class Certificate(NamedTuple):
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates that last a day."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        need("openssl")
        self._folder = folder
        self.root, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        use = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        files = ("-keyout", self._key, "-out", self.root)
        _openssl("req", "-x509", *_NEW_KEY, *files, "-subj", f"/CN={name}", "-days", 1, *use)

    def issue(self, name: str) -> Certificate:
        """A certificate whose common name is `name`, for localhost and 127.0.0.1."""
        request, made = (
            self._folder / f"{name}.csr",
            Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key"),
        )
        extensions = self._folder / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        _openssl("req", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        signed_by = ("-CA", self.root, "-CAkey", self._key, "-CAcreateserial", "-days", 1, "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, "-out", made.certificate, *signed_by)
        return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
