"""Addresses of MQTT brokers: `mqtt://[user:password@]host[:port]/REALM?option=value&...`, and `mqtts://` with TLS.

`Endpoint` opens streams to the broker of an address.
"""

import socket
import ssl
import time
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from genus.bus.types import Overflow
from genus.errors import BusError
from genus.model import nanoseconds
from genus.net._addresses import (
    RECEIVE_OVERFLOW,
    SEND_OVERFLOW,
    NetOptions,
    Reader,
    Several,
    matching,
    path,
    read_options,
    whole,
)

PORT: Final = 1883
TLS_PORT: Final = 8883
DEFAULT_REALM: Final = "genus"
CONNECT_S: Final = 5.0
KEPT_SESSION_S: Final = 3600
_NAME: Final = "1 to 64 letters, digits or any of _ . -"
_read_realm: Final = matching(r"[A-Za-z0-9_-]{1,64}", _NAME)
_read_session: Final = matching(r"[A-Za-z0-9_.-]{1,64}", _NAME)
_read_sparkplug_name: Final = matching(r"[^+#/*\0]+", "a name of Sparkplug, which has none of + # / *")


class Secret(msgspec.Struct, frozen=True):
    """A text that appears in no message."""

    text: str

    def __repr__(self) -> str:
        return "Secret(...)"


def _read_group(what: str, text: str) -> tuple[str, ...]:
    """Return the group, or group and edge node, that `sparkplug=` names."""
    names = tuple(text.split("/"))
    if len(names) > 2 or (len(names) == 2 and "*" in names):
        raise BusError(f"{what} is {text!r}; write a group, * for all of them, or group/node")
    return tuple(name if name == "*" else _read_sparkplug_name(what, name) for name in names)


def _whole_seconds(most: int) -> Reader:
    """Whole seconds, rounded up, of which MQTT can say at most so many."""
    return lambda what, text: min(-(-nanoseconds(text, what, error=BusError) // 1_000_000_000), most)


class MqttOptions(NetOptions, frozen=True):
    """What an address says, with the defaults; without `session`, the client id is random."""

    host: str
    port: int
    realm: str = DEFAULT_REALM
    tls: bool = False
    username: str | None = None
    password: Secret | None = None
    password_file: Annotated[Path | None, path, "a file with the password of the user"] = None
    qos: Annotated[int, whole(0, 1), "the highest QoS that is used"] = 1
    session: Annotated[str | None, _read_session, "the client id of a session that the broker keeps"] = None
    session_file: Annotated[Path | None, path, "remembers what was handled of the session"] = None
    session_expires_s: Annotated[int, _whole_seconds(0xFFFF_FFFF), "how long after the connection it is kept"] = 0
    keep_alive_s: Annotated[int, _whole_seconds(0xFFFF), "how long silence may last"] = 10
    ca: Annotated[Path | None, path, "the authority that certifies the broker"] = None
    cert: Annotated[Path | None, path, "the certificate of this client"] = None
    key: Annotated[Path | None, path, "the key of this certificate"] = None
    capacity: Annotated[int, whole(1), "packets that wait to be sent"] = 10_000
    overflow: Annotated[Overflow, SEND_OVERFLOW, "when there are more"] = "block"
    receive_capacity: Annotated[int, whole(1), "packets that wait for handlers"] = 100_000
    receive_overflow: Annotated[Overflow, RECEIVE_OVERFLOW, "when there are more"] = "block"
    map: Annotated[tuple[Path, ...], Several(path), "files about topics of others"] = ()
    sparkplug: Annotated[tuple[str, ...], _read_group, "a group, or one and the edge node that this process is"] = ()
    sparkplug_host: Annotated[str, _read_sparkplug_name, "the id of the primary host"] = ""

    @property
    def shown(self) -> str:
        """The address for messages: without user, password and options.

        >>> parse_mqtt_address("//ann:secret@example.org/city").shown
        'mqtt://example.org:1883/city'
        """
        return f"mqtt{'s' if self.tls else ''}://{_bracketed(self.host)}:{self.port}/{self.realm}"


def parse_mqtt_address(rest: str, tls: bool = False) -> MqttOptions:
    """Return the options in an address, from what stands behind `mqtt:` or, with `tls`, behind `mqtts:`.

    Raises:
        BusError: A part of the address is wrong, or an option is unknown. The message has no password.

    >>> options = parse_mqtt_address("//ann:secret@example.org/city?qos=0")
    >>> options.host, options.port, options.realm, options.qos, options.password
    ('example.org', 1883, 'city', 0, Secret(...))
    >>> parse_mqtt_address("//localhost?qso=1")
    Traceback (most recent call last):
    genus.errors.BusError: mqtt://localhost: there is no option 'qso'; did you mean 'qos'? known are pass...
    """
    scheme = "mqtts" if tls else "mqtt"
    front, _, query = rest.partition("?")
    url, port = _split(scheme, front)
    place = f"{scheme}://{_bracketed(url.hostname or '')}"
    given = read_options(MqttOptions, place, query)
    refused = next((name for name in ("ca", "cert", "key") if name in given and not tls), None)
    if refused is not None:
        raise BusError(f"{place}: {refused} is for mqtts://")
    if "key" in given and "cert" not in given:
        raise BusError(f"{place}: a key needs cert, the certificate that it belongs to")
    if "session" in given:
        given.setdefault("session_expires_s", KEPT_SESSION_S)
    elif "session_file" in given:
        raise BusError(f"{place}: session_file belongs to a session; give session=NAME, too")
    password = unquote(url.password or "")
    if "password_file" in given:
        if password or not url.username:
            raise BusError(f"{place}: password_file is for {scheme}://USER@HOST, with no password beside it")
        password = _read_password(place, given["password_file"])
    return MqttOptions(
        host=url.hostname or "",
        port=port or (TLS_PORT if tls else PORT),
        realm=_read_realm(f"{place}: the realm", unquote(url.path.strip("/")) or DEFAULT_REALM),
        tls=tls,
        username=unquote(url.username) if url.username else None,
        password=Secret(password) if password else None,
        **given,
    )


def _read_password(place: str, file: Path) -> str:
    try:
        return file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is no text"
        raise BusError(f"{place}: password_file={file} cannot be read: {why}") from None


def _split(scheme: str, front: str) -> tuple[SplitResult, int | None]:
    form = f"write {scheme}://host:port/realm?option=value"
    try:
        url = urlsplit(f"{scheme}:{front}")
        port = url.port
    except ValueError:
        raise BusError(f"{scheme}: host or port is not valid; {form}") from None
    if not url.hostname:
        raise BusError(f"{scheme}: the address has no host; {form}")
    return url, port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# -- streams -----------------------------------------------------------------------------------------------------------


class Endpoint(msgspec.Struct, frozen=True):
    """Opens streams to a broker."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, options: MqttOptions) -> "Endpoint":
        """Return the endpoint of an address; BusError if a certificate or key cannot be used."""
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


_TLS_REASONS: Final = {
    "CERTIFICATE_REQUIRED": "the server asks for a certificate of this client; give cert= and key=",
    "HANDSHAKE_FAILURE": "the server refused the handshake of TLS; it may ask for a certificate: give cert= and key=",
    "UNKNOWN_CA": "the server does not trust the certificate of this client: another authority signed it",
    "BAD_CERTIFICATE": "the server does not accept the certificate of this client",
    "CERTIFICATE_UNKNOWN": "the server does not accept the certificate of this client",
    "UNSUPPORTED_CERTIFICATE": "the server does not accept the kind of certificate of this client",
    "CERTIFICATE_EXPIRED": "the certificate of this client has expired",
    "CERTIFICATE_REVOKED": "the certificate of this client was revoked",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS here; another port does, or write mqtt:// instead",
}
"""What alerts of TLS mean, by the end of the name that OpenSSL has for them."""


def reason_of(problem: OSError) -> str:
    """Why a stream could not be opened, or broke, for people."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not trusted: {problem.verify_message}; ca= names the authority"
    if isinstance(problem, ssl.SSLEOFError):
        return "the server closed the connection during the handshake of TLS; it may not speak TLS here"
    if isinstance(problem, ssl.SSLError):
        reason = problem.reason or ""
        return next((text for end, text in _TLS_REASONS.items() if reason.endswith(end)), f"TLS failed: {reason}")
    if isinstance(problem, TimeoutError):
        return f"no answer in {CONNECT_S:g} s"
    return problem.strerror or str(problem)
