"""The server: tables, events by a subscription, plots, changes, and pages that do not keep up."""

import gc
import json
import logging
import math
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import pytest

from genus import Bus, Event, Kind, Maybe, Unit, open_bus
from genus.errors import BusError
from genus.studio import Studio, open_studio
from genus.studio._app import MAX_ASKING
from genus.studio.types import TABLES, ChannelRow
from tests.examples import some_of
from tests.studio.made_sources import MadeSource
from tests.studio.pages import Page, ask, stream
from tests.waiting import wait_for

PATIENCE_S = 20.0


class Roadside(Kind, name="studio.Roadside"): ...


class StudioLoop(Event, Roadside, name="studio.Loop"):
    """A loop in the road."""

    lane: int
    speed: Annotated[Maybe[float], Unit("m/s")] = None
    note: Maybe[str] = None


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus() as made:
        yield made


@pytest.fixture
def studio(bus: Bus) -> Iterator[Studio]:
    with open_studio(bus, allow_publish=True) as made:
        yield made


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_table_is_json(studio: Studio) -> None:
    for table in TABLES:
        answer = ask(studio, f"/api/{table}")
        assert (answer.status, type(answer.json)) == (200, dict)


def test_the_page_and_its_files_are_served(studio: Studio) -> None:
    page = ask(studio, "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert ask(studio, "/page/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/page/../_studio.py", "/page/%2e%2e/_studio.py", "/page//etc/passwd", "/nothing"])
def test_nothing_but_the_files_of_the_page_is_served(studio: Studio, path: str) -> None:
    assert ask(studio, path).status == 404


def test_a_stream_begins_with_a_snapshot_and_goes_on_with_changes(bus: Bus, studio: Studio) -> None:
    page = Page()
    with stream(studio, "/api/stream?tables=channels,sources") as found:
        page.take(*next(found))
        for number in range(5):
            bus.publish(StudioLoop(lane=number))
        while page.tables["channels"].get("this process|studio.Loop|", {}).get("events") != 5:
            page.take(*next(found))
    assert page.snapshots == 1
    assert page.changes >= 1


@pytest.mark.slow
def test_subscriptions_that_come_and_go_are_rows_that_come_and_go(bus: Bus, studio: Studio) -> None:
    page = Page()
    with stream(studio, "/api/stream?tables=subscriptions") as found:
        page.take(*next(found))
        inbox = bus.inbox("studio.Loop where lane > 1", capacity=3)
        while not page.tables["subscriptions"]:
            page.take(*next(found))
        (row,) = page.tables["subscriptions"].values()
        assert (row["text"], row["capacity"]) == ("studio.Loop where lane > 1", 3)
        inbox.cancel()
        while page.tables["subscriptions"]:
            page.take(*next(found))


def test_unknown_tables_and_wrong_numbers_are_refused_with_advice(studio: Studio) -> None:
    assert "channels" in ask(studio, "/api/stream?tables=chanels").json["message"]
    assert "channels" in ask(studio, "/api/chanels").json["message"]
    assert ask(studio, "/api/can?source=this+process").status == 400
    assert ask(studio, "/api/events?q=studio.Loop&most=many").status == 400
    assert ask(studio, "/api/events?source=nobody").status == 404


# -- pages that do not keep up -----------------------------------------------------------------------------------------


class BusySource(MadeSource):
    """A source all of whose rows change every turn."""

    def __init__(self, channels: int) -> None:
        super().__init__("busy")
        self.turns, self._channels = 0, channels

    def rows(self, wanted: Any) -> Any:
        self.turns += 1
        if "channels" not in wanted:
            return super().rows(wanted)
        rows = {
            f"busy|{number}|": ChannelRow(source="busy", type="T" * 50, events=self.turns)
            for number in range(self._channels)
        }
        return {"channels": rows}


def test_a_page_that_stopped_reading_gets_a_snapshot_and_no_backlog() -> None:
    """What is held for it stays small; when it reads again, it is at the present after a snapshot."""
    source = BusySource(500)
    with open_studio(source) as studio, socket.socket() as page:
        page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        page.settimeout(10)
        page.connect((studio.host, studio.port))
        page.sendall(b"GET /api/stream?tables=channels HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: studio.pages == 1)
        began = source.turns
        wait_for(lambda: source.turns > began + 40)
        stopped_at = source.turns
        received = b""
        while received.count(b"event: snapshot") < 2:
            received += page.recv(1 << 16)
        sent = received.count(b"event: change")
        assert sent < 30, "changes were queued for a page that did not read"
        assert len(received) < 4_000_000
        tail = b""
        while b"\n\n" not in tail:
            tail += page.recv(1 << 16)
        events = [
            int(part.split(b",")[0].rstrip(b"}"))
            for part in received.rpartition(b"snapshot")[2].split(b'"events":')[1:]
        ]
        assert max(events) >= stopped_at


def test_pages_that_leave_are_forgotten(studio: Studio) -> None:
    with stream(studio, "/api/stream?tables=channels") as found:
        next(found)
        assert studio.pages == 1
    wait_for(lambda: studio.pages == 0)


def test_ten_pages_get_the_same(bus: Bus, studio: Studio) -> None:
    counts: list[int] = []

    def look() -> None:
        page = Page()
        with stream(studio, "/api/stream?tables=channels") as found:
            page.take(*next(found))
            while page.tables["channels"].get("this process|studio.Loop|", {}).get("events") != 7:
                page.take(*next(found))
        counts.append(page.tables["channels"]["this process|studio.Loop|"]["events"])

    threads = [threading.Thread(target=look) for _ in range(10)]
    for thread in threads:
        thread.start()
    wait_for(lambda: studio.pages == 10)
    for number in range(7):
        bus.publish(StudioLoop(lane=number))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert counts == [7] * 10


# -- events ------------------------------------------------------------------------------------------------------------


def first_events(found: Iterator[tuple[str, Any]], number: int) -> list[Any]:
    events: list[Any] = []
    while len(events) < number:
        _, data = next(found)
        events += data["events"]
    return events


def has_tap(bus: Bus) -> bool:
    return any(str(each.subscription) == "Event" for each in bus.listeners())


def test_nothing_listens_on_a_bus_until_events_are_asked_for(bus: Bus, studio: Studio) -> None:
    with stream(studio, "/api/stream?tables=channels,sources,subscriptions,problems") as found:
        next(found)
        assert not has_tap(bus)
    with stream(studio, "/api/events/stream?q=studio.Loop") as found:
        next(found)
        assert has_tap(bus)


def test_events_that_match_are_shown_with_exact_values(bus: Bus, studio: Studio) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    with stream(studio, "/api/events/stream?q=studio.Loop+where+lane+%3E+1") as found:
        next(found)
        bus.publish(StudioLoop(lane=1))
        bus.publish(StudioLoop(lane=2**63 - 1, speed=math.nan, note=hostile))
        (event,) = first_events(found, 1)
    assert event["values"] == {"lane": "9223372036854775807", "speed": "nan", "note": hostile}
    assert event["numbers"] == {"lane": float(2**63 - 1)}
    assert event["type"] == "studio.Loop"


def test_why_not_names_the_part_that_fails(bus: Bus, studio: Studio) -> None:
    with stream(studio, "/api/events/stream?q=studio.Loop+has+note+where+lane+%3E+1&others=1") as found:
        next(found)
        bus.publish(StudioLoop(lane=1))
        bus.publish(Event())
        loop, other = first_events(found, 2)
    assert [(why["stage"], why["part"]) for why in loop["why"]] == [("has", "note"), ("where", "lane > 1")]
    assert [why["stage"] for why in other["why"]] == ["type"]


def test_an_event_whose_value_has_another_type_matches_nothing_and_breaks_nothing(bus: Bus, studio: Studio) -> None:
    with stream(studio, "/api/events/stream?q=studio.Loop+where+lane+%3E+1") as found:
        next(found)
        bus.publish(StudioLoop(lane="many"))  # type: ignore[arg-type]
        bus.publish(StudioLoop(lane=5))
        (event,) = first_events(found, 1)
    assert event["values"]["lane"] == "5"


def test_more_events_than_a_page_can_show_are_counted(bus: Bus, studio: Studio) -> None:
    with stream(studio, "/api/events/stream?q=studio.Loop") as found:
        next(found)
        for number in range(5000):
            bus.publish(StudioLoop(lane=number))
        data: dict[str, Any] = {"seen": 0}
        shown = 0
        while data["seen"] < 5000:
            _, data = next(found)
            assert len(data["events"]) <= 100
            shown += len(data["events"])
    assert data["matched"] == shown + data["unshown"]
    assert data["matched"] + data["unmatched"] + data["unread"] == 5000


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("cannot be said")


ODD_VALUES: dict[str, dict[str, Any]] = {
    "a time without a zone": {"time": datetime(2026, 1, 1)},
    "a time before all others": {"time": datetime.min},
    "a time that is none": {"time": "now"},
    "half a surrogate pair": {"note": "\ud800"},
    "half a surrogate pair as its source": {"source": "\ud800"},
    "an integer of 5,000 digits": {"speed": 10**5000},
    "a list of lists": {"speed": [[1.0]]},
    "bytes": {"speed": bytes(10**7)},
    "a value whose repr raises": {"speed": Unspeakable()},
}


@pytest.mark.parametrize("values", some_of(ODD_VALUES.values(), 5), ids=ODD_VALUES)
def test_no_event_stops_what_pages_see(bus: Bus, studio: Studio, values: dict[str, Any]) -> None:
    with (
        stream(studio, "/api/stream?tables=channels,types") as tables,
        stream(studio, "/api/events/stream?q=studio.Loop+where+lane>0+and+not+speed>5&others=1") as events,
        stream(studio, "/api/plot/stream?series=studio.Loop.speed+by+source") as plot,
    ):
        page = Page()
        page.take(*next(tables))
        for each in (events, plot):
            next(each)
        bus.publish(StudioLoop(lane=1, **values))
        bus.publish(StudioLoop(lane=2, speed=7.0))
        shown = seen_in(events, 2)
        assert [event["values"]["lane"] for event in shown] == ["1", "2"]
        assert shown[0]["why"] or "speed" not in values, "what cannot be tested does not match"
        while page.tables["channels"].get("this process|studio.Loop|", {}).get("events") != 2:
            page.take(*next(tables))
        assert any(data["series"]["studio.Loop.speed by source"]["lines"] for _, data in plot)
    assert len(ask(studio, "/api/events?q=studio.Loop+where+speed>6").json["events"]) == 1


def seen_in(events: Iterator[tuple[str, Any]], many: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < many:
        found += next(events)[1]["events"]
    return found


def test_to_say_why_takes_little_time_of_the_others() -> None:
    source = MadeSource(types=[StudioLoop])
    parts = " and ".join(f"(lane > {n} or lane < -{n} or note = 'a{n}')" for n in range(1, 190))
    with (
        open_studio(source) as studio,
        stream(studio, f"/api/events/stream?others=1&q={quote('studio.Loop where ' + parts)}") as events,
    ):
        next(events)
        wait_for(lambda: bool(source.receivers))
        for _ in range(200):
            source.emit(StudioLoop(lane=0))
        began = time.monotonic()
        found = seen_in(events, 100)
        assert all(event["why"] for event in found)
        assert found[-1]["why"][0]["values"].startswith("not looked into")
        assert time.monotonic() - began < 2.0


def test_a_source_that_is_named_twice_is_shown_once(bus: Bus, studio: Studio) -> None:
    path = "/api/events/stream?source=this+process&source=this+process"
    with stream(studio, path) as events:
        next(events)
        bus.publish(StudioLoop(lane=1))
        _, data = next(each for each in events if each[1]["events"])
        assert (data["seen"], len(data["events"])) == (1, 1)


def test_questions_to_a_slow_lake_leave_time_for_others() -> None:
    class Slow(MadeSource):
        questions = 0
        goes_on = threading.Event()

        def ask(self, subscription: Any, most: int) -> list[Any]:
            self.questions += 1
            assert self.goes_on.wait(PATIENCE_S)
            return []

    source = Slow()
    with open_studio(source) as studio:
        asking = [threading.Thread(target=ask, args=(studio, "/api/events?source=made")) for _ in range(60)]
        try:
            for thread in asking:
                thread.start()
            wait_for(lambda: len(studio._server.server_state.tasks) == 60 and source.questions >= MAX_ASKING)
            assert ask(studio, "/api/check?q=Event").json["ok"]
        finally:
            source.goes_on.set()
            for thread in asking:
                thread.join()
    assert source.questions == 60


def test_a_subscription_that_is_wrong_is_refused_at_its_column(studio: Studio) -> None:
    answer = ask(studio, "/api/events/stream?q=studio.Loop+where+lan+%3E+1")
    assert answer.status == 400
    assert answer.json["column"] == 19
    assert "lane" in answer.json["message"]


def test_events_are_kept_for_a_page_that_comes_later(bus: Bus, studio: Studio) -> None:
    with stream(studio, "/api/events/stream?q=studio.Loop") as found:
        next(found)
        bus.publish(StudioLoop(lane=1))
        first_events(found, 1)
        assert [one["values"]["lane"] for one in ask(studio, "/api/events?q=studio.Loop").json["events"]] == ["1"]


@pytest.mark.slow
def test_events_are_listened_for_where_nobody_did_before(bus: Bus, studio: Studio) -> None:
    """One question is enough: it takes what comes within a second, and nothing from before."""
    ends = threading.Event()

    def publish() -> None:
        while not ends.wait(0.01):
            bus.publish(StudioLoop(lane=7))

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        events = ask(studio, "/api/events?q=studio.Loop&most=5").json["events"]
    finally:
        ends.set()
        publishing.join()
    assert [event["values"]["lane"] for event in events] == ["7"] * 5


def test_points_of_a_plot_by_an_attribute(bus: Bus, studio: Studio) -> None:
    name = "studio.Loop.speed by lane"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with stream(studio, f"/api/plot/stream?series={name.replace(' ', '+')}") as found:
        next(found)
        bus.publish(StudioLoop(lane=1, speed=2.5, time=at))
        bus.publish(StudioLoop(lane=1, speed=math.inf))
        bus.publish(StudioLoop(lane=2, speed=3.5, time=at))
        lines: dict[str, Any] = {}
        while len(lines) < 2:
            _, data = next(found)
            assert data["series"][name]["unit"] == "m/s"
            lines |= data["series"][name]["lines"]
    at_ms = at.timestamp() * 1000
    assert lines == {"1": [[at_ms], [2.5], [1]], "2": [[at_ms], [3.5], [2]]}


@pytest.mark.parametrize(
    "asked",
    [
        "stream?series=nothing",
        "stream?series=studio.Loop.sped",
        "stream?series=Nobody.speed",
        "stream?series=studio.Loop.speed+by+colour",
        "?series=studio.Loop.speed&source=this+process",
    ],
)
def test_a_plot_of_nothing_is_refused(studio: Studio, asked: str) -> None:
    assert ask(studio, f"/api/plot/{asked}".replace("/?", "?")).status == 400


def test_events_of_a_range_of_time_are_those_that_were_kept(bus: Bus, studio: Studio) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with stream(studio, "/api/events/stream?q=studio.Loop") as found:
        next(found)
        for lane in range(5):
            bus.publish(StudioLoop(lane=lane, time=at + timedelta(seconds=lane)))
        seen_in(found, 5)
        begin = at.timestamp() * 1000
        answer = ask(studio, f"/api/events?q=studio.Loop&from={begin + 1000}&to={begin + 3000}&most=2").json
    assert ([event["values"]["lane"] for event in answer["events"]], answer["total"]) == (["1", "2"], 3)


# -- subscriptions as text ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_subscription_is_checked_completed_and_explained(studio: Studio) -> None:
    checked = ask(studio, "/api/check?q=studio.Loop+has+speed+where+speed+%3E+30").json
    assert checked["ok"]
    assert "this.speed > 30" in checked["python"]
    assert ask(studio, "/api/check?q=studio.Loop+where").json["ok"] is False
    completed = ask(studio, "/api/complete?q=studio.Loop+where+sp").json
    assert "speed" in [item["text"] for item in completed["items"]]
    assert (completed["from"], completed["to"]) == (18, 20)
    explained = ask(studio, "/api/explain?q=studio.Loop+has+speed+where+speed+%3E+30").json
    targets = {target["name"]: target for target in explained["targets"]}
    assert targets["can"]["bits"][0]["width"] == 29
    assert "speed" in targets["can"]["residual"]
    assert targets["python"]["text"]
    names = [name for name, _ in targets["attributes"]["bits"][0]["parts"]]
    assert 1 << names.index("speed") == targets["attributes"]["bits"][0]["mask"]


# -- changes -----------------------------------------------------------------------------------------------------------


def test_an_event_is_published_from_the_page_if_that_is_allowed(bus: Bus, studio: Studio) -> None:
    inbox = bus.inbox("studio.Loop")
    body = {"source": "this process", "type": "studio.Loop", "values": {"lane": "3", "speed": "1.5", "note": ""}}
    assert ask(studio, "/api/publish", "POST", body).json == {"ok": True}
    assert inbox.get(timeout=5) == StudioLoop(lane=3, speed=1.5)
    wrong = ask(studio, "/api/publish", "POST", {**body, "values": {"lane": "left"}})
    assert (wrong.status, "lane" in wrong.json["message"]) == (400, True)


def test_nothing_is_published_otherwise(bus: Bus) -> None:
    inbox = bus.inbox("studio.Loop")
    with open_studio(bus) as studio:
        body = {"source": "this process", "type": "studio.Loop", "values": {"lane": "3"}}
        assert ask(studio, "/api/publish", "POST", body).status == 403
        assert ask(studio, "/api/config").json["allow_publish"] is False
    assert inbox.counters.delivered == 0


@pytest.mark.parametrize("body", [None, [], {"source": "this process"}, {"source": 1, "action": []}])
def test_malformed_changes_are_refused(studio: Studio, body: object) -> None:
    assert 400 <= ask(studio, "/api/control", "POST", body).status < 500


def test_a_request_that_never_ends_is_cut(studio: Studio) -> None:
    answer = ask(studio, "/api/publish", "POST", {"source": "x" * 200_000})
    assert answer.status == 413


# -- life --------------------------------------------------------------------------------------------------------------


def test_studio_ends_with_its_bus() -> None:
    with open_bus() as bus:
        studio = bus.studio()
        assert ask(studio, "/api/config").status == 200
    assert studio.wait(0)
    with pytest.raises(OSError, match="refused"):
        ask(studio, "/api/config")


def test_studio_of_two_buses_ends_with_the_last_of_them() -> None:
    with open_bus() as first, open_bus() as second, open_studio(first, second) as studio:
        first.close()
        rows = ask(studio, "/api/sources").json
        assert [(row["state"], row["can_publish"]) for row in rows.values()] == [("ended", False), ("live", True)]
        second.close()
        assert studio.wait(0)


def test_closing_ends_streams_at_once(bus: Bus) -> None:
    studio = open_studio(bus)
    with stream(studio, "/api/stream?tables=channels") as found:
        next(found)
        began = time.monotonic()
        studio.close()
        studio.close()
        assert time.monotonic() - began < 4
        with suppress(OSError, ValueError):
            assert list(found) == []


def test_a_page_finds_the_server_again_at_the_same_port(bus: Bus) -> None:
    first = open_studio(bus)
    port = first.port
    first.close()
    with open_studio(bus, port=port) as again, stream(again, "/api/stream?tables=sources") as found:
        assert next(found)[0] == "snapshot"


def test_a_port_in_use_is_named(bus: Bus, studio: Studio) -> None:
    with pytest.raises(BusError, match=f"{studio.port}.*in use"):
        open_studio(bus, port=studio.port)


def test_there_must_be_something_to_show() -> None:
    with pytest.raises(BusError, match="nothing to show"):
        open_studio()
    with pytest.raises(BusError, match="42 is nothing that Studio can show"):
        open_studio(42)


def test_two_sources_of_one_name_get_names_of_their_own(bus: Bus) -> None:
    with open_bus() as other, open_studio(bus, other) as studio:
        assert list(json.loads(ask(studio, "/api/sources").body)) == ["this process", "this process (2)"]


def test_the_log_of_the_programs_own_server_stays_as_it_is(bus: Bus) -> None:
    """Requests are not logged, as their addresses have the token; and other servers of the program log theirs."""
    access, seen = logging.getLogger("uvicorn.access"), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    access.addHandler(handler)
    before = access.level, access.propagate, logging.getLogger("uvicorn.error").level
    access.setLevel(logging.INFO)
    try:
        with open_studio(bus, token="a-token-of-20-letters") as studio:
            assert ask(studio, studio.url[studio.url.index("/?") :]).status == 303
        assert handler in access.handlers
        assert (access.propagate, logging.getLogger("uvicorn.error").level) == before[1:]
        assert not seen
    finally:
        access.removeHandler(handler)
        access.setLevel(before[0])


def test_connections_that_do_nothing_leave_room_for_others(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.studio._app.MAX_CONNECTIONS", 20)
    monkeypatch.setattr("genus.studio._app.FIRST_REQUEST_S", 0.2)
    idle = [socket.create_connection((studio.host, studio.port), timeout=PATIENCE_S) for _ in range(40)]
    try:
        for each in idle:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b"", "the server closes it"
        assert ask(studio, "/api/config").status == 200
    finally:
        for each in idle:
            each.close()


@pytest.mark.slow
def test_studios_that_come_and_go_leave_nothing_at_their_bus(bus: Bus) -> None:
    for _ in range(3):
        open_studio(bus).close()
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Studio)]


def test_a_source_may_close_the_studio_that_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    """From the thread that serves: the loop ends, and what it uses is closed after it."""

    class Ending(MadeSource):
        studio: Studio | None = None

        def rows(self, wanted: Any) -> Any:
            if self.studio is not None:
                self.studio.close()
            return super().rows(wanted)

    source = Ending()
    studio = open_studio(source)
    with stream(studio, "/api/stream?tables=channels") as tables:
        next(tables)
        source.studio = studio
        assert list(tables) is not None, "the stream ends"
    studio._thread.join(PATIENCE_S)
    assert not studio._thread.is_alive()
    assert not caplog.records
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((studio.host, studio.port))


@pytest.mark.slow
def test_questions_of_many_pages_leave_the_filters_of_warnings_as_they_are(studio: Studio) -> None:
    before = list(warnings.filters)
    asking = [
        threading.Thread(
            target=lambda: [ask(studio, "/api/check?q=Event+where+not+time+is+present") for _ in range(10)]
        )
        for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert warnings.filters == before


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/api/check", 405)])
def test_every_error_is_json(studio: Studio, path: str, status: int) -> None:
    answer = ask(studio, path, "GET" if status == 404 else "POST")
    assert (answer.status, list(answer.json)) == (status, ["message"])


def test_a_plot_has_the_points_of_all_classes_of_a_name() -> None:
    """A bus beside a simulation of the same system: its classes are other ones."""
    real = type("Jacket", (Event,), {"__annotations__": {"value": float}})
    made = type("Jacket", (Event,), {"__annotations__": {"value": int, "number": int}})
    sources = [MadeSource("sim", [made]), MadeSource("live", [real])]
    with open_studio(*sources) as studio:
        for series, expected in (("Jacket.value", [20.5, 7.0]), ("Jacket.number", [1.0])):
            with stream(studio, f"/api/plot/stream?series={series}") as found:
                next(found)
                wait_for(lambda: all(source.receivers for source in sources))
                sources[1].emit(real(value=20.5), at_ms=1.0)
                sources[0].emit(made(value=7, number=1), at_ms=2.0)
                values: list[float] = []
                while not set(values) >= set(expected):
                    lines = next(found)[1]["series"][series]["lines"]
                    values += [value for columns in lines.values() for value in columns[1]]
                assert set(values) == set(expected)
        assert ask(studio, "/api/plot/stream?series=Jacket.weight").status == 400
