"""Networks: buses between processes, over zenoh and over MQTT, and gateways between them."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._metrics import Measured, Metric, MetricsServer, bus_metrics, serve_metrics

__all__ = ["Measured", "Metric", "MetricsServer", "bus_metrics", "serve_metrics"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _metrics="Measured Metric MetricsServer bus_metrics serve_metrics")
