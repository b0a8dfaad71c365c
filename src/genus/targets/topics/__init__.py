"""The topics target: subscriptions become key patterns of zenoh, MQTT or NATS, which the network tests by itself.

`compile` makes the patterns of one subscription, `EventKeys` and `key_of` the keys of events, and `parse_key` reads
them. A `Dialect` is how a network writes keys and patterns.
"""

from genus.targets.topics._compiler import TopicFilter, compile
from genus.targets.topics._dialect import MQTT, NATS, ZENOH, Dialect
from genus.targets.topics._keys import EventKeys, ParsedKey, key_of, parse_key

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
