"""`genus can broker`, `node` and `monitor`, each in a process of its own, on a multicast bus."""

import json
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from genus import open_bus
from genus.errors import BusError
from genus.testing import run_command as genus

TYPES = """
from genus import Event, Maybe, UInt8

class Loop(Event):
    lane: UInt8
    speed: Maybe[UInt8] = None
"""
GROUP = "239.74.163.10"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "road.py").write_text(TYPES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENUS_TYPES", "road.py")
    assert genus("catalog", "register", "city.json", "road.py").returncode == 0


@pytest.fixture
def address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        found = f"can:udp_multicast?channel={GROUP}&port={free.getsockname()[1]}"
    try:
        open_bus(found).close()
    except BusError as problem:
        pytest.skip(f"no multicast here: {problem}")
    return found


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "genus", *arguments]


class Running:
    """A command that goes on until it is told to stop."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def says(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> tuple[str, str, int]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=120)
        return out, err, self.process.returncode


@pytest.fixture
def broker(address: str) -> Iterator[Running]:
    running = Running("can", "broker", address, "--catalog", "city.json", "--tables", "broker.json")
    try:
        assert "broker of 2 types" in running.says()
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def test_nodes_meet_through_a_broker_and_a_monitor_sees_them(address: str, broker: Running) -> None:
    monitor = Running("can", "monitor", address, "--catalog", "city.json", "--json")
    assert monitor.says() == f"listening on {address}\n"
    listener = Running("can", "node", f"{address}&name=logger", "--subscribe", "Loop where lane > 1", "--json")
    assert "listening" in listener.says()
    lines = "".join(f'{{"lane": {lane}, "speed": 80}}\n' for lane in (1, 2, 3))
    while True:  # the listener hears nothing until the broker gave it the catalog
        published = genus(
            "can", "node", f"{address}&name=sensor", "--publish", "Loop", "--qos", "soft:20ms:100ms", given=lines
        )
        assert published.returncode == 0, published.stderr
        assert "published 3" in published.stderr
        assert listener.process.stdout is not None
        if listener.process.stdout.readline():
            break
    heard, _, code = listener.end()
    assert code == 0
    assert all(json.loads(line)["lane"] in (2, 3) for line in heard.splitlines())
    seen, problem, code = monitor.end()
    assert (code, problem) == (0, "")
    (line,) = json.loads(seen)["channels"]
    assert (line["channel"], line["qos"], line["lost"]) == ("Loop", "SOFT", 0)
    assert line["events"] == line["reported"]
    _, said, code = broker.end()
    assert code == 0
    assert "nodes known: 2, channels announced: 1" in said
    assert "soft" in Path("broker.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("broker", "ipc:", "--catalog", "city.json", "--tables", "t.json"), "is no CAN bus", 2),
        (("broker", "can:virtual", "--catalog", "none.json", "--tables", "t.json"), "does not exist", 2),
        (("broker", "can:virtual", "--catalog", "city.json", "--tables", "road.py"), "road.py", 1),
        (("monitor", "can:nowhere"), "cannot be opened", 1),
        (("node", "can:virtual"), "give --subscribe, --publish or both", 2),
        (("node", "can:virtual", "--publish", "Loop", "--qos", "soft"), "lacks its deadline", 2),
        (("node", "can:virtual", "--publish", "Loop", "--qos", "soft:soon"), "deadline is 'soon'; write seconds", 2),
        (("node", "can:virtual?plan=none.toml", "--subscribe", "Loop"), "none.toml", 1),
        (("node", "can:virtual", "--subscribe", "Loop where"), "Loop where", 1),
    ],
)
def test_wrong_use_is_one_clear_line(arguments: tuple[str, ...], message: str, code: int) -> None:
    done = genus("can", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_subscription_that_cannot_be_bound_gives_exit_code_1() -> None:
    Path("later.py").write_text("from genus import Event\n\nclass Later(Event):\n    lane: int\n")
    bus = "can:virtual?number=3&catalog=city.json&synchronised=no"
    done = genus("can", "node", bus, "-t", "later.py", "--subscribe", "Later", "--for", "0.1")
    assert (done.returncode, "binding failed: channel Later" in done.stderr) == (1, True), done.stderr
    assert genus("can", "node", bus, "--subscribe", "Loop", "--for", "0.1").returncode == 0


@pytest.mark.slow
def test_two_brokers_do_not_share_their_tables(address: str, broker: Running) -> None:
    done = genus("can", "broker", address, "--catalog", "city.json", "--tables", "broker.json")
    assert done.returncode == 1
    assert "broker.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_listener_says_that_no_broker_answers(address: str) -> None:
    done = genus("can", "node", address, "--subscribe", "Loop", "--for", "0.1")
    assert "no broker has answered yet" in done.stderr


def test_lines_that_are_no_events_are_said_and_the_others_published(address: str) -> None:
    lines = '{"lane": 1}\n{"lane": 9999}\n{"lane": 2}\n'
    there = f"{address}&number=1&catalog=city.json"
    done = genus("can", "node", there, "--publish", "Loop", given=lines)
    assert done.returncode == 1
    assert "published 2, refused 1" in done.stderr
    assert "event 2: not a Loop: lane" in done.stderr


def test_help_tells_the_story_in_order() -> None:
    said = genus("can", "--help").stdout
    places = [said.index(f"  {name} ") for name in ("plan", "sim", "broker", "node", "monitor", "types", "decode")]
    assert places == sorted(places)


J1939_MESSAGE = """VERSION ""
BU_: Brakes
BO_ 2348810251 TSC1: 8 Brakes
 SG_ speed : 8|16@1+ (0.125,0) [0|8031] "rpm" Vector__XXX
"""


def test_decoding_mentions_what_is_wrong_with_the_database(tmp_path: Path) -> None:
    """One problem is shown, such as that of a J1939 file which does not say so; several are counted."""
    (tmp_path / "truck.dbc").write_text(J1939_MESSAGE)
    (tmp_path / "truck.log").write_text("(1700000000.000000) can0 0C000010#0000000000000000\n")
    asked = ("can", "decode", "--dbc", "truck.dbc", "truck.log", "-s", "TSC1 where source == 16", "--json")
    refused = genus(*asked)
    assert refused.returncode == 1
    assert "truck.dbc: 1 of 1 messages" in refused.stderr
    assert "(--j1939)" in refused.stderr
    assert json.loads(genus(*asked, "--j1939").stdout)["source"] == 16

    (tmp_path / "truck.dbc").write_text(J1939_MESSAGE.replace("(0.125,0)", "(.125,0)"))
    assert "genus: truck.dbc: 1 repair; `genus can types truck.dbc` lists them" in genus(*asked).stderr


def test_decoding_counts_frames_by_channel_and_direction_also_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "truck.dbc").write_text(J1939_MESSAGE)
    frame = "(1700000000.000000) {} 0C000010#0000000000000000{}\n".format
    lines = [frame("can0", " R"), frame("can0", " R"), frame("can0", " T"), frame("can1", "")]
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("truck.log", "".join(lines))
        archive.writestr("notes.txt", "none")
    asked = ("can", "decode", "--dbc", "truck.dbc", "--j1939")
    shown = genus(*asked, "logs.zip/truck.log").stdout
    rows = [line.split() for line in shown.splitlines() if line.strip().startswith("channel")]
    assert rows == [["channel", "can0", "rx", "2"], ["channel", "can0", "tx", "1"], ["channel", "can1", "1"]]
    refused = genus(*asked, "logs.zip")
    assert refused.returncode == 1
    assert "a zip archive of 2 files: notes.txt, truck.log" in refused.stderr


def test_without_types_a_database_in_the_address_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENUS_TYPES")
    refused = genus("sub", "--bus", "can:udp_multicast", "Loop")
    assert refused.returncode == 2
    assert "database=FILE" in refused.stderr
