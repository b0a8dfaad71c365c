"""For tests of programs that use Genus: a clock, random events, commands, a broker of MQTT, a Spark session."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.testing._clock import VirtualClock
    from genus.testing._command import CommandResult, run_command
    from genus.testing._generator import Generator
    from genus.testing._mqtt_broker import MqttBroker
    from genus.testing._spark import compiled_expressions, spark_session

__all__ = [
    "CommandResult",
    "Generator",
    "MqttBroker",
    "VirtualClock",
    "compiled_expressions",
    "run_command",
    "spark_session",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, mqtt5="mqtt", pyspark="lake")
