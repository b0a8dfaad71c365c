"""Addresses of MQTT brokers: `mqtt://[user:password@]host[:port]/REALM?option=value&...`, and `mqtts://` with TLS.

`Endpoint` opens streams to the broker of an address.
"""

import re
import socket
import ssl
import time
from pathlib import Path
from typing import Final, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from genus.bus._queue import WhenFull
from genus.errors import BusError, did_you_mean
from genus.model import nanoseconds

PORT: Final = 1883
TLS_PORT: Final = 8883
DEFAULT_REALM: Final = "genus"
CONNECT_S: Final = 5.0
KEPT_SESSION_S: Final = 3600
_REALM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SESSION: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SPAN_OPTIONS: Final = ("session_expires", "keep_alive")
_TLS_OPTIONS: Final = ("ca", "cert", "key")
OPTIONS: Final = (
    *("qos", "session", "session_file", *_SPAN_OPTIONS, *_TLS_OPTIONS),
    *("capacity", "full", "receive_capacity", "receive_full", "map", "sparkplug", "sparkplug_host"),
)


class Secret(msgspec.Struct, frozen=True):
    """A text that appears in no message."""

    text: str

    def __repr__(self) -> str:
        return "Secret(...)"


class MqttOptions(msgspec.Struct, frozen=True):
    """What an address says, with the defaults.

    `session` is a client id whose session the broker keeps for `session_expires_s` after the connection ended; without
    it, the client id is random. `session_file` remembers what was handled of a session. `capacity` packets wait to be
    sent, `receive_capacity` to be handled; `full` and `receive_full` say what happens with more. `map` are files about
    topics of others. `sparkplug` is a group, or a group and the edge node that this process is, and `sparkplug_host`
    the id of the primary host.
    """

    host: str
    port: int
    realm: str = DEFAULT_REALM
    tls: bool = False
    user: str | None = None
    password: Secret | None = None
    qos: int = 1
    session: str | None = None
    session_expires_s: int = 0
    keep_alive_s: int = 10
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    capacity: int = 10_000
    full: WhenFull = "block"
    receive_capacity: int = 100_000
    receive_full: WhenFull = "block"
    map: tuple[Path, ...] = ()
    sparkplug: tuple[str, ...] = ()
    sparkplug_host: str = ""
    session_file: Path | None = None

    @property
    def shown(self) -> str:
        """The address for messages: without user, password and options.

        >>> parse_mqtt_address("//ann:secret@example.org/city").shown
        'mqtt://example.org:1883/city'
        """
        return f"mqtt{'s' if self.tls else ''}://{_bracketed(self.host)}:{self.port}/{self.realm}"


def parse_mqtt_address(rest: str, tls: bool = False) -> MqttOptions:
    """The options in an address, from what stands behind `mqtt:` or, with `tls`, behind `mqtts:`.

    Raises:
        BusError: A part of the address is wrong, or an option is unknown. The message has no password.

    >>> options = parse_mqtt_address("//ann:secret@example.org/city?qos=0")
    >>> options.host, options.port, options.realm, options.qos, options.password
    ('example.org', 1883, 'city', 0, Secret(...))
    >>> parse_mqtt_address("//localhost?qso=1")
    Traceback (most recent call last):
    genus.errors.BusError: mqtt://localhost: there is no option 'qso'; did you mean 'qos'? known are qos, session, ...
    """
    scheme = "mqtts" if tls else "mqtt"
    url, port = _split(scheme, rest)
    place = f"{scheme}://{_bracketed(url.hostname or '')}"
    options, maps = _options(place, url.query)
    refused = next((name for name in _TLS_OPTIONS if name in options and not tls), None)
    if refused is not None:
        raise BusError(f"{place}: {refused} is for mqtts://")
    if "key" in options and "cert" not in options:
        raise BusError(f"{place}: a key needs cert, the certificate that it belongs to")
    session = _matching(place, "session", options["session"], _SESSION) if "session" in options else None
    if session is None and "session_file" in options:
        raise BusError(f"{place}: session_file belongs to a session; give session=NAME, too")
    default_span = f"{KEPT_SESSION_S}s" if session else "0s"
    return MqttOptions(
        host=url.hostname or "",
        port=port or (TLS_PORT if tls else PORT),
        realm=_matching(place, "the realm", unquote(url.path.strip("/")) or DEFAULT_REALM, _REALM),
        tls=tls,
        user=unquote(url.username) if url.username else None,
        password=Secret(unquote(url.password)) if url.password else None,
        qos=_integer(place, options, "qos", 1, 0, 1),
        session=session,
        session_expires_s=_seconds(place, "session_expires", options.get("session_expires", default_span)),
        keep_alive_s=min(_seconds(place, "keep_alive", options.get("keep_alive", "10s")), 65_535),
        ca=_path(options, "ca"),
        cert=_path(options, "cert"),
        key=_path(options, "key"),
        capacity=_integer(place, options, "capacity", 10_000, 1),
        full=_policy(place, "full", options.get("full", "block")),
        receive_capacity=_integer(place, options, "receive_capacity", 100_000, 1),
        receive_full=_policy(place, "receive_full", options.get("receive_full", "block")),
        map=tuple(map(Path, maps)),
        sparkplug=_sparkplug(place, options.get("sparkplug")),
        sparkplug_host=_sparkplug_name(place, "sparkplug_host", options.get("sparkplug_host", "")),
        session_file=_path(options, "session_file"),
    )


def _split(scheme: str, rest: str) -> tuple[SplitResult, int | None]:
    form = f"write {scheme}://host:port/realm?option=value"
    try:
        url = urlsplit(f"{scheme}:{rest}")
        port = url.port
    except ValueError:
        raise BusError(f"{scheme}: host or port is not valid; {form}") from None
    if not url.hostname:
        raise BusError(f"{scheme}: the address has no host; {form}")
    return url, port


def _options(place: str, query: str) -> tuple[dict[str, str], list[str]]:
    """The options by name, and the mapping files, of which there may be several."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BusError(f"{place}: write options as name=value, joined by &") from None
    options: dict[str, str] = {}
    for name, value in pairs:
        if name in options and name != "map":
            raise BusError(f"{place}: {name}= is given twice")
        options[name] = value
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS)
            raise BusError(f"{place}: there is no option {name!r}; {hint}known are {', '.join(OPTIONS)}")
    return options, [value for name, value in pairs if name == "map"]


def _sparkplug(place: str, text: str | None) -> tuple[str, ...]:
    """The group, or group and edge node, that `sparkplug=` names."""
    names = () if text is None else tuple(text.split("/"))
    if len(names) > 2 or (len(names) == 2 and "*" in names):
        raise BusError(f"{place}: sparkplug is {text!r}; write a group, * for all of them, or group/node")
    return tuple(name if name == "*" else _sparkplug_name(place, "sparkplug", name or "/") for name in names)


def _sparkplug_name(place: str, what: str, text: str) -> str:
    if any(sign in text for sign in "+#/*\0"):
        raise BusError(f"{place}: {what} is {text!r}; names of Sparkplug have none of + # / *")
    return text


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _matching(place: str, what: str, text: str, form: re.Pattern[str]) -> str:
    if not form.fullmatch(text):
        raise BusError(f"{place}: {what} is {text!r}; write 1 to 64 letters, digits or any of _ . -")
    return text


def _integer(place: str, options: dict[str, str], name: str, default: int, least: int, most: int = 1 << 30) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise BusError(f"{place}: {name} is {text!r}; write a whole number from {least} to {most}")
    return int(text)


def _seconds(place: str, name: str, text: str) -> int:
    """Whole seconds, rounded up."""
    return -(-nanoseconds(text, f"{place}: {name}", error=BusError) // 1_000_000_000)


def _policy(place: str, name: str, text: str) -> WhenFull:
    for policy in get_args(WhenFull):
        if text == policy and (name == "full" or policy != "raise"):
            return policy  # type: ignore[no-any-return]  # get_args forgets the type
    known = [each for each in get_args(WhenFull) if name == "full" or each != "raise"]
    raise BusError(f"{place}: {name} is {text!r}; choose one of {', '.join(known)}")


def _path(options: dict[str, str], name: str) -> Path | None:
    return Path(options[name]) if name in options else None


# -- streams -----------------------------------------------------------------------------------------------------------


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
