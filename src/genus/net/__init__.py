"""Networks: buses between processes, over zenoh and over MQTT, and gateways between them."""
