"""For tests of programs that use Genus: a clock, random types and events, a CAN network, brokers, Spark, commands."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.testing._clock import VirtualClock
    from genus.testing._command import CommandResult, run_command
    from genus.testing._datagram_proxy import DatagramProxy
    from genus.testing._emulated_can import EmulatedCan, EmulatedCanBus
    from genus.testing._generators import Generator, Sampler, edge_events, edge_subscriptions
    from genus.testing._mqtt_broker import MqttBroker
    from genus.testing._spark import compiled_expressions, spark_session
    from genus.testing._systems import random_system

__all__ = [
    "CommandResult",
    "DatagramProxy",
    "EmulatedCan",
    "EmulatedCanBus",
    "Generator",
    "MqttBroker",
    "Sampler",
    "VirtualClock",
    "compiled_expressions",
    "edge_events",
    "edge_subscriptions",
    "random_system",
    "run_command",
    "spark_session",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
