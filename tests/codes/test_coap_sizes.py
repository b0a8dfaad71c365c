"""Sizes of CoAP messages: by arithmetic as long as aiocoap and cbor2 make them."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.coap_sizes import (
    BLOCK2,
    BLOCK_SIZES,
    CBOR,
    CONTENT_FORMAT,
    URI_PATH,
    Traffic,
    size_cbor_pairs,
    size_cbor_uint,
    size_get,
    size_message,
    size_options,
)
from genus.codes import encode_path_segment

from ..examples import examples

MISSING = "aiocoap is not installed: pip install genus[coap]"

segments = st.text("abcdefgh0123456789-._~", min_size=1, max_size=255)


def encoded(options: list[tuple[int, bytes]], payload: bytes = b"", token: bytes = b"", answer: bool = False) -> int:
    """The length of a message as aiocoap encodes it."""
    aiocoap = pytest.importorskip("aiocoap", reason=MISSING)
    numbers, values = map(import_module, ("aiocoap.numbers.optionnumbers", "aiocoap.optiontypes"))
    kind, code = (aiocoap.ACK, aiocoap.CONTENT) if answer else (aiocoap.CON, aiocoap.GET)
    message = aiocoap.Message(code=code, payload=payload, _mtype=kind, _mid=1, _token=token)
    for number, value in options:
        message.opt.add_option(values.OpaqueOption(numbers.OptionNumber(number), value))
    return len(message.encode())


@given(
    options=st.lists(
        st.tuples(st.sampled_from([1, 4, 6, 11, 12, 15, 23, 60, 258, 2049, 65000]), st.binary(max_size=300))
    ),
    payload=st.binary(max_size=80),
    token=st.binary(max_size=8),
)
@examples(300)
def test_a_message_is_as_long_as_aiocoap_encodes_it(
    options: list[tuple[int, bytes]], payload: bytes, token: bytes
) -> None:
    sizes = [(number, len(value)) for number, value in options]
    assert size_message(sizes, len(payload), len(token)) == encoded(options, payload, token)


@pytest.mark.parametrize("length", [0, 12, 13, 14, 268, 269, 270, 1000])
@pytest.mark.parametrize("number", [1, 12, 13, 268, 269, 65000, 65535])
def test_extensions_begin_where_four_and_eight_bits_end(number: int, length: int) -> None:
    assert 4 + size_options([(number, length)]) == encoded([(number, bytes(length))])


@given(path=st.lists(segments, max_size=4), code=st.integers(1, 1 << 90))
@examples(100)
def test_a_request_is_as_long_as_aiocoap_encodes_its_path(path: list[str], code: int) -> None:
    aiocoap = pytest.importorskip("aiocoap", reason=MISSING)
    for named in (path, [encode_path_segment(code)]):
        message = aiocoap.Message(code=aiocoap.GET, uri_path=named, _mtype=aiocoap.CON, _mid=7, _token=b"")
        assert size_message([(URI_PATH, len(segment)) for segment in named]) == len(message.encode())


@given(data=st.data(), payload=st.integers(0, 4000), block=st.sampled_from(BLOCK_SIZES), token=st.integers(0, 8))
@examples(100)
def test_a_transfer_in_blocks_is_as_long_as_the_messages_aiocoap_makes_of_it(
    data: st.DataObject, payload: int, block: int, token: int
) -> None:
    path = data.draw(st.lists(segments, max_size=3))
    sent = transfer(path, bytes(payload), block, bytes(token))
    assert size_get([(URI_PATH, len(one)) for one in path], payload, CBOR, block=block, token=token) == Traffic(
        len(sent), sum(sent)
    )


def transfer(path: list[str], payload: bytes, block: int, token: bytes) -> list[int]:
    """The lengths of all messages of a GET: aiocoap cuts the blocks and writes the options."""
    aiocoap = pytest.importorskip("aiocoap", reason=MISSING)
    exponent, lengths, number, more = BLOCK_SIZES.index(block), [], 0, True
    whole = aiocoap.Message(code=aiocoap.CONTENT, payload=payload, content_format=CBOR)
    while more:
        request = aiocoap.Message(code=aiocoap.GET, uri_path=path, _mtype=aiocoap.CON, _mid=1, _token=token)
        if number:
            request.opt.block2 = (number, False, exponent)
        answer: Any = whole if len(payload) <= block else whole._extract_block(number, exponent, 1024)
        more = len(payload) > block and answer.opt.block2.more
        reply = answer.copy(mtype=aiocoap.ACK, mid=1, token=token)
        lengths += [len(request.encode()), len(reply.encode())]
        number += 1
    return lengths


def test_block_numbers_above_fifteen_take_another_byte() -> None:
    sixteen, seventeen = size_get([], 16 * 64, CBOR), size_get([], 17 * 64, CBOR)
    assert seventeen.bytes - sixteen.bytes == (4 + 1 + 1 + 2) + (4 + 2 + 1 + 2 + 1 + 64)


def test_a_payload_of_one_block_has_no_block_option() -> None:
    assert size_get([], 64, CBOR) == Traffic(2, 4 + 4 + size_options([(CONTENT_FORMAT, 1)]) + 1 + 64)
    assert size_get([], 65, CBOR).datagrams == 4
    assert size_options([(CONTENT_FORMAT, 1), (BLOCK2, 1)]) == 4


def test_a_block_has_a_size_that_its_option_can_say() -> None:
    with pytest.raises(ValueError, match="16, 32, 64, 128, 256, 512, 1024 bytes, not 100"):
        size_get([], 10, CBOR, block=100)


@given(codes=st.lists(st.integers(0, 1 << 200), max_size=300), value=st.binary(max_size=30))
@examples(100)
def test_pairs_are_as_long_as_cbor2_encodes_them(codes: list[int], value: bytes) -> None:
    cbor2 = pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install genus[coap]")
    size = len(cbor2.dumps(value))
    assert size_cbor_pairs(codes, size) == len(cbor2.dumps([[code, value] for code in codes]))
    assert [size_cbor_uint(code) for code in codes] == [len(cbor2.dumps(code)) for code in codes]
