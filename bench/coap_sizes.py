"""Sizes of CoAP messages, by arithmetic: what a request, its answer and a transfer in blocks take.

A message is a header of four bytes, a token, options and, after a marker byte, a payload (RFC 7252, 3). An option is
one byte, extensions of a large number or length, and its value; numbers are sent as differences, so options are sized
together. A payload that is longer than a block is fetched block by block, each with a request of its own (RFC 7959):
the server chooses the size of blocks by its first answer, and the later requests name the block they want. Requests
are confirmable and answers acknowledge them, so a request and its answer are two datagrams.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from genus.codes._encoding import code_size

URI_PATH, CONTENT_FORMAT, URI_QUERY, BLOCK2 = 11, 12, 15, 23
"""Numbers of options."""

LINK_FORMAT, CBOR = 40, 60
"""Content formats."""

BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024)
"""The sizes that a block can have, in the order of their exponents."""

HEADER_BYTES = 4

Option = tuple[int, int]
"""The number of an option and the length of its value."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Datagrams of an exchange and their bytes, from the CoAP header on."""

    datagrams: int
    bytes: int

    def __add__(self, other: "Traffic") -> "Traffic":
        """Both exchanges."""
        return Traffic(self.datagrams + other.datagrams, self.bytes + other.bytes)


def size_options(options: Iterable[Option]) -> int:
    """Return the bytes of options, each given by its number and the length of its value, in any order.

    >>> size_options([(11, 6), (11, 4)])  # Uri-Path: sensor, Uri-Path: temp
    12
    """
    total = last = 0
    for number, length in sorted(options, key=lambda option: option[0]):
        total += 1 + _extension(number - last) + _extension(length) + length
        last = number
    return total


def _extension(value: int) -> int:
    """Return the bytes that a difference of numbers, or a length, takes beyond its four bits."""
    return 0 if value < 13 else 1 if value < 269 else 2


def size_uint(value: int) -> int:
    """Return the length of a number as the value of an option, where 0 is empty."""
    return code_size(value) if value else 0


def size_message(options: Iterable[Option] = (), payload: int = 0, token: int = 0) -> int:
    """Return the bytes of a message with options, a payload and a token of these lengths.

    >>> size_message([(11, 6), (11, 4)]), size_message([(12, 1)], payload=4, token=1)
    (16, 12)
    """
    return HEADER_BYTES + token + size_options(options) + (1 + payload if payload else 0)


def size_get(
    request: Sequence[Option], payload: int, content_format: int, *, block: int = 64, token: int = 0
) -> Traffic:
    """Return what a GET takes whose answer has a payload of this length, in blocks of at most `block` bytes.

    Raises ValueError if `block` is not one of `BLOCK_SIZES`.

    >>> size_get([(11, 4)], 100, 60, block=64)
    Traffic(datagrams=4, bytes=138)
    """
    if block not in BLOCK_SIZES:
        raise ValueError(f"a block has {', '.join(map(str, BLOCK_SIZES))} bytes, not {block}")
    form = (CONTENT_FORMAT, size_uint(content_format))
    if payload <= block:
        return Traffic(2, size_message(request, 0, token) + size_message([form], payload, token))
    starts = range(0, payload, block)
    return Traffic(
        2 * len(starts),
        sum(
            size_message([*request, *_asked(number, block)], 0, token)
            + size_message([form, _sent(number, block, start + block < payload)], min(block, payload - start), token)
            for number, start in enumerate(starts)
        ),
    )


def _asked(number: int, block: int) -> list[Option]:
    """Return the option that asks for a block, which the first request does not have."""
    return [(BLOCK2, size_uint(number << 4 | BLOCK_SIZES.index(block)))] if number else []


def _sent(number: int, block: int, more: bool) -> Option:
    """Return the option that says which block an answer has and whether more follow."""
    return BLOCK2, size_uint(number << 4 | more << 3 | BLOCK_SIZES.index(block))


def size_cbor_uint(value: int) -> int:
    """Return the bytes of a number of any size in CBOR (RFC 8949, 3): a number beyond 64 bits is a tagged byte string.

    >>> [size_cbor_uint(value) for value in (23, 24, 256, 65536, 1 << 32, 1 << 64)]
    [1, 2, 3, 5, 9, 11]
    """
    if value < 1 << 64:
        return _cbor_head(value)
    length = code_size(value)
    return 1 + _cbor_head(length) + length


def _cbor_head(value: int) -> int:
    """Return the first byte of an item, and the bytes of its number or length."""
    return 1 if value < 24 else next(1 + width for width in (1, 2, 4, 8) if value < 1 << 8 * width)


def size_cbor_pairs(codes: Iterable[int], value: int) -> int:
    """Return the bytes of a CBOR array of pairs: a code, and an item of `value` bytes.

    >>> size_cbor_pairs([6, 300], value=12)
    31
    """
    pairs = [1 + size_cbor_uint(code) + value for code in codes]
    return _cbor_head(len(pairs)) + sum(pairs)
