"""Where a broker is: streams to it by TCP, or by TLS with or without a certificate of the client."""

import socket
import ssl
import time
from pathlib import Path

import msgspec

from genus.errors import BusError
from genus.net._mqtt.address import MqttOptions

CONNECT_S = 5.0


class Endpoint(msgspec.Struct, frozen=True):
    """Opens streams to a broker."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, options: MqttOptions) -> "Endpoint":
        """The endpoint of an address; BusError if a certificate or key cannot be used."""
        return cls(options.host, options.port, _context(options) if options.tls else None)

    def connect(self) -> socket.socket:
        """A stream that does not block; OSError with the reason if there is none in five seconds."""
        give_up_at = time.monotonic() + CONNECT_S
        stream = socket.create_connection((self.host, self.port), CONNECT_S)
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                stream.settimeout(max(0.1, give_up_at - time.monotonic()))
                stream = self.tls.wrap_socket(stream, server_hostname=self.host)
            stream.setblocking(False)
        except OSError:
            stream.close()
            raise
        return stream


def _context(options: MqttOptions) -> ssl.SSLContext:
    """Verifies the broker by `ca`, or by the system's authorities; with `cert` this client can be verified too."""
    for file in (options.ca, options.cert, options.key):
        _check_readable(options, file)
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key, password="")
    except (ssl.SSLError, OSError, ValueError) as problem:
        raise BusError(f"{options.shown}: the certificates cannot be used: {problem}") from None
    return context


def _check_readable(options: MqttOptions, file: Path | None) -> None:
    try:
        if file is not None:
            file.open("rb").close()
    except OSError as problem:
        raise BusError(f"{options.shown}: {file} cannot be read: {problem.strerror}") from None


def reason_of(problem: OSError) -> str:
    """Why a stream could not be opened, for people."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not trusted: {problem.verify_message}"
    if isinstance(problem, TimeoutError):
        return f"no answer in {CONNECT_S:g} s"
    return problem.strerror or str(problem)
