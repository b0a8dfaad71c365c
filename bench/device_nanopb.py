"""The same message by nanopb 0.4.7 on the same processor: decoded, without types and filters.

The library is compiled with the options that make it smallest and fastest (no error texts, buffers only). Its sources
are those of Debian, from the folder in NANOPB or downloaded; apt's nanopb has the generator.
"""

import hashlib
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from bench.simavr import SOURCES, Case, MissingTool, Simulator, Size, check_tools, compile_firmware, run_tool, size

ADDRESS = "http://deb.debian.org/debian/pool/main/n/nanopb/nanopb_0.4.7.orig.tar.gz"
DIGEST = "e1d89b166367a3c42d42311bdc2ed57ff78f86aede9a66828516e45490d48c81"
FLAGS = ("-DPB_NO_ERRMSG", "-DPB_BUFFER_ONLY")
LIBRARY = ("pb_decode.c", "pb_common.c")
LOOP = "lane: 1 category: TRUCK confidence: 0.875"
NOON = 1_794_745_815_000_000
CONTEXT = f'time: {NOON} source: "s4" place: "N" deadline: {NOON} expires: {NOON}'
MESSAGES = {"the attributes of the 8-byte frame": LOOP, "all there is": f"{CONTEXT} {LOOP}"}


def find_sources(folder: Path) -> Path:
    """The folder of nanopb's sources: that in NANOPB, or those of Debian, downloaded and compared with their digest."""
    named = os.environ.get("NANOPB")
    if named:
        if not (Path(named) / "pb_decode.c").exists():
            raise MissingTool(f"NANOPB is {named}, which has no pb_decode.c")
        return Path(named)
    try:
        with urllib.request.urlopen(ADDRESS, timeout=60) as answer:
            data = answer.read()
    except (urllib.error.URLError, TimeoutError) as problem:
        raise MissingTool(f"cannot get {ADDRESS}: {problem}; set NANOPB to a folder with nanopb's sources") from problem
    if hashlib.sha256(data).hexdigest() != DIGEST:
        raise MissingTool(f"{ADDRESS} is not the file it was; set NANOPB to a folder with nanopb's sources")
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "nanopb-0.4.7"


class Nanopb:
    """nanopb and its generated code for `bench/avr/road.proto`, in a folder."""

    def __init__(self, folder: Path) -> None:
        check_tools("nanopb_generator.py", "protoc")
        self._folder = folder
        self._sources = find_sources(folder)
        self._options = self._sources / "generator" / "proto"
        generate = ["nanopb_generator.py", "--quiet", f"--output-dir={folder}", f"--proto-path={SOURCES}"]
        run_tool([*generate, f"--proto-path={self._options}", str(SOURCES / "road.proto")])

    def measure(self, simulator: Simulator) -> list[Case]:
        """A measurement per message; AssertionError if one is not decoded."""
        encoded = [self._encode(text) for text in MESSAGES.values()]
        (self._folder / "messages.h").write_text(message_table(encoded))
        run = simulator.run(self._build("nanopb_frames"))
        cases, lanes = run.cases[::2], run.cases[1::2]
        if [case.result for case in cases] != [1] * len(cases) or any(case.result != 1 for case in lanes):
            raise AssertionError("nanopb did not decode what protoc encoded")
        return list(cases)

    def program_size(self) -> Size:
        """The size of the whole program."""
        return size(self._build("nanopb_program"))

    def _build(self, program: str) -> Path:
        sources = [SOURCES / f"{program}.c", self._folder / "road.pb.c", *(self._sources / name for name in LIBRARY)]
        flags = [*FLAGS, f"-I{self._sources}"]
        return compile_firmware(self._folder / f"{program}.elf", sources, flags, strict=False)

    def _encode(self, text: str) -> bytes:
        """The message as protoc writes it."""
        paths = [f"--proto_path={SOURCES}", f"--proto_path={self._options}"]
        command = ["protoc", *paths, "--encode=ConfidentLoop", str(SOURCES / "road.proto")]
        return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


def message_table(messages: Sequence[bytes]) -> str:
    """Messages as a C table, each with its length before it."""
    rows = (f"    {{{', '.join(map(str, (len(data), *data)))}}}," for data in messages)
    head = ["#include <stdint.h>\n", f"enum {{ MESSAGES = {len(messages)} }};"]
    return "\n".join([*head, "static const uint8_t messages[MESSAGES][65] = {", *rows, "};\n"])
