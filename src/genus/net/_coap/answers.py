"""Answers of a server before they are messages, and those about its resources: discovery and names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from aiocoap.numbers import codes

from genus.codes import encode_path_segment, parse_path_segment
from genus.net._coap.agreed import Agreement
from genus.net._coap.wire import CBOR, LINK_FORMAT
from genus.targets.coap._compiler import has_path

Refusal: TypeAlias = tuple[Any, str]
"""The code of an error, and its reason."""


class Answer(msgspec.Struct, frozen=True):
    """A response, before it is a message of aiocoap."""

    code: int = int(codes.CONTENT)
    payload: bytes = b""
    format: int | None = None
    observe: int | None = None
    max_age: int | None = None
    etag: bytes | None = None
    own: bytes | None = None
    is_block: bool = False
    is_last: bool = False
    tuning: Any = None


class Directory:
    """Lists resources; `is_present` says whether the resource of a code is there."""

    def __init__(self, agreement: Agreement, is_present: Callable[[int], bool]) -> None:
        self._agreement, self._is_present = agreement, is_present

    def discover(self, query: Sequence[str]) -> Answer | Refusal:
        """The resources that there are, as links; `is` lists those whose code a code divides."""
        present = [code for code in self._agreement.codes_below(1) if self._is_present(code) and has_path(code)]
        found = self._select([(code, self._agreement.type_of(code) or "") for code in present], query)
        if isinstance(found, tuple):
            return found
        return Answer(
            payload=",".join(f"</{encode_path_segment(code)}>" for code, _ in found).encode(), format=LINK_FORMAT
        )

    def look_up(self, query: Sequence[str], base: str) -> Answer | Refusal:
        """All types and kinds of the catalog with their names and resources."""
        entries = [
            (entry.code, entry.name) for entry in self._agreement.catalog.entries.values() if has_path(entry.code)
        ]
        found = self._select(entries, query)
        if isinstance(found, tuple):
            return found
        links = [f'<{base}/{encode_path_segment(code)}>;rt="{name}";ct={CBOR};obs' for code, name in found]
        return Answer(payload=",".join(links).encode(), format=LINK_FORMAT)

    def _select(self, entries: list[tuple[int, str]], query: Sequence[str]) -> list[tuple[int, str]] | Refusal:
        """Those of some resources, by code and name, that a query asks for (RFC 6690, section 4.1)."""
        for part in query:
            name, _, value = part.partition("=")
            if name == "is":
                code = parse_path_segment(value)
                if code is None:
                    return codes.BAD_REQUEST, "is= is no code in base64url"
                entries = [each for each in entries if each[0] % code == 0]
            else:
                entries = [each for each in entries if _has_attribute(each, name, value)]
        return entries


def _has_attribute(entry: tuple[int, str], name: str, value: str) -> bool:
    """Whether a link has an attribute with a value, or with one that begins so."""
    code, type_ = entry
    have = {"rt": type_, "ct": str(CBOR), "href": f"/{encode_path_segment(code)}"}.get(name)
    if have is None:
        return False
    return have.startswith(value[:-1]) if value.endswith("*") else have == value
