"""The same message by nanopb 0.4.7 on the same processor: decoded, without types and filters.

The library is compiled with the options that make it smallest and fastest (no error texts, buffers only). Its sources
come from the folder in NANOPB, or by apt; apt's nanopb has the generator.
"""

import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from bench.simavr import SOURCES, Case, MissingTool, Simulator, Size, check_tools, compile_firmware, run_tool, size

FLAGS = ("-DPB_NO_ERRMSG", "-DPB_BUFFER_ONLY")
LIBRARY = ("pb_decode.c", "pb_common.c")
LOOP = "lane: 1 category: TRUCK confidence: 0.875"
NOON = 1_794_745_815_000_000
CONTEXT = f'time: {NOON} source: "s4" place: "N" deadline: {NOON} expires: {NOON}'
MESSAGES = {"the attributes of the 8-byte frame": LOOP, "all there is": f"{CONTEXT} {LOOP}"}


def find_sources(folder: Path) -> Path:
    """The folder of nanopb's sources: that in NANOPB, or those that apt downloads."""
    named = os.environ.get("NANOPB")
    if named:
        if not (Path(named) / "pb_decode.c").exists():
            raise MissingTool(f"NANOPB is {named}, which has no pb_decode.c")
        return Path(named)
    archive = _download(folder)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path.parent for path in folder.glob("nanopb-*/pb_decode.c"))


def _download(folder: Path) -> Path:
    """The archive of nanopb's sources, by apt from where the machine's packages come from."""
    lists = folder / "lists"
    lists.mkdir()
    sources = folder / "source.sources"
    found = [*Path("/etc/apt/sources.list.d").glob("*.sources")]
    sources.write_text("\n\n".join(re.sub(r"^Types:.*", "Types: deb-src", p.read_text(), flags=re.M) for p in found))
    options = (f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::lists={lists}")
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    try:
        for command in ("update", "source"):
            more = ["--download-only", "nanopb"] if command == "source" else []
            subprocess.run([*apt, command, *more], cwd=folder, check=True, capture_output=True, timeout=120)
        return next(folder.glob("nanopb_*.orig.tar.*"))
    except (OSError, subprocess.SubprocessError, StopIteration) as problem:
        raise MissingTool(f"apt has no sources of nanopb ({problem}); set NANOPB to a folder with them") from problem


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
