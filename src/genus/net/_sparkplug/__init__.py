"""Sparkplug B over MQTT: payloads, the host application, the edge node, and the source of a link."""
