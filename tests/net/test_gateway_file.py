"""Files of gateways, and the command that runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genus import BestEffort, Soft
from genus.errors import BusError
from genus.net import RateLimit, load_gateway
from genus.testing import run_command as genus

TYPES = """
from genus import Event, Maybe, UInt8

class GateLoop(Event):
    lane: UInt8

class GateSign(Event):
    text: UInt8
"""
FILE = """
name = "pair"
types = ["gate_types.py"]

[[side]]
name = "road"
address = "local:"
export = ["GateLoop"]
interest = ["GateSign where text > 1"]
gateways = [5, 6]

[side.quality]
GateSign = "soft:20ms:100ms"
Event = "none"

[[side]]
name = "city"
address = "local:"
import = ["GateLoop", "GateSign"]
rate = {GateLoop = "10/min newest"}
spool = "spool/city"
spool_size = "1MB"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "gate_types.py").write_text(TYPES)
    (tmp_path / "city.toml").write_text(FILE)
    return tmp_path / "city.toml"


def test_a_file_says_all_that_a_program_can_say(file: Path) -> None:
    loaded = load_gateway(file)
    road, city = loaded.sides
    assert [cls.__name__ for cls in loaded.types] == ["GateLoop", "GateSign", "Event"]
    loop, sign, _ = loaded.types
    assert (loaded.name, road.name, road.export, road.imports) == ("pair", "road", (loop,), None)
    assert [str(one) for one in road.interest] == ["GateSign where text > 1"]
    assert road.gateways == (5, 6)
    assert next(iter(road.quality.items())) == (sign, Soft(deadline="20ms", expires="100ms"))
    assert list(road.quality.values())[1] == BestEffort()
    assert city.imports == (loop, sign)
    assert city.rate == {loop: RateLimit(10, 60.0, "newest")}
    assert (city.spool, city.spool_size) == (file.parent / "spool/city", 1_000_000)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("export =", "exports =", r"\[\[side\]\] 1: unknown key 'exports'; did you mean 'export'\?"),
        ("types =", "type =", "unknown key 'type'; did you mean 'types'?"),
        ('"gate_types.py"', '"nowhere.py"', "types: "),
        (
            'export = ["GateLoop"]',
            'export = ["GateLop"]',
            "export: no event type is called GateLop; did you",
        ),
        ('export = ["GateLoop"]', 'export = "GateLoop"', "export must be a list of texts, not 'GateLoop'"),
        ("text > 1", "txt > 1", "interest: .*txt"),
        ('"soft:20ms:100ms"', '"quick"', "quality: 'quick' is none of"),
        ('"10/min newest"', '"10/fortnight"', "rate: '10/fortnight' is not a rate"),
        ('"1MB"', '"much"', "spool_size is 'much'"),
        ("spool_size", "spool_bytes", "unknown key 'spool_bytes'; did you mean 'spool_size'?"),
        ('"1MB"', '"1kB"', "at least 16KiB"),
        ("[5, 6]", "[500]", "node numbers from 1 to 126"),
        ('name = "city"', 'name = "road"', "two sides are named 'road'"),
        ('address = "local:"\nexport', "export", r"\[\[side\]\] 1: address is missing"),
        ("interest =", "wants =", r"\[\[side\]\] 1: unknown key 'wants'; it is called 'interest' now"),
        ('name = "pair"', "name = 3", "name must be a text, not 3"),
        ('name = "pair"', "name = ", "city.toml"),
    ],
)
def test_what_is_wrong_is_named(file: Path, before: str, after: str, message: str) -> None:
    assert before in FILE
    file.write_text(FILE.replace(before, after, 1))
    with pytest.raises(BusError, match=message.replace("?", r"\?") if message.endswith("'?") else message):
        load_gateway(file)


def test_a_gateway_needs_two_sides(file: Path) -> None:
    file.write_text('[[side]]\naddress = "local:"')
    with pytest.raises(BusError, match=r"two tables \[\[side\]\] or more"):
        load_gateway(file)


def test_check_opens_no_bus(file: Path) -> None:
    file.write_text(FILE.replace('"local:"', '"nothing:at-all"'))
    result = genus("gateway", "--check", str(file))
    assert result.returncode == 0
    assert "3 types, 2 sides, doubled as pair: road (nothing:at-all)" in result.stdout
    file.write_text(FILE.replace("export =", "exports ="))
    assert genus("gateway", "--check", str(file)).returncode == 1
    assert genus("gateway", str(file.parent / "none.toml")).returncode == 2


def test_the_command_runs_for_a_time_and_says_what_it_did(file: Path) -> None:
    result = genus("gateway", str(file), "--for", "100ms", "--json")
    assert result.returncode == 0
    found = json.loads(result.stdout[result.stdout.index("{") :])
    assert [side["name"] for side in found["sides"]] == ["road", "city"]
    assert found["sides"][0]["asked"] == 1
    table = genus("gateway", str(file), "--for", "100ms")
    assert re.search(r"side +asked +heard +wanted +crossed +unwanted", table.stdout)
    assert re.search(r"city +0 +0 +0", table.stdout)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_in_order(file: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "genus", "gateway", str(file)]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ, **pipes) as process:  # type: ignore[call-overload]
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "gateway between local:, local:\n"
        process.send_signal(how)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
        assert "road" in output
    assert not list(file.parent.glob("spool/city/*.spool"))
