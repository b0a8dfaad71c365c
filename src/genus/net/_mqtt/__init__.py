"""MQTT 5: wire -> machine -> connection -> transport."""
