"""Generated C as a shared library: compiled by the host's compiler, called through ctypes."""

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from genus import Event, Subscription
from genus.can import PayloadCodec
from genus.catalog import Catalog
from genus.devices import Firmware, generate
from genus.model import UInt8
from genus.model.types import BytesType, TextType
from genus.targets.c._compiler import Member
from tests.programs import need

from .toolchain import WARNINGS

OK, NOT_WANTED, UNKNOWN_TYPE, MALFORMED = range(4)
WILD = 0xEE
"""The status where a handler got an absent attribute that was neither zero nor an empty text of the payload."""
MAX_SIZE = 70_000


class Device:
    """State: a generated program in this process, with handlers that note which of them were called."""

    def __init__(self, firmware: Firmware, *options: str) -> None:
        self.firmware = firmware
        self.count = len(firmware.filters)
        with tempfile.TemporaryDirectory() as folder:  # a library stays loaded when its file is gone
            self._library = ctypes.CDLL(str(build(firmware, Path(folder), "-shared", "-fPIC", "-O0", *options)))
        self._library.run.restype = ctypes.c_long

    def receive(self, frames: Iterable[tuple[int, bytes]]) -> list[tuple[int, tuple[int, ...], bytes]]:
        """For each event tag and payload: the status, the subscriptions that matched, the event encoded again."""
        given = list(frames)
        records = b"".join(struct.pack("<HH", etag, len(payload)) + payload for etag, payload in given)
        out = ctypes.create_string_buffer(len(given) * (1 + self.count) + sum(2 + len(p) + 8 for _, p in given) + 64)
        size = self._library.run(records, len(given), out)
        return list(self._answers(out.raw[:size], len(given)))

    def _answers(self, raw: bytes, count: int) -> Iterable[tuple[int, tuple[int, ...], bytes]]:
        at = 0
        for _ in range(count):
            status, hits = raw[at], raw[at + 1 : at + 1 + self.count]
            at += 1 + self.count
            size = int.from_bytes(raw[at : at + 2], "little")
            again = raw[at + 2 : at + 2 + size]
            at += 2 + size
            yield status, tuple(number for number, hit in enumerate(hits) if hit), again

    def learn(self, answer: bytes) -> bool:
        """Give it the broker's answer about a class."""
        function = getattr(self._library, f"{self.firmware.name}_learn")
        function.restype = ctypes.c_bool
        return bool(function(answer, len(answer)))

    def code_wanted(self, wire: bytes) -> tuple[int, ...]:
        """The subscriptions that want the type of a code in its wire form."""
        function = getattr(self._library, f"{self.firmware.name}_code_wanted")
        wanted = ctypes.create_string_buffer(64)
        function(wire, len(wire), wanted)
        bits = int.from_bytes(wanted.raw, "little")
        return tuple(number for number in range(self.count) if bits >> number & 1)


def build(firmware: Firmware, folder: Path, *options: str, compiler: str | None = None) -> Path:
    """Compile a generated program with a harness; the path of the result."""
    sources = [path for path in firmware.write(folder) if path.suffix == ".c"]
    harness = folder / "harness.c"
    harness.write_text(harness_source(firmware))
    made = folder / "made.so"
    command = [compiler or need("gcc"), *WARNINGS, *options, *map(str, sources), str(harness), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[:4000]
    return made


def harness_source(firmware: Firmware) -> str:
    """Handlers, and a function that receives many payloads: a status, a byte per subscription, the event again."""
    program = firmware._program
    handlers = []
    for handler in program.handlers:
        for family in program.families_of(handler):
            is_encoded = family in program.published_families
            again = f"encode_{family.label}(event);" if is_encoded else ""
            handlers.append(
                f"void {program.handler_name(handler, family)}(const {program.name}_{family.label} *event)\n"
                f"{{ hits[{handler.number}]++; check_{family.label}(event); {again} }}"
            )
    checks = [
        "\n".join(
            [
                f"static void check_{family.label}(const {program.name}_{family.label} *event) {{ (void)event;",
                *(
                    f"  if (!genus_has(event->present, {member.number}U) && {_is_left(member)}) {{ is_wild = true; }}"
                    for member in family.layout.held
                ),
                "}",
            ]
        )
        for family in program.received_families
    ]
    encoders = [
        f"static void encode_{family.label}(const {program.name}_{family.label} *event) {{ uint16_t etag = 0U;\n"
        f"  again_size = {program.name}_{family.label}_encode(event, sequence, again, sizeof again, &etag);\n"
        f"  again_etag = etag; }}"
        for family in program.published_families
        if family in program.received_families
    ]
    return "\n".join(
        [
            f'#include "{program.name}.h"',
            f"static uint8_t hits[{max(1, len(program.handlers))}];",
            "static uint8_t again[4096]; static uint16_t again_size; static uint16_t again_etag;",
            "static uint8_t sequence; static const uint8_t *given; static bool is_wild;",
            "static void poison(void) {",
            "  volatile uint8_t stack[4096]; for (int i = 0; i < 4096; i++) { stack[i] = 0xA5U; } (void)stack[0];",
            "}",
            *checks,
            *encoders,
            *handlers,
            "long run(const uint8_t *records, long count, uint8_t *out);",
            "long run(const uint8_t *records, long count, uint8_t *out) {",
            "  const uint8_t *start = out; (void)again_etag;",
            "  for (; count > 0; count--) {",
            "    const uint16_t etag = (uint16_t)(records[0] | (records[1] << 8));",
            "    const uint16_t size = (uint16_t)(records[2] | (records[3] << 8));",
            "    records += 4; memset(hits, 0, sizeof hits); again_size = 0U;",
            "    sequence = (size > 0U) ? genus_sequence_of(records) : 0U;",
            "    given = records; is_wild = false; poison();",
            f"    const genus_status status = {program.name}_receive(etag, records, size);",
            f"    *out++ = is_wild ? {WILD}U : (uint8_t)status;",
            f"    memcpy(out, hits, {len(program.handlers)}U); out += {len(program.handlers)};",
            "    out[0] = (uint8_t)again_size; out[1] = (uint8_t)(again_size >> 8);",
            "    memcpy(out + 2, again, again_size); out += 2 + again_size; records += size;",
            "  }",
            "  return (long)(out - start);",
            "}",
            "",
        ]
    )


def _is_left(member: Member) -> str:
    """A test in C whether a member has something that was left in memory."""
    if isinstance(member.type, TextType | BytesType):
        return f"((event->{member.name}.size != 0U) || (event->{member.name}.bytes != given))"
    return f"(event->{member.name} != 0)"


@cache
def codec_of(cls: type[Event], catalog: Catalog) -> PayloadCodec:
    """What Python encodes and decodes the events of a class with; a catalog that grew needs another one."""
    return PayloadCodec.of(cls, catalog.vector(cls), catalog.tagged_attributes(cls))


def frame_of(event: Event, catalog: Catalog, sequence: int = 0) -> tuple[int, bytes]:
    """The event tag and the payload of an event."""
    bits, payload = codec_of(type(event), catalog).encode(event, sequence)
    return catalog.etag(type(event)) | bits, payload


def device_of(
    subscriptions: Sequence[Subscription], catalog: Catalog, *, options: Sequence[str] = (), **given: Any
) -> Device:
    """A device with numbered subscriptions; what it cannot test is left to the caller."""
    named = [(f"s{number}", subscription) for number, subscription in enumerate(subscriptions)]
    return Device(generate(catalog, named, residual=True, **given), *options)


def declare(name: str, *names: str) -> type[Event]:
    """A class with these attributes, which may be absent."""
    metaclass: Any = type(Event)
    namespace = {"__annotations__": dict.fromkeys(names, UInt8 | None), "__module__": __name__}
    made: type[Event] = metaclass(name, (Event,), namespace)
    return made
