"""Metrics for Prometheus: the counters of a bus, a gateway or a stream, read when they are asked for.

Nothing is counted here and nothing runs between two scrapes, except a thread that waits for the next. A bus is read by
`bus.traffic()`; anything else says its numbers itself, by a method `metrics()`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from genus._extras import missing_extra
from genus.bus import Bus
from genus.bus.internal import SubscriptionCounters
from genus.bus.types import Counters
from genus.errors import BusError

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

MAX_SERIES = 1000
"""Most series of a metric, as a monitoring system keeps every one for ever; those with less are added up."""
MAX_LABEL = 200
"""Longest text of a label, in characters: a subscription may name thousands of values."""
OTHERS = "(others)"
"""The label of what was added up."""


class Metric(msgspec.Struct, frozen=True):
    """A number, or one number for each value of a label.

    A `counter` only grows, and its name ends with `_total`; a `gauge` goes up and down. `values` has numbers by the
    value of the label `label`; a metric without a label has one number, under the empty text.

    >>> Metric("spooled", "Events on disk", "gauge", {"": 3})
    Metric(name='spooled', help='Events on disk', kind='gauge', values={'': 3}, label='')
    """

    name: str
    help: str
    kind: Literal["counter", "gauge"]
    values: Mapping[str, float]
    label: str = ""


@runtime_checkable
class Measured(Protocol):
    """What has metrics of its own, such as a gateway."""

    def metrics(self) -> Iterable[Metric]:
        """Return the present metrics; called from another thread."""


@runtime_checkable
class _Closing(Protocol):
    """What can say that it is closed."""

    def at_close(self, function: Callable[[], object]) -> object: ...


def bus_metrics(bus: Bus) -> list[Metric]:
    """Return the metrics of a bus: what was published, what became of it, and the counters of the link.

    >>> from genus import Event, open_bus
    >>> with open_bus() as bus:
    ...     bus.publish(Event())
    ...     bus_metrics(bus)[0].values
    {'Event': 1}
    """
    traffic = bus.traffic()
    subscriptions = _largest_counters(traffic.subscriptions)
    return [
        Metric("published_total", "Events published here", "counter", _largest(traffic.published), "type"),
        *(
            Metric(name, text, kind, {asked: getattr(of, field) for asked, of in subscriptions.items()}, "subscription")
            for field, name, text, kind in _OF_SUBSCRIPTIONS
        ),
        Metric("link_total", "What the link counted", "counter", _largest(traffic.link), "what"),
    ]


_OF_SUBSCRIPTIONS: tuple[tuple[str, str, str, Literal["counter", "gauge"]], ...] = (
    ("delivered", "delivered_total", "Events given to a handler or queue", "counter"),
    ("failed", "failed_total", "Events on which a handler raised", "counter"),
    ("dropped", "dropped_total", "Events that found a queue full", "counter"),
    ("waiting", "waiting", "Events in a queue", "gauge"),
)


def _largest(values: Mapping[str, int]) -> dict[str, int]:
    """Return the largest numbers; the others are added up."""
    ordered = sorted(values.items(), key=lambda item: -item[1])
    found: dict[str, int] = {}
    for number, (name, value) in enumerate(ordered):
        label = _label(name) if number < MAX_SERIES else OTHERS
        found[label] = found.get(label, 0) + value
    return found


def _largest_counters(counted: Mapping[str, Counters]) -> dict[str, Counters]:
    """Return the counters of the subscriptions with the most events; the others are added up.

    Only those that are shown get a text: of a million subscriptions, making them takes long.
    """
    assert isinstance(counted, SubscriptionCounters)
    shown, others = counted.largest(MAX_SERIES)
    found: dict[str, Counters] = {}
    for label, counters in [*((_label(text), one) for text, one in shown.items()), *((OTHERS, one) for one in others)]:
        found[label] = found[label] + counters if label in found else counters
    return found


def _label(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL]}..."


class MetricsServer:
    """Serves metrics until it is closed; made by `serve_metrics`."""

    def __init__(self, source: Bus | Measured, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as missing:
            raise missing_extra("metrics need prometheus-client", "metrics") from missing

        registry = CollectorRegistry()
        registry.register(_Collector(source))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as problem:
            raise BusError(f"metrics cannot be served at {host}:{port}: {problem}") from problem
        self.host, self.port = host, int(self._server.server_port)
        self._is_closed = False

    @property
    def url(self) -> str:
        """Return the address of the metrics."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def __enter__(self) -> "MetricsServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def serve_metrics(source: Bus | Measured, at: int | str = 0) -> MetricsServer:
    """Serve the metrics of a bus, or of anything that has `metrics()`, over HTTP for Prometheus.

    The server is closed with the bus. Every name begins with `genus_`.

    Args:
        source: A bus, a gateway, a stream, or an object of your own with the method `metrics()`.
        at: A port, or `HOST:PORT`; 0 is any free port. Without a host only this machine can ask.

    Returns:
        The server, with its `url`; `close()` ends it, as leaving its `with` block does.

    Raises:
        BusError: The address cannot be read, or is in use.
        ImportError: prometheus-client is not installed; the message has the command that installs it.
    """
    server = MetricsServer(source, *read_place(at))
    if isinstance(source, _Closing):
        source.at_close(server.close)
    return server


def read_place(at: int | str) -> tuple[str, int]:
    """Return the host and port of `PORT` or `HOST:PORT`; BusError if it is neither.

    >>> read_place(9100), read_place("[::1]:9100")
    (('127.0.0.1', 9100), ('::1', 9100))
    """
    found = re.fullmatch(r"(?:(?P<host>[^\s:\[\]]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>[0-9]{1,5})", str(at))
    if found is None or int(found["port"]) > 0xFFFF:
        raise BusError(f"{at!r} is not a place for metrics; write a port such as 9100, or HOST:PORT")
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


class _Collector:
    """Reads the metrics of a source when they are asked for."""

    def __init__(self, source: Bus | Measured) -> None:
        self._source = source

    def describe(self) -> list[Any]:
        """Nothing: the client would read the metrics once at the start to learn their names."""
        return []

    def collect(self) -> "Iterator[Family]":
        source = self._source
        found = source.metrics() if isinstance(source, Measured) else bus_metrics(source)
        return (_family(metric) for metric in found)


def _family(metric: Metric) -> "Family":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(f"genus_{metric.name}", metric.help, labels=[metric.label] if metric.label else [])
    for value, number in metric.values.items():
        family.add_metric([value] if metric.label else [], number)
    return family
