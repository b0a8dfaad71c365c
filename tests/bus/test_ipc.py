"""The bus between processes of one user on one machine."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genus import Event, open_bus
from genus.bus._ipc import ipc_folder
from genus.errors import BusError


class Beep(Event):
    tone: int


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


CHILD = """
import sys
from genus import Event, open_bus
class Beep(Event):
    tone: int
with open_bus("ipc:test") as bus:
    inbox = bus.collection(Beep).inbox(where="tone > 0")
    print("ready", flush=True)
    for _ in range(int(sys.argv[1])):
        event = inbox.get(timeout=120)
        bus.publish(Beep(tone=-event.tone))
"""


def test_events_go_to_another_process_and_back() -> None:
    with open_bus("ipc:test") as bus:
        beeps = bus.collection(Beep)
        answers = beeps.inbox(where="tone < 0")
        child = subprocess.Popen([sys.executable, "-c", CHILD, "3"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for tone in (1, 2, 3):
            beeps.publish(Beep(tone=tone))
        assert sorted(answers.get(timeout=120).tone for _ in range(3)) == [-3, -2, -1]
        assert child.wait(120) == 0
        child.stdout.close()
        assert bus.traffic().link["received"] == 3


def test_one_that_died_is_forgotten_and_blocks_nobody() -> None:
    with open_bus("ipc:test") as bus:
        child = subprocess.Popen([sys.executable, "-c", CHILD, "1"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
        child.wait()
        child.stdout.close()
        bus.publish(Beep(tone=1))
        bus.publish(Beep(tone=2))
        assert len(os.listdir(ipc_folder("test"))) == 1


def test_malformed_packets_are_counted_and_harm_nothing() -> None:
    with open_bus("ipc:test") as bus:
        inbox = bus.collection(Beep).inbox()
        (own,) = (path for path in ipc_folder("test").iterdir() if path.is_socket())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for junk in (b"junk", b"\xff" * 100, b"\x93\xa4Beep\x00\x81\xa4tone\xa1x", b"\x93\xa5Other\x00\x80"):
                stranger.sendto(junk, str(own))
        with open_bus("ipc:test") as other:
            other.publish(Beep(tone=7))
            assert inbox.get(timeout=120) == Beep(tone=7)
        rejected = {key: count for key, count in bus.traffic().link.items() if key.startswith("rejected")}
        assert sum(rejected.values()) == 4
        assert "rejected: unknown type Other" in rejected


def test_values_that_the_class_here_has_no_attribute_for_are_counted() -> None:
    """As from a process whose class is newer; the event itself is delivered."""
    with open_bus("ipc:test") as bus:
        inbox = bus.collection(Beep).inbox()
        (own,) = (path for path in ipc_folder("test").iterdir() if path.is_socket())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as newer:
            for volume in (3, 4, None):
                newer.sendto(msgspec.msgpack.encode(("Beep", 0, {"tone": 7, "volume": volume})), str(own))
        assert [inbox.get(timeout=120) for _ in range(3)] == [Beep(tone=7)] * 3
        assert bus.traffic().link["not read: Beep.volume"] == 2
        assert bus.traffic().link["received"] == 3


def test_a_receiver_that_stays_full_loses_events_and_the_sender_goes_on() -> None:
    with open_bus("ipc:test") as slow, open_bus("ipc:test") as bus:
        release = threading.Event()
        slow.collection(Beep).subscribe(lambda _: release.wait(120))
        for tone in range(20_000):
            bus.publish(Beep(tone=tone))
            if bus.traffic().link.get("dropped: receiver full"):
                break
        release.set()
        assert bus.traffic().link["dropped: receiver full"] >= 1


def test_its_own_events_come_once() -> None:
    with open_bus("ipc:test") as bus, open_bus("ipc:test"):
        found: list[Any] = []
        bus.collection(Beep).subscribe(found.append)
        bus.publish(Beep(tone=1))
        assert found == [Beep(tone=1)]


def test_a_name_that_is_a_path_is_refused() -> None:
    with pytest.raises(BusError, match="letters, digits"):
        open_bus("ipc:../../etc")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "genus").write_text("in the way")
    with pytest.raises(BusError, match="cannot open the bus in"):
        open_bus("ipc:test")
