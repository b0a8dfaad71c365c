"""Doubled gateways that are killed again and again, between networks of any two links; counts what became of events.

The receiver is a process of its own, so that it can be stopped: one that does not take its packets while the active
gateway dies must still get them. It is run with an address as argument, and answers each line of its input.
"""

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from genus import Catalog, Event, Subscription, open_bus
from genus.bus import Bus
from genus.net import NetLink
from genus.net._envelope import MAX_HOPS
from genus.testing import MqttBroker
from tests.net.fault_counts import Counts
from tests.net.zenoh_network import free_port
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
BUSY = 2000
"""Events that are published while the receiver is stopped, at once."""


class KilledLoop(Event):
    number: int


# -- processes ---------------------------------------------------------------------------------------------------------


class GatewayProcess:
    """State: `genus gateway` in another process."""

    def __init__(self, file: Path) -> None:
        self._metrics = free_port()
        command = [sys.executable, "-m", "genus", "gateway", str(file), "--json", "--metrics", str(self._metrics)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def has_heard(self) -> bool:
        """Whether an event came to it from its first side."""
        with urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=10) as page:
            counts = re.findall(r'gateway_heard_total{side="road"} (\d+)', page.read().decode())
        return counts != ["0"]

    def wait_until_open(self) -> None:
        assert self.process.stderr is not None
        lines = [self.process.stderr.readline() for _ in range(2)]
        assert "metrics at" in lines[0], lines
        assert "gateway between" in lines[1], lines

    def end(self, how: signal.Signals) -> dict[str, Any]:
        """Its last words."""
        self.process.send_signal(how)
        output, _ = self.process.communicate(timeout=40)
        return dict(json.loads(output)) if output else {}

    def close(self) -> None:
        """End it, if it runs."""
        if self.process.poll() is None:
            self.end(signal.SIGTERM)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class ReceiverProcess:
    """State: a subscriber in another process, which can be stopped."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-m", "tests.net.gateway_kills", address]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._read() == "ready"

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self) -> tuple[int, int, int]:
        """Events delivered, how often they came again, and how many were told as lost."""
        assert self.process.stdin is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        delivered, doubled, told = self._read()
        return delivered, doubled, told

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


def receive(address: str) -> None:
    """Be the receiver."""
    got: Counter[int] = Counter()
    lost: list[int] = []
    with open_bus(address) as bus:
        bus.collection(KilledLoop).subscribe(
            lambda event: got.update([event.number]), on_problem=lambda problem: lost.append(problem.count)
        )
        print(json.dumps("ready"), flush=True)
        for _ in sys.stdin:
            seen = dict(got)
            seen.pop(-1, None)
            print(json.dumps([len(seen), sum(seen.values()) - len(seen), sum(lost)]), flush=True)


# -- the run -----------------------------------------------------------------------------------------------------------


@contextmanager
def networks(folder: Path, road: str, city: str) -> Iterator[tuple[str, str]]:
    """The addresses of two networks of these links that do not hear each other."""
    with MqttBroker() if "mqtt" in (road, city) else nullcontext() as broker:

        def address(link: str, realm: str) -> str:
            if link == "mqtt":
                assert broker is not None
                return f"mqtt://127.0.0.1:{broker.port}/{realm}"
            if link == "can":
                Catalog.update(folder / "can.json", KilledLoop)
                bus = f"can:udp_multicast?channel=239.74.163.13&port={free_port()}"
                return f"{bus}&catalog={folder / 'can.json'}&synchronised=no"
            return f"{link}:{realm}" if link == "ipc" else f"zenoh:{realm}?port={free_port()}"

        yield address(road, "road"), address(city, "city")


class Kills:
    """State: a publisher, a receiver, and two gateways between them, of which the active one is killed."""

    def __init__(self, folder: Path, road: str, city: str, seed: int, stack: ExitStack) -> None:
        self._folder, self._road, self._city = folder, road, city
        self._is_can = road.startswith("can:")
        self._random = random.Random(seed)
        self._told: list[int] = []
        self._sent = self._started = 0
        self._publisher = stack.enter_context(open_bus(self._road_of(1)))
        self._receiver = ReceiverProcess(city)
        stack.callback(self._receiver.close)
        self._observer = stack.enter_context(open_bus(city))
        self._channel = self._publisher.channel(KilledLoop, on_problem=lambda problem: self._told.append(problem.count))
        self._channel.announce()
        self._gateways: list[GatewayProcess] = []
        stack.callback(self.close)
        for _ in range(2):
            self._start()
        wait_for(lambda: self._have_roles(2, 1), "no gateway stands by")
        self._wait_for_filters()

    def _road_of(self, node: int) -> str:
        return f"{self._road}&number={node}" if self._is_can else self._road

    def _start(self) -> None:
        """Start a gateway; on CAN each has a node number of its own."""
        self._started += 1
        file = self._folder / f"pair{self._started}.toml"
        road, city = self._road_of(1 + self._started), self._city
        sides = f'[[side]]\nname = "road"\naddress = "{road}"\n[[side]]\naddress = "{city}"\n'
        file.write_text(f'name = "pair"\ntypes = ["tests.net.gateway_kills"]\n{sides}')
        self._gateways.append(GatewayProcess(file))
        self._gateways[-1].wait_until_open()

    def _have_roles(self, asking: int, watching: int) -> bool:
        """Whether so many gateways ask for the events, and so many watch them cross; on CAN nobody tells the first."""
        hops = [interest.hops for interest in _interests(self._observer)]
        is_asked = self._is_can or len(_interests(self._publisher)) == asking
        return is_asked and hops.count(MAX_HOPS) == watching

    def _wait_for_filters(self) -> None:
        """Publish events that do not count until all gateways hear them: acceptance filters of CAN take some time."""
        while self._is_can and not all(gateway.has_heard() for gateway in self._gateways):
            self._channel.publish(KilledLoop(number=-1))
            time.sleep(0.05)

    def kill(self, is_busy: bool) -> None:
        """Kill the active gateway while events flow; with `is_busy`, while the receiver takes none."""
        victim = self._gateways[0]
        count = BUSY if is_busy and not self._is_can else 200
        dies_at, stops_at = self._random.randrange(count), self._random.randrange(count // 4)
        for number in range(count):
            if is_busy and number == stops_at:
                self._receiver.process.send_signal(signal.SIGSTOP)
            self._channel.publish(KilledLoop(number=self._sent))
            self._sent += 1
            if number == dies_at:
                victim.process.kill()
            if count < BUSY:
                time.sleep(self._random.uniform(0, 0.004 if self._is_can else 0.001))
        time.sleep(self._random.uniform(0, 0.3))
        self._receiver.process.send_signal(signal.SIGCONT)
        self._gateways.remove(victim)
        victim.close()
        wait_for(lambda: self._have_roles(1, 0), "no gateway takes over")
        self._start()
        wait_for(lambda: self._have_roles(2, 1), "no gateway stands by again")
        self._wait_for_filters()

    def close(self) -> None:
        """End the gateways."""
        for each in self._gateways:
            each.close()

    def counts(self) -> Counts:
        """What became of all events, when that is known."""
        ends = time.monotonic() + 60
        while sum(self._receiver.ask()[::2]) < self._sent and time.monotonic() < ends:
            time.sleep(0.05)
        time.sleep(1.5)  # what comes twice, or is told twice, does so within a second
        delivered, doubled, told = self._receiver.ask()
        return Counts(self._sent, delivered, doubled, told, sum(self._told))


def _interests(bus: Bus) -> list[Any]:
    """What others want of the events that count."""
    assert isinstance(bus.link, NetLink)
    return [interest for interest in bus.link.interests() if interest.subscription == Subscription(KilledLoop)]


def run(folder: Path, road: str, city: str, kills: int, seed: int = 1) -> Counts:
    """Kill the active gateway so many times, every second time while the receiver is busy."""
    folder.mkdir(parents=True, exist_ok=True)
    with networks(folder, road, city) as addresses, ExitStack() as stack:
        made = Kills(folder, *addresses, seed, stack)
        for number in range(kills):
            made.kill(is_busy=number % 2 == 0)
        return made.counts()


if __name__ == "__main__":
    receive(sys.argv[1])
