"""The topics target: subscriptions become key patterns of zenoh, MQTT or NATS, and events get keys."""

from genus.targets.topics._dialect import MQTT, NATS, ZENOH, Dialect

__all__ = ["MQTT", "NATS", "ZENOH", "Dialect"]
