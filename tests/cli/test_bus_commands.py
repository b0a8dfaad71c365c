"""`genus pub`, `sub`, `record`, `replay` and `explain`, as a person uses them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genus.bus import RecordingWriter, read_recording
from genus.cli._events import event_type, load_types, make_event
from genus.testing import run_command as genus

TYPES = """
from datetime import timedelta
from enum import Enum
from genus import Event, Kind, Maybe

class Category(Enum):
    TRUCK = "truck"
    CAR = "car"

class Roadside(Kind):
    pass

class Loop(Event, Roadside):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    gap: Maybe[timedelta] = None

class Camera(Loop):
    plate: Maybe[str] = None
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "road.py").write_text(TYPES)
    (tmp_path / "junk.bin").write_bytes(bytes(range(128, 256)))
    (tmp_path / "empty.txt").write_text("# nothing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("GENUS_TYPES", "road.py")
    return tmp_path


class Running:
    """A command that goes on until it is told to stop."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "genus", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = ""

    def wait_until_it_listens(self) -> None:
        """Until it says that it has subscribed on the bus."""
        assert self.process.stderr is not None
        while not self.said.startswith(("listening on", "recording")):
            line = self.process.stderr.readline()
            assert line, self.process.communicate()
            self.said += line

    def end(self, number: int | None = None) -> tuple[str, str, int]:
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return out, self.said + err, self.process.returncode


@pytest.fixture
def listening() -> Iterator[Running]:
    running = Running("sub", "Loop where lane > 1", "--json", "--limit", "2")
    running.wait_until_it_listens()
    yield running
    running.process.kill()
    running.process.communicate()


def test_what_one_terminal_publishes_another_prints(listening: Running) -> None:
    """Processes are counted that subscribed to what was published."""
    for lane, reached in (("1", "no other process subscribed"), ("2", "reached 1 process")):
        done = genus("pub", "Loop", f"lane={lane}", "place=A8/km31", "time=now", "gap=1.5s", "category=truck")
        assert done.returncode == 0
        assert f"published 1 event; {reached}\n" in done.stderr
    genus("pub", "Camera", "lane=3", "plate=M-XY 1")
    out, err, code = listening.end()
    first, second = map(json.loads, out.splitlines())
    assert (first["type"], first["lane"], first["place"], first["category"]) == ("Loop", 2, "A8/km31", "truck")
    assert second == {"type": "Camera", "lane": 3, "plate": "M-XY 1"}
    assert code == 0
    assert "listening on ipc:" in err
    assert err.endswith("printed 2 events\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sub_ends_cleanly_when_it_is_told_to(number: int, folder: Path) -> None:
    running = Running("sub")
    running.wait_until_it_listens()
    out, err, code = running.end(number)
    assert (out, code) == ("", 0)
    assert "Traceback" not in err
    assert not any((folder / "genus" / "genus").iterdir())


def test_sub_gives_up_after_its_timeout() -> None:
    done = genus("sub", "--timeout", "0.2")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("no event within 0.2 s")


def test_sub_ends_after_the_time_it_is_given() -> None:
    done = genus("sub", "--for", "0.1")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_recording_is_good_however_it_ends(number: int) -> None:
    """Killed outright, it keeps what was flushed, which happens five times a second."""
    running = Running("record", "loops.genus", "Loop where lane > 0")
    running.wait_until_it_listens()
    given = "".join(json.dumps({"lane": lane, "speed": lane / 2}) + "\n" for lane in range(50))
    assert genus("pub", "Loop", "--stdin", given=given).returncode == 0
    while Path("loops.genus").read_bytes().count(b"lane") < 49:
        assert running.process.poll() is None
    if number == signal.SIGINT:
        _, err, code = running.end(number)
        assert code == 0
        assert "49 events in loops.genus" in err
    else:
        running.end(number)
    done = genus("replay", "loops.genus", "Loop where lane < 3", "--print", "--json")
    assert [json.loads(line)["speed"] for line in done.stdout.splitlines()] == [0.5, 1.0]
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_landing_folder_gets_whole_files_however_it_ends(number: int, folder: Path) -> None:
    """Killed outright, the next recorder lands what was flushed."""
    running = Running("record", "landing", "Loop where lane > 0", "--landing", "--every", "1000", "--max-events", "20")
    running.wait_until_it_listens()
    given = "".join(json.dumps({"lane": lane}) + "\n" for lane in range(50))
    assert genus("pub", "Loop", "--stdin", given=given).returncode == 0
    part = folder / "landing" / ".events-000000000003.part"
    while not part.exists() or part.read_bytes().count(b"lane") < 9:
        assert running.process.poll() is None
    _, err, _ = running.end(number)
    if number == signal.SIGINT:
        assert "49 events in landing (3 files)" in err
    else:
        done = genus("record", "landing", "--landing", "--for", "0.1")
        assert "0 events in landing (1 file)" in done.stderr
    files = sorted((folder / "landing").glob("*.genus"))
    assert [file.name for file in files] == [f"events-{place:012}.genus" for place in (1, 2, 3)]
    printed = [genus("replay", str(file), "--print", "--json").stdout.splitlines() for file in files]
    assert [json.loads(line)["lane"] for lines in printed for line in lines] == list(range(1, 50))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["loops.genus", "--every", "5"], "--every: only with --landing"),
        (["loops.genus", "--landing", "--append"], "--append or --landing"),
        (["."], "is a folder; to write many files into it, give --landing"),
        (["road.py", "--landing"], "cannot write to road.py"),
        (["landing", "--landing", "--name", "a/b"], "cannot be named 'a/b'"),
    ],
)
def test_a_recording_that_cannot_be_is_refused(arguments: list[str], problem: str) -> None:
    done = genus("record", *arguments)
    assert done.returncode in (1, 2)
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


ODD_LINK = """
from genus.bus import Link, register_link

class OddLink(Link):
    def open(self, deliver):
        self.deliver = deliver

    def listen(self, subscription, on_problem):
        for lane in (1, "two", 2, "three"):
            self.deliver(Loop(lane=lane))
        return lambda: None

    def wanted_by(self, event): return None
    def send(self, event): ...
    def close(self): ...
    def counters(self): return {}

register_link("odd", lambda name: OddLink())
"""


@pytest.mark.parametrize("landing", [[], ["--landing"]])
@pytest.mark.parametrize(("invalid", "code"), [("count", 0), ("raise", 1)])
def test_events_that_could_not_be_read_back_are_refused_and_said_so(
    folder: Path, landing: list[str], invalid: str, code: int
) -> None:
    """They come from a link that does not check what it delivers."""
    (folder / "road.py").write_text(TYPES + ODD_LINK)
    done = genus("record", "loops", "--bus", "odd:", "--for", "0.3", "--invalid", invalid, *landing)
    assert done.returncode == code
    assert "2 events in loops" in done.stderr
    assert ", 2 events refused" in done.stderr
    assert "genus: refused 2: Loop.lane must be int64 (last: Loop.lane is 'three', but must be int64)\n" in done.stderr
    assert ("--invalid count goes on" in done.stderr) is (invalid == "raise")
    (file,) = [path for path in (folder / "loops", *(folder.glob("loops/*.genus"))) if path.is_file()]
    assert [one.event.lane for one in read_recording(file)] == [1, 2]  # type: ignore[attr-defined]


def test_nothing_is_said_of_subscribers_that_the_medium_cannot_know(folder: Path) -> None:
    (folder / "road.py").write_text(TYPES + ODD_LINK)
    assert genus("pub", "Loop", "lane=1", "--bus", "odd:").stderr == "published 1 event\n"


@pytest.mark.slow
def test_replaying_onto_the_bus(listening: Running) -> None:
    running = Running("record", "loops.genus", "--for", "30", "--compress", "zstd", "--flush", "50ms")
    running.wait_until_it_listens()
    for lane in ("1", "7"):
        genus("pub", "Loop", f"lane={lane}")
    while len(list(read_recording("loops.genus"))) < 2:
        assert running.process.poll() is None
    running.end(signal.SIGINT)
    done = genus("replay", "loops.genus", "--speed", "1000")
    assert "replayed 2 of 2 events; reached 1 process" in done.stderr
    out, _, _ = listening.end()
    assert [json.loads(line)["lane"] for line in out.splitlines()] == [7, 7]


def test_replay_says_which_values_were_not_read() -> None:
    """As after an attribute was renamed without `Renamed`; with it they are read."""
    with RecordingWriter("loops.genus") as recording:
        for speed in (30.0, None, 50.0):
            recording.write(make_event(event_type("Loop", load_types("road.py")), {"lane": 1, "speed": speed}), 0)
    for name, annotation in (("renamed", "Maybe[float]"), ("kept", "Maybe[Annotated[float, Renamed('speed')]]")):
        text = TYPES.replace("speed: Maybe[float]", f"velocity: {annotation}")
        Path(f"{name}.py").write_text(f"from typing import Annotated\nfrom genus import Renamed\n{text}")
    done = genus("replay", "-t", "renamed.py", "loops.genus", "--print")
    line = "genus: 2 values of Loop.speed were not read: the class has no attribute of that name; did velocity replace"
    assert done.stderr.count("were not read") == 1
    assert line in done.stderr
    assert "replayed 3 of 3 events" in done.stderr
    kept = genus("replay", "-t", "kept.py", "loops.genus", "--print")
    assert "not read" not in kept.stderr
    assert kept.stdout.count("velocity=") == 2


def test_a_damaged_recording_is_replayed_and_said_so() -> None:
    running = Running("record", "loops.genus")
    running.wait_until_it_listens()
    for lane in (1, 2):
        genus("pub", "Loop", f"lane={lane}")
        while len(list(read_recording("loops.genus"))) < lane:
            assert running.process.poll() is None
    process = running.process
    process.kill()
    process.communicate()
    data = Path("loops.genus").read_bytes()
    Path("loops.genus").write_bytes(data[:-3])
    done = genus("replay", "loops.genus", "--print")
    assert done.stdout == "Loop(lane=1)\n"
    assert "truncated at byte" in done.stderr
    assert "1 of 1 events lost" in done.stderr
    assert "replayed 1 of 1 event" in done.stderr
    assert done.returncode == 3


def test_explain_shows_every_target() -> None:
    done = genus("explain", "Loop has place where speed > 30")
    assert "def matches(e):  # Loop" in done.stdout
    assert "arrow" in done.stdout
    Path("subs.txt").write_text("# who wants what\nLoop\nCamera where lane == 1\n\nexact Loop\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sub", "Loop where"], "expected a value, found the end (column 11)"),
        (["sub", "Nothing"], "no event type is called Nothing"),
        (["sub", "--bus", "pigeon:"], "'pigeon:' is not an address of a bus"),
        (["pub", "Nothing"], "no event type is called Nothing; known: Camera, Loop"),
        (["pub", "Roadside"], "Roadside is a kind and has no events of its own; its event types: Loop, Camera"),
        (["pub", "Loop"], "not a Loop: Loop requires lane, but 'lane' was not given"),
        (["pub", "Loop", "lane=1", "category=lorry"], "category cannot be 'lorry'; it is one of 'truck', 'car'"),
        (["pub", "Loop", "lane=two"], "lane"),
        (["pub", "Loop", "lane=1", "weight=3"], "Loop has no attribute weight; it has time"),
        (["pub", "Loop", "lane"], "ATTRIBUTE=VALUE"),
        (["pub", "Loop", "lane=1", "time=2026-01-01T00:00:00"], "time"),
        (["replay", "nothing.genus"], "nothing.genus"),
        (["replay", "road.py"], "road.py is not a recording"),
        (["record", "road.py"], "road.py exists"),
        (["record", "no/folder.genus"], "cannot write no/folder.genus"),
        (["explain", "--target", "abacus", "Loop"], "'abacus' is not one of 'python', 'arrow', 'index'"),
        (["sub", "-t", "missing.py"], "missing.py"),
        (["sub", "-t", "json"], "declares no event types"),
        (["frobnicate"], "No such command"),
        (["pub", "Loop", "lane=1", "lane=2"], "'lane' is given twice"),
        (["pub", "Loop", "lane=1", "time=2020"], "time"),
        (["pub", "Loop", "lane=1", "--stdin"], "not both"),
        (["pub", "Loop", "lane=1", "--bus", "local:"], "local: stays within this command"),
        (["replay", "road.py", "--json"], "--json goes with --print"),
    ],
)
def test_bad_input_is_one_clear_message_and_a_failure(arguments: list[str], message: str) -> None:
    done = genus(*arguments)
    assert done.returncode not in (0, 3)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_events_of_unknown_types_alone_are_a_failure() -> None:
    running = Running("record", "loops.genus")
    running.wait_until_it_listens()
    genus("pub", "Loop", "lane=1")
    while b"lane" not in Path("loops.genus").read_bytes():
        assert running.process.poll() is None
    running.end(signal.SIGINT)
    Path("other.py").write_text("from genus import Event\nclass Lamp(Event):\n    on: bool\n")
    done = genus("replay", "-t", "other.py", "loops.genus", "--print")
    assert "skipped 1: unknown type Loop" in done.stderr
    assert "replayed 0 of 1 event" in done.stderr
    assert "none of the events in loops.genus is of the types in other.py" in done.stderr
    assert done.returncode == 1


def test_events_of_the_types_that_cannot_be_read_are_named() -> None:
    """The recording is of an older version of the type."""
    with RecordingWriter("loops.genus") as writer:
        writer.write(make_event(event_type("Loop", load_types("road.py")), {"lane": 1}), 0)
    Path("newer.py").write_text("from genus import Event\nclass Loop(Event):\n    lane: str\n")
    done = genus("replay", "-t", "newer.py", "loops.genus", "--print")
    assert "skipped 1: not a Loop: Expected `str`, got `int` - at `$.lane`" in done.stderr
    assert "none of the events in loops.genus can be read as the types in newer.py: not a Loop" in done.stderr
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    command = [sys.executable, "-m", "genus", "types", "road.py"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr == "genus: [Errno 28] No space left on device\n"
    assert done.returncode == 1


def test_lines_that_are_no_events_are_refused_with_their_number() -> None:
    done = genus("pub", "Loop", "--stdin", given='{"lane": 1}\nnonsense\n')
    assert done.returncode == 1
    assert "line 2 is not JSON" in done.stderr
    done = genus("pub", "Loop", "--stdin", given='{"lane": 1}\n{"lane": "x"}\n')
    assert "line 2: not a Loop: lane: Expected `int`" in done.stderr
    assert "(1 published before)" in done.stderr
