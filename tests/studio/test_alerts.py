"""Alerts: which events are problems and for how long, what was not seen, and who is told."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Unit, open_bus
from genus.errors import BusError, SubscriptionError, SyntaxProblem
from genus.studio import open_studio
from genus.studio._alerts import TESTED, Alerts, Webhook
from genus.studio._health import RECENT_S
from genus.studio._layout import MAX_ALERTS, MAX_NAME
from genus.studio._questions import Questions
from genus.studio._taps import RING, Taps
from genus.studio.types import Alert, AlertRow, Layout, ProblemRow
from tests.examples import examples
from tests.studio.made_sources import Clock, MadeSource
from tests.studio.pages import ask


class AlertTank(Event, name="alerts.Tank"):
    level: Annotated[float, Unit("m")]
    tank: Maybe[int] = None


FULL = Alert(subscription="alerts.Tank where level > 11", name="full", severity="bad")


class Plant:
    """Two sources with alerts over them, and a clock that the test moves."""

    def __init__(self, webhook: Webhook | None = None) -> None:
        self.clock = Clock()
        self.sources = [MadeSource("north", [AlertTank]), MadeSource("south", [AlertTank])]
        self.taps = Taps(self.sources, self.clock)
        questions = Questions(known_types(self.sources), lambda: pytest.fail("no catalog is needed"))
        self.alerts = Alerts(
            self.sources, self.taps, questions.ask, webhook=webhook, clock=self.clock, wall=lambda: self.clock.now
        )

    def emit(self, *levels: float, at: int = 0) -> None:
        for level in levels:
            self.sources[at].emit(AlertTank(level=level, tank=3, place="hall"))
        self.taps.turn(wants_last=False)

    def problems(self) -> list[ProblemRow]:
        return [row for row in self.alerts.rows({"problems"})["problems"].values() if isinstance(row, ProblemRow)]

    def rows(self) -> list[AlertRow]:
        return [row for row in self.alerts.rows({"alerts"})["alerts"].values() if isinstance(row, AlertRow)]

    @property
    def tapped(self) -> list[str]:
        return [source.name for source in self.sources if source.receivers]


def known_types(sources: list[MadeSource]) -> Any:
    return lambda: {source.name: source.types() for source in sources}


def test_a_match_is_a_problem_until_some_seconds_after_the_last() -> None:
    plant = Plant()
    plant.alerts.add(FULL)
    plant.emit(10, 12)
    plant.clock.now += RECENT_S - 1
    plant.emit(11.5)
    [problem] = plant.problems()
    assert (problem.severity, problem.source, problem.count, problem.since_ms) == ("bad", "north", 2, 100_000)
    assert problem.what == "full: alerts.Tank, level 11.5 m, place hall"
    assert (problem.view, problem.of) == ("events", FULL.subscription)
    plant.clock.now += RECENT_S - 1
    assert plant.problems()
    plant.clock.now += 1
    assert not plant.problems()
    assert (plant.rows()[0].matched, plant.rows()[0].is_active) == (2, False)


def test_each_source_that_has_matches_is_a_problem_of_its_own() -> None:
    plant = Plant()
    plant.alerts.add(FULL)
    plant.alerts.add(Alert(subscription="alerts.Tank", sources=("south",)))
    plant.emit(12)
    plant.emit(12, 13, at=1)
    found = {(row.source, row.what.partition(":")[0]): row.count for row in plant.problems()}
    assert found == {("north", "full"): 1, ("south", "full"): 2, ("south", "alerts.Tank"): 2}


def test_a_source_whose_events_another_one_has_is_left_out_unless_it_is_named() -> None:
    plant = Plant()
    plant.sources[1].part_of = plant.sources[0]
    plant.alerts.add(FULL)
    assert plant.tapped == ["north"]
    plant.alerts.add(Alert(subscription="Event", sources=("south",)))
    plant.emit(12, at=1)
    assert [(row.source, row.of) for row in plant.problems()] == [("south", "Event")]


def test_events_are_taken_only_while_alerts_need_them() -> None:
    plant = Plant()
    assert plant.tapped == []
    key = plant.alerts.add(Alert(subscription="alerts.Tank", sources=("south",)))
    assert plant.tapped == ["south"]
    other = plant.alerts.add(FULL)
    assert plant.tapped == ["north", "south"]
    plant.alerts.remove(other)
    plant.alerts.remove(key)
    plant.taps.turn(wants_last=False)
    plant.clock.now += 60
    plant.taps.turn(wants_last=False)
    assert plant.tapped == []
    with pytest.raises(BusError, match="removed already"):
        plant.alerts.remove(key)


@given(st.lists(st.integers(0, 2 * RING), min_size=1, max_size=4), st.floats(0, 0.02))
@examples(20)
def test_what_is_seen_and_what_is_not_is_all_that_came(turns: list[int], slowness: float) -> None:
    """However many events come and however long a test takes: seen + unseen = came, and the unseen are said."""
    plant = Plant()
    plant.alerts.add(FULL)
    plant.alerts._cpu = slow(Clock(), slowness)
    event = AlertTank(level=12)
    for number in turns:
        for _ in range(number):
            plant.sources[0].emit(event)
        plant.taps.turn(wants_last=False)
    [row] = plant.rows()
    assert row.matched + row.unseen == sum(turns)
    assert row.matched >= min(sum(turns), TESTED)
    told = [problem.count for problem in plant.problems() if "did not see" in problem.what]
    assert told == ([row.unseen] if row.unseen else [])


def slow(clock: Clock, seconds: float) -> Callable[[], float]:
    def read() -> float:
        clock.now += seconds
        return clock.now

    return read


def test_an_alert_that_is_not_written_well_is_refused_at_once() -> None:
    """It would wait for ever."""
    with pytest.raises(SyntaxProblem, match="wher"):
        Plant().alerts.add(Alert(subscription="alerts.Tank wher level > 1"), "file")


def test_an_alert_of_a_file_waits_for_its_types() -> None:
    plant = Plant()
    plant.sources[0].declared = plant.sources[1].declared = []
    with pytest.raises(SubscriptionError, match=r"alerts\.Tank"):
        plant.alerts.add(FULL)
    plant.alerts.add(FULL, "file")
    assert ["does not run" in problem.what for problem in plant.problems()] == [True]
    plant.sources[1].declared = [AlertTank]
    assert not plant.problems()
    plant.emit(12, at=1)
    assert [problem.count for problem in plant.problems()] == [1]


def test_what_cannot_be_kept_is_refused() -> None:
    plant = Plant()
    plant.alerts.add(FULL)
    with pytest.raises(BusError, match="such an alert already"):
        plant.alerts.add(FULL)
    with pytest.raises(BusError, match="sources has 'east'; those with events are north, south"):
        plant.alerts.add(Alert(subscription="Event", sources=("east",)))
    for number in range(MAX_ALERTS - 1):
        plant.alerts.add(Alert(subscription="Event", name=str(number)))
    with pytest.raises(BusError, match="remove one"):
        plant.alerts.add(Alert(subscription="Event"))


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_page_adds_and_removes_alerts() -> None:
    with open_bus() as bus, open_studio(bus) as studio:
        added = {"action": "add", "text": "alerts.Tank where level > 11", "severity": "bad", "name": "full"}
        assert ask(studio, "/api/alerts", "POST", added, {}).status == 403  # without the header
        key = ask(studio, "/api/alerts", "POST", added).json["key"]
        [(found, row)] = ask(studio, "/api/alerts").json.items()
        assert (found, row["name"], row["origin"], row["severity"]) == (key, "full", "page", "bad")
        assert '[[alert]]\nname = "full"' in ask(studio, "/api/layout", "POST", {"view": "events"}).json["text"]
        assert ask(studio, "/api/alerts", "POST", {"action": "remove", "key": key}).json == {"ok": True}
        assert ask(studio, "/api/alerts").json == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"action": "add", "text": "Nothing", "severity": "bad"}, "no event type is called Nothing"),
        ({"action": "add", "text": "Event", "severity": "awful"}, "severity (warn or bad)"),
        ({"action": "add", "text": 3, "severity": "bad"}, "action is add"),
        ({"action": "add", "text": "Event", "severity": "bad", "name": "x" * (MAX_NAME + 1)}, "name is a text"),
        ({"action": "add", "text": "Event", "severity": "bad", "sources": "this process"}, "list of names"),
        ({"action": "add", "text": "Event", "severity": "bad", "sources": ["other"]}, "those with events are"),
        ({"action": "remove", "key": "alerts|9"}, "no such alert"),
        ({"action": "change"}, "action is add"),
        ([], "no JSON object"),
    ],
)
def test_what_a_page_sends_is_checked(body: object, message: str) -> None:
    with open_bus() as bus, open_studio(bus) as studio:
        answer = ask(studio, "/api/alerts", "POST", body)
        assert answer.status == 400
        assert message in answer.json["message"]
        assert ask(studio, "/api/alerts").json == {}


# -- the webhook -------------------------------------------------------------------------------------------------------


class Hook(ThreadingHTTPServer):
    """State: a server of alerts, with what it was told; `statuses` are its next answers, 204 after that."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HookRequest)
        self.told: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.arrived = threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self.server_port}/hook?key=s3cr3t"


class HookRequest(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Hook)
        content = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.told.append({"path": self.path, **content})
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("location", self.server.url)
        self.end_headers()
        self.server.arrived.release()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_webhook_is_told_when_an_alert_begins_and_ends() -> None:
    with hook() as server:
        plant = Plant(Webhook(server.url, pauses=[0], spacing=0))
        plant.alerts.add(FULL, "file")
        plant.alerts.add(Alert(subscription="alerts.Tank", webhook=False), "file")
        plant.alerts.add(Alert(subscription="alerts.Tank"), "page")
        plant.emit(12)
        assert server.arrived.acquire(timeout=10)
        plant.clock.now += RECENT_S
        plant.problems()
        assert server.arrived.acquire(timeout=10)
        plant.alerts.close()
    assert [(one["alert"], one["state"], one["count"]) for one in server.told] == [
        ("full", "active", 1),
        ("full", "ended", 1),
    ]
    assert server.told[0]["path"] == "/hook?key=s3cr3t"
    assert server.told[0]["event"]["values"]["level"] == "12"


def test_what_the_webhook_does_not_take_is_tried_again_and_a_problem() -> None:
    """A redirection is not followed: it counts as a failure, as a refused request does."""
    with hook() as server:
        server.statuses = [500, 302]
        webhook = Webhook(server.url, pauses=[0], spacing=0)
        plant = Plant(webhook)
        noted: list[Any] = []
        note = webhook._note

        def record(*args: Any) -> None:
            note(*args)
            noted.append(plant.problems()[-1].what if webhook.failing else None)

        webhook._note = record  # type: ignore[assignment]
        plant.alerts.add(FULL, "file")
        plant.emit(12)
        for _ in range(3):
            assert server.arrived.acquire(timeout=10)
        webhook.close()
        assert webhook._thread is not None
        webhook._thread.join(10)
    shown = f"alerts do not reach the webhook http://127.0.0.1:{server.server_port}: it answered"
    assert noted == [f"{shown} 500", f"{shown} 302", None]


def test_of_each_alert_one_message_waits_and_old_ones_are_given_up() -> None:
    with hook() as server:
        server.statuses = [500] * 3
        webhook = Webhook(server.url, pauses=[0], spacing=0, give_up=0)
        for key in "abc":
            webhook.tell(key, lambda key=key: {"key": key})  # type: ignore[misc]
        for _ in range(3):
            assert server.arrived.acquire(timeout=10)
        webhook.close()
        assert webhook._thread is not None
        webhook._thread.join(10)
    assert sorted(one["key"] for one in server.told) == ["a", "b", "c"]
    assert webhook.failing is not None
    assert webhook.failing.lost == 3
    webhook.tell("d", dict)
    assert len(server.told) == 3


def test_a_server_that_is_not_there_is_said() -> None:
    with Hook() as server:
        url = server.url
    webhook = Webhook(url, pauses=[0], spacing=0)
    assert webhook._post(b"{}") == "Connection refused"


def test_a_server_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a name that no server can have."""
    monkeypatch.setattr("genus.studio._alerts.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        webhook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert webhook._post(b"{}") == "no answer within 0.05 s"
    assert "label" in (Webhook("http://a..b/")._post(b"{}") or "")


def test_the_webhook_is_told_what_utf_8_cannot_carry() -> None:
    """Such as the name of a recording whose path is no UTF-8."""
    with hook() as server:
        webhook = Webhook(server.url, pauses=[0], spacing=0)
        webhook.tell("a", lambda: {"source": "\udcff"})
        assert server.arrived.acquire(timeout=10)
        webhook.close()
    assert [one["source"] for one in server.told] == ["\udcff"]


@pytest.mark.parametrize(
    "url",
    ["ftp://host/", "host", "http://", "http://user:hunter2@host/", "http://host:x/", "http://host/a b", "http://hö/"],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BusError, match="webhook") as refused:
        Webhook(url)
    assert "hunter2" not in str(refused.value)


def test_a_layout_brings_alerts_and_a_webhook() -> None:
    with hook() as server:
        layout = Layout(alerts=(FULL,), webhook=server.url, title="Plant")
        with open_bus() as bus, open_studio(bus, layout=layout) as studio:
            bus.publish(AlertTank(level=12))
            assert server.arrived.acquire(timeout=10)
            assert "s3cr3t" not in ask(studio, "/api/config").body.decode()
            assert "s3cr3t" not in ask(studio, "/api/layout", "POST", {}).body.decode()
    assert (server.told[0]["studio"], server.told[0]["source"]) == ("Plant", "this process")
