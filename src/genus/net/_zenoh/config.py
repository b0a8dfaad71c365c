"""Opening a session of zenoh from the options of an address, with the reason in plain words if it fails.

Without a server, the first process of a machine listens on a known port of its loopback interface; the others connect
to it and learn of each other by gossip. When the first is gone they go on, try the port again and again, and meet at
the newcomer that takes it. zenoh could try to listen in the background, but then closing a session hangs, so who
listens is decided at open.
"""

import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from genus._extras import missing_extra
from genus.errors import BusError
from genus.net._zenoh.address import ZenohOptions

if TYPE_CHECKING:
    import zenoh

LEASE_MS = 2000
"""A participant that is silent for this long is gone; one whose process ends is gone at once."""
RETRY = {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 2}
SCOUTING_MS = 200
LAN_SCOUTING_MS = 500
FRAGMENTS_US = LEASE_MS * 1000
"""How long a packet of more than 64 KB may wait within `put`; zenoh's 50 ms lose it on a machine that is busy."""
LARGEST = 64 * 1024 * 1024
_LOOPBACK = "127.0.0.1"
_MEET_S = 1.5
"""How long a process tries to listen on the port, or to reach the one that does."""
_SOURCE = re.compile(r" at /\S+:\d+\.?")
_HOST_PORT = re.compile(r"(?P<protocol>[a-z]+)/\[?(?P<host>[^\]#?]+?)\]?:(?P<port>\d+)")


def import_zenoh() -> Any:
    """The package `zenoh`; BusError with the command that installs it."""
    try:
        import zenoh
    except ImportError as problem:
        raise BusError(str(missing_extra("zenoh: addresses need the package eclipse-zenoh", "zenoh"))) from problem
    return zenoh


def open_session(options: ZenohOptions) -> "zenoh.Session":
    """Open a session; BusError with the reason if it cannot be done."""
    if options.scouting == "loopback" and options.config is None:
        return _meet_on_loopback(options)
    zenoh = import_zenoh()
    try:
        return zenoh.open(make_config(options))  # type: ignore[no-any-return]
    except zenoh.ZError as problem:
        raise BusError(f"zenoh: {_explain(options, problem)}") from problem


def _meet_on_loopback(options: ZenohOptions) -> "zenoh.Session":
    """Listen on the port by which processes of this machine meet, or connect to the one that does."""
    zenoh = import_zenoh()
    give_up = time.monotonic() + _MEET_S
    while True:
        try:
            return zenoh.open(make_config(options, is_first=True))  # type: ignore[no-any-return]
        except zenoh.ZError as problem:
            reason = problem
        session = zenoh.open(make_config(options, is_first=False))
        if _has_others(session, min(give_up, time.monotonic() + 1.0)):
            return session  # type: ignore[no-any-return]
        session.close()
        if time.monotonic() > give_up:
            raise BusError(
                f"zenoh: processes of this machine meet at port {options.port}, but what listens there does not "
                f"answer as zenoh does ({_shorten(reason)}); choose another by port="
            )


def _has_others(session: "zenoh.Session", until: float) -> bool:
    while not session.info.transports():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def make_config(options: ZenohOptions, is_first: bool = False) -> "zenoh.Config":
    """The configuration of a session; `is_first`: it listens where processes of this machine meet."""
    zenoh = import_zenoh()
    try:
        config = zenoh.Config() if options.config is None else zenoh.Config.from_file(str(options.config))
        for name, value in _settings(options, is_first).items():
            config.insert_json5(name, json.dumps(value))
    except zenoh.ZError as problem:
        raise BusError(f"zenoh: it cannot be configured so: {_shorten(problem)}") from problem
    return config  # type: ignore[no-any-return]


def _settings(options: ZenohOptions, is_first: bool) -> dict[str, Any]:
    own = {} if options.config is not None else _own_settings(options)
    return {**own, **_ends(options, is_first), **_tls(options)}


def _own_settings(options: ZenohOptions) -> dict[str, Any]:
    """What is not left to zenoh's defaults; a configuration file decides these itself."""
    is_lan = options.scouting == "lan"
    return {
        "mode": options.mode,
        "scouting/multicast/enabled": is_lan,
        "scouting/delay": LAN_SCOUTING_MS if is_lan else SCOUTING_MS,
        "connect/retry": RETRY,
        "transport/link/tx/lease": LEASE_MS,
        "transport/unicast/open_timeout": LEASE_MS,
        "transport/link/rx/max_message_size": LARGEST + 65536,
        "transport/link/tx/queue/congestion_control/drop/max_wait_before_drop_fragments": FRAGMENTS_US,
        "transport/shared_memory/enabled": False,  # its watchdog threads cost more than small packets gain
    }


def _ends(options: ZenohOptions, is_first: bool) -> dict[str, Any]:
    """Where the session listens and connects."""
    if options.scouting == "loopback" and options.config is None:
        return _loopback_ends(options, is_first)
    found: dict[str, Any] = {"mode": options.mode} if options.mode_is_given else {}
    if options.connect:
        found["connect/endpoints"] = list(options.connect)
        found["connect/timeout_ms"] = round(options.wait_s * 1000)
        found["connect/exit_on_failure"] = True
    if options.listen:
        found["listen/endpoints"] = list(options.listen)
        found["listen/exit_on_failure"] = True
    return found


def _loopback_ends(options: ZenohOptions, is_first: bool) -> dict[str, Any]:
    meeting = f"tcp/{_LOOPBACK}:{options.port}"
    others = f"tcp/{_LOOPBACK}:0"
    if is_first:
        return {"listen/endpoints": [meeting], "listen/exit_on_failure": True, "scouting/delay": 0}
    return {
        "listen/endpoints": [others],
        "connect/endpoints": [meeting],
        "connect/exit_on_failure": False,
        "connect/timeout_ms": -1,
    }


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
    """The text of an error without the places in zenoh's source."""
    return _SOURCE.sub("", str(problem)).strip(" .")
