"""Hello: declare an event type, subscribe to it, publish an event."""

from genus import Event, open_bus


class Temperature(Event):  # time, source, place, deadline and expires come with Event
    celsius: float


def main() -> None:
    with open_bus("local:") as bus:  # or "ipc:" between processes, "can:..." on a CAN bus, "sim:..." in the simulator
        temperatures = bus.collection(Temperature)

        @temperatures.subscribe
        def on_temperature(event: Temperature) -> None:
            print(f"{event.celsius} degrees in the {event.place}")

        temperatures.publish(Temperature(celsius=21.5, place="kitchen"))
        bus.publish(Temperature(celsius=8.0, place="cellar"))  # of any type; the collection's own publish is faster

        print(on_temperature.counters.delivered, "events delivered")


if __name__ == "__main__":
    main()
