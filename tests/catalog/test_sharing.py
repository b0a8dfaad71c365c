"""Many processes, one file: nothing is lost, nothing is given twice, and the dead leave no harm."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from genus.catalog import Catalog
from genus.catalog._file import lock_file
from genus.errors import CatalogUnavailable, NotRegistered

from .declaring import event_type

MAKE = """
import os, signal, sys
from genus import Event
from genus.catalog import Catalog, _file as store
path, me = sys.argv[1:3]
def event_type(name, **fields):
    return type(Event)(name, (Event,), {"__annotations__": fields, "__module__": "made"})
"""

REGISTER_MANY = """
for turn in range(8):
    shared = event_type(f"Shared{turn}", x=int)
    Catalog.update(path, shared, event_type(f"Own{me}x{turn}", y=str), timeout=60)
"""

DIE = "lambda *_: os.kill(os.getpid(), signal.SIGKILL)"

DEATHS = {
    "half written": f"os.fsync = {DIE}",
    "before it takes its place": f"os.replace = {DIE}",
    "after it took its place": f"store._sync_folder = {DIE}",
    "while it writes": "store._write = lambda path, data, mode: (open(path, 'wb').write(data[:9]), os.abort())",
}


def start(script: str, *arguments: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", MAKE + script, *map(str, arguments)], stderr=subprocess.PIPE)


def finish(process: "subprocess.Popen[bytes]") -> int:
    _, errors = process.communicate(timeout=60)
    assert not errors, errors.decode()
    return process.returncode


def test_processes_that_register_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    running = [start(REGISTER_MANY, path, number) for number in range(4)]
    assert [finish(process) for process in running] == [0, 0, 0, 0]
    catalog = Catalog.load(path)
    wanted = {f"Shared{turn}" for turn in range(8)} | {f"Own{me}x{turn}" for me in range(4) for turn in range(8)}
    assert set(catalog.types) == {"Event"} | wanted
    assert len({catalog.code(name) for name in catalog.types}) == len(catalog.types)
    assert len({catalog.etag(name) for name in catalog.types}) == len(catalog.types)


def test_threads_take_turns_as_well(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    types = [event_type(f"Type{number}") for number in range(12)]
    threads = [threading.Thread(target=Catalog.update, args=(path, cls, types[0])) for cls in types]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Catalog.load(path).types) == {"Event", *(f"Type{number}" for number in range(12))}


@pytest.mark.parametrize("moment", DEATHS)
def test_a_process_killed_while_it_writes_leaves_a_whole_file_and_no_lock(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "catalog.json"
    Catalog.update(path, event_type("Before"))
    process = start(f"{DEATHS[moment]}\nCatalog.update(path, event_type('Victim'))", path, 0)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGKILL, -signal.SIGABRT)
    assert Catalog.load(path).types[:2] == ("Event", "Before")
    after, _ = Catalog.update(path, event_type("After"), timeout=30)
    assert after.types[-1] == "After"
    assert ("Victim" in after.types) == (moment == "after it took its place")
    assert sorted(os.listdir(tmp_path)) == ["catalog.json", "catalog.json.lock"]


def test_a_process_killed_at_any_time_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    Catalog().save(path)
    endless = "print(flush=True)\nfor turn in range(10**6): Catalog.update(path, event_type(f'Own{me}x{turn}'))"
    known: tuple[str, ...] = ("Event",)
    for me in range(3):
        command = [sys.executable, "-c", MAKE + endless, str(path), str(me)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while f"Own{me}x{me}" not in Catalog.load(path).types:
                assert process.poll() is None
            process.kill()
        types = Catalog.load(path).types
        assert types[: len(known)] == known
        known = types
    Catalog.update(path, event_type("After"), timeout=30)


def test_waiting_too_long_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "catalog.json")
    with (
        lock_file(path, timeout=30),
        pytest.raises(CatalogUnavailable, match=r"held .*catalog\.json\.lock for 0\.02 s"),
    ):
        Catalog.update(path, event_type("Late"), timeout="20ms")
    Catalog.update(path, event_type("Late"), timeout=0.02)


def test_what_is_registered_already_needs_no_lock_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    cls = event_type("Known")
    Catalog.update(path, cls)
    before = path.stat()
    with lock_file(str(path), timeout=30):
        catalog, added = Catalog.update(path, cls, timeout=0)
    assert not added
    assert "Known" in catalog
    assert path.stat().st_ino == before.st_ino


def test_a_full_disk_is_an_error_and_the_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalog.json"
    Catalog().save(path)
    data = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CatalogUnavailable, match=r"catalog\.json: cannot be written: No space left on device"):
        Catalog.update(path, event_type("More"))
    assert path.read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == ["catalog.json", "catalog.json.lock"]


def test_an_error_while_editing_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    with pytest.raises(NotRegistered), Catalog.editing(path) as catalog:
        catalog.deprecate(next(iter(catalog.register(event_type("Never")).types)) + "Known")
    assert not path.exists()
