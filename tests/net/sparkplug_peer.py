"""Independent Sparkplug clients, each run by a Python of its own: `python sparkplug_peer.py ROLE PORT`.

They take one command per line from standard input, and print what they receive as JSON, a line for each message.
"""

# mypy: ignore-errors

import json
import sys


def show(**what):
    print(json.dumps(what), flush=True)


def pysparkplug_edge(port):
    import pysparkplug as spb

    def metric(value, **more):
        return spb.Metric(timestamp=spb.get_current_timestamp(), datatype=spb.DataType.DOUBLE, value=value, **more)

    def commanded(node, message):
        values = {each.name: each.value for each in message.payload.metrics}
        show(topic=str(message.topic), values=values)

    node = spb.EdgeNode("north", "boiler", [metric(0.25, name="Load")], cmd_callback=commanded)
    node.register(spb.Device("probe", [metric(20.5, name="Temperature", alias=7)], cmd_callback=commanded))
    node.connect("127.0.0.1", port=port)
    for line in sys.stdin:
        what, _, value = line.strip().partition(" ")
        if what == "data":
            node.update_device("probe", [metric(float(value), name="Temperature", alias=7)])
        elif what == "skip":
            node._seq  # a message that is lost  # noqa: B018
        elif what == "gone":
            node.deregister("probe")
        elif what == "end":
            node.disconnect()
            return


def pysparkplug_host(port):
    import pysparkplug as spb

    def heard(client, message):
        metrics = getattr(message.payload, "metrics", None) or ()
        seq = getattr(message.payload, "seq", None)
        show(topic=str(message.topic), values={each.name: each.value for each in metrics}, seq=seq)

    client = spb.Client()
    client.subscribe(spb.Topic(group_id="north", message_type="#"), spb.QoS.AT_LEAST_ONCE, heard)
    client.connect("127.0.0.1", port=port)
    for line in sys.stdin:
        what, _, value = line.strip().partition(" ")
        if what == "end":
            client.disconnect()
            return
        name, type_ = ("Node Control/Rebirth", "BOOLEAN") if what == "rebirth" else ("Target", "DOUBLE")
        metric = spb.Metric(
            timestamp=1, name=name, datatype=spb.DataType[type_], value=True if what == "rebirth" else float(value)
        )
        device, kind, payload = (None, "NCMD", spb.NCmd) if what == "rebirth" else ("probe", "DCMD", spb.DCmd)
        topic = spb.Topic(group_id="north", message_type=spb.MessageType[kind], edge_node_id="genus", device_id=device)
        message = spb.Message(
            topic=topic, payload=payload(timestamp=1, metrics=(metric,)), qos=spb.QoS.AT_MOST_ONCE, retain=False
        )
        client.publish(message, include_dtypes=True)


def wrapper_edge(port):
    import mqtt_spb_wrapper as spb

    node = spb.MqttSpbEntityEdgeNode("north", "boiler")
    node.on_command = lambda payload: show(values={each["name"]: each["value"] for each in payload["metrics"]})
    node.data.set_value("Temperature", 20.5)
    node.commands.set_value("Target", 0.0)
    node.connect("127.0.0.1", port, timeout=10)
    node.publish_birth()
    for line in sys.stdin:
        what, _, value = line.strip().partition(" ")
        if what == "data":
            node.data.set_value("Temperature", float(value))
            node.publish_data()
        elif what == "end":
            node.disconnect()
            return


def wrapper_host(port):
    import mqtt_spb_wrapper as spb

    host = spb.MqttSpbEntityScada("north", "scada")
    host.on_message = lambda topic, payload: show(
        topic=str(topic), values={each["name"]: each.get("value") for each in payload.get("metrics", ())}
    )
    host.connect("127.0.0.1", port, timeout=10)
    for line in sys.stdin:
        what, _, value = line.strip().partition(" ")
        if what == "end":
            host.disconnect()
            return
        host.send_command("Target", float(value), "genus", "probe")


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
