"""`Resources`: what can be read at a server: the latest event of each type, their links and names, and their types."""

import time
from collections.abc import Sequence
from typing import Any

from aiocoap import Message, error
from aiocoap.numbers import codes

from genus.codes import encode_path_segment, parse_path_segment
from genus.net._coap.endpoint import add_own_option
from genus.net._coap.shared_catalog import SharedCatalog, write_document
from genus.net._coap.values import Outgoing
from genus.net._coap.wire import CBOR, LINK_FORMAT, join_pairs
from genus.targets.coap import QueryFilter, read_query
from genus.targets.internal import has_path

MAX_AGE_S = 0xFFFF_FFFF
"""The largest Max-Age that there is."""


class Refused(error.ConstructionRenderableError):  # type: ignore[misc]
    """A request that is answered with an error and its reason, one of few; `detail` is said instead if it is given."""

    def __init__(self, code: Any, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.code, self.reason, self.detail = code, reason, detail


def respond(payload: bytes = b"", format: int | None = CBOR, *, own: bytes | None = None, **parts: Any) -> Any:
    """Return a response of aiocoap; `parts` are its code and options by name."""
    parts = {name: value for name, value in parts.items() if value is not None}
    message = Message(**{"code": codes.CONTENT, "payload": payload, **parts})
    message.opt.content_format = format
    if own is not None:
        add_own_option(message, own)
    return message


def age_until(expires_at: float, now: float) -> int:
    """Return the Max-Age of a value that expires at a time.

    >>> age_until(62.5, 2.0), age_until(1.0, 2.0), age_until(1e12, 2.0)
    (60, 0, 4294967295)
    """
    return min(max(0, int(expires_at - now)), MAX_AGE_S)


class Resources:
    """State: the latest event of each type of a server, by code; requests that are wrong raise `Refused`."""

    def __init__(self, shared: SharedCatalog) -> None:
        self.announced: dict[int, None] = {}
        """Codes that have resources, though no value yet."""
        self._shared = shared
        self._latest: dict[int, Outgoing] = {}

    def put(self, outgoing: Outgoing) -> None:
        """Make an event the latest of its type."""
        self._latest[outgoing.code] = outgoing

    def present_below(self, code: int) -> list[int]:
        """Return the codes of the types that have resources, of those that a code divides."""
        return [each for each in self._shared.codes_below(code) if each in self._latest or each in self.announced]

    # -- values ------------------------------------------------------------------------------------------------------

    def ask(self, code: int, query: Sequence[str], accept: int | None) -> QueryFilter:
        """Return the test of a path and a query."""
        if not self._shared.is_known(code):
            raise Refused(codes.NOT_FOUND, "the code is that of no type in the catalog")
        asked = read_query(code, query, self._shared.catalog)
        if isinstance(asked, str):
            raise Refused(codes.BAD_REQUEST, "a query that cannot be read", asked)
        vector = self._shared.catalog.vector(asked.asked)
        if (asked.has | asked.lacks) >> len(vector):
            detail = f"presence bits outside the {len(vector)} attributes of {vector.scope}"
            raise Refused(codes.BAD_REQUEST, "presence bits of attributes that a type does not have", detail)
        if accept not in (None, CBOR):
            raise Refused(codes.NOT_ACCEPTABLE, "a format other than CBOR (60)")
        return asked

    def read(self, asked: QueryFilter) -> tuple[bytes, int | None]:
        """Return the values that pass a test as a body, and for how long they are valid."""
        now = time.time()
        self._latest = {
            code: one for code, one in self._latest.items() if one.expires_at is None or one.expires_at > now
        }
        found = [one for one in self._latest.values() if asked.accepts(one.code, one.tag, one.event)]
        expiries = [one.expires_at for one in found if one.expires_at is not None]
        return self.body(asked, found), age_until(min(expiries), now) if expiries else None

    def body(self, asked: QueryFilter, events: Sequence[Outgoing]) -> bytes:
        """The map of one event if the resource is that of its type alone, else pairs."""
        is_one = len(events) == 1 and events[0].code == asked.code
        if is_one and self._shared.codes_below(asked.code) == [asked.code]:
            return events[0].attributes
        return join_pairs([(one.code, one.attributes) for one in events])

    # -- links, names and types --------------------------------------------------------------------------------------

    def discover(self, query: Sequence[str]) -> Any:
        """Return the resources that there are, as links; `is` lists those whose code a code divides."""
        present = [code for code in self.present_below(1) if has_path(code)]
        found = _select([(code, self._shared.type_of(code) or "") for code in present], query)
        return respond(",".join(f"</{encode_path_segment(code)}>" for code, _ in found).encode(), LINK_FORMAT)

    def look_up(self, query: Sequence[str], base: str) -> Any:
        """Return all types and kinds of the catalog with their names and resources."""
        entries = [(each.code, each.name) for each in self._shared.catalog.entries.values() if has_path(each.code)]
        found = _select(entries, query)
        links = [f'<{base}/{encode_path_segment(code)}>;rt="{name}";ct={CBOR};obs' for code, name in found]
        return respond(",".join(links).encode(), LINK_FORMAT)

    def read_types(self, query: Sequence[str]) -> Any:
        """Return the document of the catalog; `rt=NAME` or `is=CODE` asks for one type and all above it."""
        if not query:
            return respond(write_document(self._shared.catalog), etag=self._shared.digest)
        known = [(entry.code, entry.name) for entry in self._shared.catalog.entries.values()]
        name, _, value = query[0].partition("=")
        asked = {"rt": value, "is": parse_path_segment(value)}.get(name)
        found = [code for code, type_ in known if asked in (code, type_)]
        if len(query) > 1 or name not in ("rt", "is"):
            raise Refused(codes.BAD_REQUEST, "a query for types that is neither rt=NAME nor is=CODE")
        if not found:
            raise Refused(codes.NOT_FOUND, "no type of the catalog has this name or code")
        return respond(write_document(self._shared.catalog, found[0]))


def _select(entries: list[tuple[int, str]], query: Sequence[str]) -> list[tuple[int, str]]:
    """Return those of some resources, by code and name, that a query asks for (RFC 6690, section 4.1)."""
    for part in query:
        name, _, value = part.partition("=")
        if name == "is":
            code = parse_path_segment(value)
            if code is None:
                raise Refused(codes.BAD_REQUEST, "a query is= without a code in base64url")
            entries = [each for each in entries if each[0] % code == 0]
        else:
            entries = [each for each in entries if _has_attribute(each, name, value)]
    return entries


def _has_attribute(entry: tuple[int, str], name: str, value: str) -> bool:
    """Return whether a link has an attribute with a value, or with one that begins so."""
    code, type_ = entry
    have = {"rt": type_, "ct": str(CBOR), "href": f"/{encode_path_segment(code)}"}.get(name)
    if have is None:
        return False
    return have.startswith(value[:-1]) if value.endswith("*") else have == value
