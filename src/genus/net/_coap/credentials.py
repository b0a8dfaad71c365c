"""Keys: OSCORE (RFC 8613) as aiocoap has it, from a file of credentials; and why DTLS is not to be had."""

import json
from pathlib import Path
from typing import Any, NoReturn

from aiocoap import credentials, defaults

from genus._extras import install_command
from genus.errors import BusError


def protect(context: Any, path: Path) -> None:
    """Protect what a context sends and answers by the credentials of a file; BusError if that cannot be done.

    The file is that of aiocoap: a JSON object whose names are addresses of servers (`coap://HOST/*`) for clients, and
    names that begin with a colon for servers.
    """
    if missing := defaults.oscore_missing_modules():
        raise BusError(f"OSCORE needs {', '.join(missing)}: {install_command('oscore')}")
    from aiocoap.oscore_sitewrapper import OscoreSiteWrapper
    from aiocoap.transports.oscore import TransportOSCORE

    given = _read(path)
    try:
        context.client_credentials.load_from_dict({name: given[name] for name in given if not name.startswith(":")})
        context.server_credentials.load_from_dict({name: given[name] for name in given if name.startswith(":")})
    except Exception as problem:  # aiocoap raises errors of many kinds
        raise BusError(f"{path}: {problem or type(problem).__name__}") from problem
    context.request_interfaces.insert(0, TransportOSCORE(context, context))
    if context.serversite is not None:
        context.serversite = OscoreSiteWrapper(context.serversite, context.server_credentials)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise BusError(f"{path}: the credentials cannot be read: {problem}") from problem
    if not isinstance(found, dict):
        raise BusError(f"{path}: credentials are a JSON object")
    return found


def check_protected(context: Any, message: Any, path: Path) -> None:
    """BusError if a request would go without protection, as no credentials are for its server."""
    try:
        context.client_credentials.credentials_from_request(message)
    except credentials.CredentialsMissingError as problem:
        raise BusError(f"{path}: has no credentials for {message.get_request_uri()}") from problem


def refuse_dtls(address: str) -> NoReturn:
    """BusError that says what DTLS needs."""
    if missing := defaults.dtls_missing_modules():
        raise BusError(
            f"{address}: DTLS needs {', '.join(missing)}, which is not installed; protect coap:// by OSCORE "
            "(credentials=FILE), or put a DTLS proxy before it"
        )
    raise BusError(
        f"{address}: DTLS is not tested with Genus; protect coap:// by OSCORE (credentials=FILE), or put a DTLS proxy "
        "before it"
    )
