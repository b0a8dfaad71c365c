"""A program of one age on a bus, for tests: `python -m tests.net.evolving_process ADDRESS FILE`.

FILE declares event types. Each line of the input is a command in JSON, each answered by a line of JSON:

* `{"subscribe": [TEXT, ...]}`: subscribe to these, each with a list of what came,
* `{"publish": [[TYPE, {ATTRIBUTE: VALUE, ...}], ...]}`: publish, once others want the first one of each type,
* `{"await": N}`: wait until so many events came for all subscriptions together, or for some seconds; answers with the
  lists of `[TYPE, [TYPES ABOVE], ATTRIBUTES]`, the problems and the counters of the link,
* `{"told": N}`: the same after so many problems.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0


class Program:
    """Such a program, from outside."""

    def __init__(self, address: str, file: Path) -> None:
        command = [sys.executable, "-m", "tests.net.evolving_process", address, str(file)]
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def ask(self, **command: Any) -> Any:
        self.send(**command)
        return self.answer()

    def send(self, **command: Any) -> None:
        _file(self._popen.stdin).write(json.dumps(command) + "\n")
        _file(self._popen.stdin).flush()

    def answer(self) -> Any:
        return json.loads(_file(self._popen.stdout).readline())

    def end(self) -> None:
        _file(self._popen.stdin).close()
        try:
            self._popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        _file(self._popen.stdout).close()


def _file(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found


def main(address: str, file: str) -> None:
    from genus import open_bus
    from genus.bus import parse_event
    from genus.model import is_type, name_of
    from genus.net import NetLink

    types: dict[str, Any] = {"__name__": "evolving"}
    exec(Path(file).read_text(), types)
    got: list[list[Any]] = []
    problems: list[Any] = []

    def as_json(event: Any) -> list[Any]:
        above = [name_of(each) for each in type(event).__mro__ if is_type(each)]
        values = {name: getattr(event, name) for name in event.__struct_fields__}
        plain = {name: getattr(value, "value", value) for name, value in values.items() if value is not None}
        return [name_of(type(event)), above, plain]

    with open_bus(address) as bus:
        link = bus.link
        assert isinstance(link, NetLink)

        def subscribe(texts: list[str]) -> int:
            for text in texts:
                got.append([])
                bus.subscribe(text, got[-1].append, on_problem=problems.append)
            return len(texts)

        def publish(events: list[tuple[str, dict[str, Any]]]) -> int:
            made = [parse_event(types[name], given) for name, given in events]
            for event in {type(event): event for event in made}.values():
                _wait(lambda event=event: link.wanted_by(event))  # type: ignore[misc]
            for event in made:
                bus.publish(event)
            return len(made)

        def wait(count: int, told_too: int = 0) -> list[Any]:
            _wait(lambda: sum(map(len, got)) >= count and len(problems) >= told_too)
            told = [[type(each).__name__, each.type, each.count, getattr(each, "reason", "")] for each in problems]
            return [[[as_json(event) for event in each] for each in got], told, dict(link.counters())]

        commands: dict[str, Callable[[Any], Any]] = {"subscribe": subscribe, "publish": publish, "await": wait}
        commands["told"] = lambda count: wait(0, count)
        for line in sys.stdin:
            ((name, given),) = json.loads(line).items()
            print(json.dumps(commands[name](given)), flush=True)


def _wait(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < ends:
        time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
