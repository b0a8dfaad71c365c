"""Metrics of a bus and of other sources, as Prometheus reads them."""

import sys
import urllib.error
import urllib.request
from collections.abc import Iterable

import pytest

from genus import Event, open_bus
from genus.errors import BusError
from genus.net import bus_metrics, serve_metrics
from genus.net._metrics import MAX_LABEL, MAX_SERIES, OTHERS
from genus.net.types import Metric

prometheus = pytest.importorskip("prometheus_client")


class MetricBeat(Event):
    number: int


def scrape(url: str) -> dict[str, float]:
    """The samples that a server has now, by name and labels as they are written."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_reads_the_counters_of_the_bus() -> None:
    with open_bus(on_error=lambda *_: None) as bus, serve_metrics(bus) as server:
        bus.collection(MetricBeat).inbox(capacity=2)
        bus.subscribe("MetricBeat where number > 1", lambda beat: 1 / 0)
        for number in range(4):
            bus.publish(MetricBeat(number=number))
        assert scrape(server.url) == {
            "genus_published_total MetricBeat": 4,
            "genus_delivered_total MetricBeat": 4,
            "genus_failed_total MetricBeat": 0,
            "genus_dropped_total MetricBeat": 2,
            "genus_waiting MetricBeat": 2,
            "genus_delivered_total MetricBeat where number > 1": 2,
            "genus_failed_total MetricBeat where number > 1": 2,
            "genus_dropped_total MetricBeat where number > 1": 0,
            "genus_waiting MetricBeat where number > 1": 0,
        }
        bus.publish(MetricBeat(number=0))
        assert scrape(server.url)["genus_published_total MetricBeat"] == 5


def test_the_server_is_closed_with_its_bus() -> None:
    with open_bus() as bus:
        server = serve_metrics(bus)
        assert scrape(server.url) == {}
    with pytest.raises(urllib.error.URLError):
        scrape(server.url)
    server.close()


def test_very_many_subscriptions_are_a_bounded_number_of_series() -> None:
    """Those with the most events are shown one by one, the others together; nothing is left out of the sums."""
    most = MAX_SERIES + 50
    with open_bus() as bus:
        for number in range(most):
            bus.subscribe(f"MetricBeat where number >= {number}", lambda beat: None)
        for number in (most, most, 10):
            bus.publish(MetricBeat(number=number))
        (delivered,) = (metric for metric in bus_metrics(bus) if metric.name == "delivered_total")
    assert len(delivered.values) == MAX_SERIES + 1
    assert sum(delivered.values.values()) == 2 * most + 11
    assert delivered.values["MetricBeat where number >= 3"] == 3
    assert delivered.values[OTHERS] == 2 * 50


def test_long_texts_are_cut_and_added_up() -> None:
    where = " or ".join(f"number == {number}" for number in range(100))
    with open_bus() as bus:
        for last in (200, 201):
            bus.subscribe(f"MetricBeat where {where} or number == {last}", lambda beat: None)
        bus.publish(MetricBeat(number=1))
        (delivered,) = (metric for metric in bus_metrics(bus) if metric.name == "delivered_total")
    (label,) = delivered.values
    assert len(label) <= MAX_LABEL + 3
    assert delivered.values[label] == 2


class Spool:
    def metrics(self) -> Iterable[Metric]:
        yield Metric("spooled", "Events on disk", "gauge", {"": 7})
        yield Metric("crossed_total", "Events that crossed", "counter", {'si"te\n': 2}, "side")


def test_anything_with_metrics_can_be_served() -> None:
    with serve_metrics(Spool()) as server:
        assert scrape(server.url) == {"genus_spooled": 7, 'genus_crossed_total si"te\n': 2}


def test_only_this_machine_can_ask_unless_a_host_is_named() -> None:
    with serve_metrics(Spool()) as server:
        assert server.url.startswith("http://127.0.0.1:")
        with pytest.raises(BusError, match=f"metrics cannot be served at 127.0.0.1:{server.port}: .*in use"):
            serve_metrics(Spool(), server.port)
        with pytest.raises(BusError, match="cannot be served at"):
            serve_metrics(Spool(), f"127.0.0.1:{server.port}")


@pytest.mark.parametrize("place", ["", "x", "127.0.0.1:", "70000", "a b:1", -1, ":9100"])
def test_a_wrong_place_is_refused(place: int | str) -> None:
    with pytest.raises(BusError, match="is not a place for metrics; write a port such as 9100, or HOST:PORT"):
        serve_metrics(Spool(), place)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"metrics need prometheus-client: pip install .*\[metrics\]"):
        serve_metrics(Spool())
