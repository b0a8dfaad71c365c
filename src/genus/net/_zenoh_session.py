"""Sessions of zenoh from the options of an address, with the reason in plain words if one cannot be opened.

Without a server, processes of a machine meet at a known port of its loopback interface. One of them holds this meeting
place: a router of zenoh of its own, beside the session that it sends and receives with. Every session connects to the
port; the router tells them of each other, they connect to each other, and packets go the direct way. When its process
ends, any other one takes the port, and all connect to it again.
"""

import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genus._extras import missing_extra
from genus.errors import BusError
from genus.net._addresses import ZenohOptions

if TYPE_CHECKING:
    import zenoh

LEASE_MS = 2000
"""A participant that is silent for this long is gone; one whose process ends is gone at once."""
RETRY = {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 2}
SCOUTING_MS = 200
LAN_SCOUTING_MS = 500
FRAGMENTS_US = LEASE_MS * 1000
"""How long a packet of more than 64 KB may wait within `put`; zenoh's 50 ms lose it on a machine that is busy."""
MAX_SIZE = 64 * 1024 * 1024
_LOOPBACK = "127.0.0.1"
_MEET_S = 1.5
"""How long a process tries to hold the meeting place, or to reach the process that does."""
_SOURCE = re.compile(r" at /\S+:\d+\.?")
_HOST_PORT = re.compile(r"(?P<protocol>[a-z]+)/\[?(?P<host>[^\]#?]+?)\]?:(?P<port>\d+)")


def import_zenoh() -> Any:
    """Return the package `zenoh`; BusError with the command that installs it."""
    try:
        import zenoh
    except ImportError as problem:
        raise BusError(str(missing_extra("zenoh: addresses need the package eclipse-zenoh", "zenoh"))) from problem
    return zenoh


def direct(callback: Callable[[Any], Any]) -> Any:
    """Return a callback that zenoh calls within its own threads; it must neither block nor call zenoh.

    Otherwise zenoh starts a thread for each subscriber: packets of two of them change places, and the threads keep the
    process alive. Many packets should be given to a function without Python code, such as the `put` of a queue: to call
    a Python function from a thread that is not Python's takes long.
    """
    return import_zenoh().handlers.Callback(callback, indirect=False)


def open_session(options: ZenohOptions) -> "tuple[zenoh.Session, MeetingPlace | None]":
    """Open a session, and the meeting place if processes of this machine meet without a server; BusError if not."""
    if options.meets:
        return _meet(options)
    zenoh = import_zenoh()
    try:
        return zenoh.open(make_config(options)), None
    except zenoh.ZError as problem:
        raise BusError(f"zenoh: {_explain(options, problem)}") from problem


class MeetingPlace:
    """State: the place where processes of this machine meet, if this process holds it."""

    def __init__(self, options: ZenohOptions) -> None:
        self._endpoint = f"tcp/{_LOOPBACK}:{options.port}"
        self._router: zenoh.Session | None = None

    def take(self) -> str:
        """Hold it, unless another process does; returns why this process does not."""
        zenoh = import_zenoh()
        settings = {
            **_COMMON,
            "mode": "router",
            "listen/endpoints": [self._endpoint],
            "listen/exit_on_failure": True,
            "scouting/delay": 0,
        }
        if self._router is None:
            try:
                self._router = zenoh.open(_make_config(settings))
            except zenoh.ZError as problem:
                return _shorten(problem)
        return ""

    def close(self) -> None:
        router, self._router = self._router, None
        if router is not None:
            router.close()  # type: ignore[no-untyped-call]


def _meet(options: ZenohOptions) -> "tuple[zenoh.Session, MeetingPlace]":
    """Hold the meeting place, or connect to the process that does."""
    zenoh = import_zenoh()
    place = MeetingPlace(options)
    give_up = time.monotonic() + _MEET_S
    while True:
        reason = place.take()
        session = zenoh.open(make_config(options))
        if _is_connected(session, min(give_up, time.monotonic() + 1.0)):
            return session, place
        session.close()
        place.close()
        if time.monotonic() > give_up:
            raise BusError(
                f"zenoh: processes of this machine meet at port {options.port}, but what listens there does not "
                f"answer as zenoh does ({reason}); choose another by port="
            )


def _is_connected(session: "zenoh.Session", until: float) -> bool:
    while not session.info.transports():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def make_config(options: ZenohOptions) -> "zenoh.Config":
    """Return the configuration of a session; BusError if an option cannot be used."""
    return _make_config(_settings(options), options.config)


def _make_config(settings: dict[str, Any], file: Path | None = None) -> "zenoh.Config":
    zenoh = import_zenoh()
    try:
        config = zenoh.Config() if file is None else zenoh.Config.from_file(str(file))
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
    except zenoh.ZError as problem:
        raise BusError(f"zenoh: it cannot be configured so: {_shorten(problem)}") from problem
    return config  # type: ignore[no-any-return]


_COMMON = {
    "scouting/multicast/enabled": False,
    "scouting/gossip/multihop": True,  # two that lost their connection hear of each other again
    "connect/retry": RETRY,
    "transport/link/tx/lease": LEASE_MS,
    "transport/unicast/open_timeout": LEASE_MS,
    "transport/link/rx/max_message_size": MAX_SIZE + 65536,
    "transport/link/tx/queue/congestion_control/drop/max_wait_before_drop_fragments": FRAGMENTS_US,
    "transport/shared_memory/enabled": False,  # its watchdog threads cost more than small packets gain
}
"""What is not left to zenoh's defaults."""


def _settings(options: ZenohOptions) -> dict[str, Any]:
    own = {} if options.config is not None else _own_settings(options)
    return {**own, **_ends(options), **_tls(options)}


def _own_settings(options: ZenohOptions) -> dict[str, Any]:
    is_lan = options.scouting == "lan"
    return {
        **_COMMON,
        "mode": options.mode,
        "scouting/multicast/enabled": is_lan,
        "scouting/delay": LAN_SCOUTING_MS if is_lan else SCOUTING_MS,
    }


def _ends(options: ZenohOptions) -> dict[str, Any]:
    if options.meets:
        return {
            "listen/endpoints": [f"tcp/{_LOOPBACK}:0"],
            "connect/endpoints": [f"tcp/{_LOOPBACK}:{options.port}"],
            "connect/exit_on_failure": False,
            "connect/timeout_ms": -1,
        }
    found: dict[str, Any] = {"mode": options.mode} if options.mode_is_given else {}
    if options.connect:
        found["connect/endpoints"] = list(options.connect)
        found["connect/timeout_ms"] = round(options.wait_s * 1000)
        found["connect/exit_on_failure"] = True
    if options.listen:
        found["listen/endpoints"] = list(options.listen)
        found["listen/exit_on_failure"] = True
    return found


def _tls(options: ZenohOptions) -> dict[str, Any]:
    tls = "transport/link/tls/"
    found: dict[str, Any] = {}
    if options.ca is not None:
        found[tls + "root_ca_certificate"] = str(options.ca)
    if options.cert is not None:
        for side in ("connect", "listen"):
            found[f"{tls}{side}_certificate"] = str(options.cert)
            found[f"{tls}{side}_private_key"] = str(options.key)
        found[tls + "enable_mtls"] = options.ca is not None
    return found


# -- why a session cannot be opened ------------------------------------------------------------------------------------


def _explain(options: ZenohOptions, problem: Exception) -> str:
    text = str(problem)
    if options.connect and "connect" in text:
        reasons = "; ".join(f"{endpoint}: {_try_endpoint(endpoint)}" for endpoint in options.connect)
        return f"no connection within {options.wait_s:g} s: {reasons}"
    return _shorten(problem)


def _try_endpoint(endpoint: str) -> str:
    """Why an endpoint could not be reached, as far as a plain connection shows it."""
    parts = _HOST_PORT.match(endpoint)
    if parts is None or parts["protocol"] not in ("tcp", "tls"):
        return "it cannot be reached"
    try:
        socket.create_connection((parts["host"], int(parts["port"])), timeout=1).close()
    except socket.gaierror:
        return f"the host {parts['host']!r} is not known"
    except ConnectionRefusedError:
        return "nothing listens there; is the router running? wait=30s would wait for it"
    except (OSError, OverflowError) as problem:
        return f"it does not answer ({problem})"
    if parts["protocol"] == "tls":
        return (
            "it answers, but TLS failed: check that ca= signed its certificate, which names this host, and that it "
            "trusts cert="
        )
    return "it answers, but not as a zenoh router does; does it want TLS (tls/host:port)?"


def _shorten(problem: Exception) -> str:
    """Return the text of an error without the places in zenoh's source."""
    return _SOURCE.sub("", str(problem)).strip(" .")
