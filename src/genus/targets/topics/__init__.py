"""The topics target: subscriptions become key patterns of zenoh, MQTT or NATS, which the network tests by itself.

`compile` makes the patterns of one subscription, `EventKeys` and `key_of` the keys of events, and `parse_key` reads
them. A `Dialect` is how a network writes keys and patterns.
"""

from genus.targets.topics._compiler import EventKeys, ParsedKey, TopicFilter, compile, key_of, parse_key
from genus.targets.topics._dialect import MQTT, NATS, ZENOH, Dialect

__all__ = [
    "MQTT",
    "NATS",
    "ZENOH",
    "Dialect",
    "EventKeys",
    "ParsedKey",
    "TopicFilter",
    "compile",
    "key_of",
    "parse_key",
]
