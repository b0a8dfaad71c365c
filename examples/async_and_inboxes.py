"""Async handlers and inboxes: bounded queues between publishers and slow consumers, with a stated policy."""

import asyncio
import time

from genus import Event, open_bus, this


class Reading(Event):
    number: int


async def main() -> None:
    async with open_bus("local:") as bus:  # leaving the block waits for what async handlers still have to do
        readings = bus.collection(Reading)

        @readings.subscribe(where=this.number < 3)
        async def store(event: Reading) -> None:
            await asyncio.sleep(0.01)  # a slow database
            print("stored", event.number)

        latest = readings.inbox(capacity=2, overflow="drop_oldest")  # or "drop_newest", "block", "raise"
        for number in range(5):
            readings.publish(Reading(number=number))

        print("the latest two:", latest.get(timeout=0).number, latest.get(timeout=0).number)
        print("dropped:", latest.counters.dropped)

        async def publish_later() -> None:
            await asyncio.sleep(0.05)
            await asyncio.to_thread(readings.publish, Reading(number=99))  # publishing from another thread is fine

        later = asyncio.create_task(publish_later())
        began = time.monotonic()
        async for event in latest:  # waits for more until the inbox is cancelled
            print(f"{event.number} after {time.monotonic() - began:.1f} s")
            break
        await later


if __name__ == "__main__":
    asyncio.run(main())
