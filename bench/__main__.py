"""`make bench`: measure everything in one run and rewrite docs/benchmarks.md and its picture."""

import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import TypeVar

from bench import (
    can_columns,
    can_logs,
    cloudevents,
    coap,
    codes,
    devices,
    dispatch,
    engine,
    filters,
    gateway,
    growth,
    importing,
    index,
    ingest,
    ipc,
    ledger,
    local_reader,
    mqtt,
    passages,
    recordings,
    routing,
    simulator,
    streaming,
    studio,
    topics,
    zenoh,
)

T = TypeVar("T")
DOCS = Path(__file__).parents[1] / "docs"

TEXT = """# Benchmarks

Made by `make bench`, or one table at a time, last on {date}: {machine}.
Each table was measured in one run, contestants taking turns; a time is the least CPU time over many windows. The
machine is shared and noisy: trust the ratios, not the nanoseconds. `python -m bench.NAME` makes one table (dispatch,
filters, engine, index, codes, growth, importing, simulator, routing, local_reader, ingest, streaming, can_columns,
passages, topics, recordings, ipc, zenoh, mqtt, cloudevents, gateway, devices, coap, studio). Times on Spark are seconds
of the clock on two cores, session and workers started before.

## Publishing

Nanoseconds per published event, and how many times slower than Genus. Each handler increments a counter; Genus also
counts events and deliveries and keeps a handler that raises from stopping the others, which zope.event and PyPubSub do
not. In the last column each handler wants a quarter of the events.

{dispatch}

![Time per published event by library and number of handlers](benchmarks.svg)

With 1000 handlers that want everything, all the time goes into the 1000 calls.

## Static and dynamic filters

1000 subscriptions with one predicate each, on a channel of one class. *Static* is one generated `if` per subscription,
as in the type-based publish/subscribe paper, which reports 4 times (25 %) and 3 times (50 %) against its dynamic
filters; *genus* is what the bus does: so many subscriptions are found by an index. The handlers that match are called
in every row, and are most of the time of the first.

{filters}

## Is it one of these?

One check whether an event belongs to a type or a topic, less an empty statement.

{checks}

## Making an event

{creation}

`Event` is called through a function in Python, which names an argument that is given wrongly and makes values of numpy
and pandas plain; that is most of the difference from a bare struct. Decoding an event does not go through it.

## Reading subscriptions as text

{texts}

## Very many subscriptions on a bus

Subscriptions to one class, each with a handler. *Mixed* has seven forms of predicates: equality, equality and a range,
a box of two ranges, a part of a text, alternatives, arithmetic, and presence with a bound. *Boxes* are two ranges each.
About 1 % of the subscriptions match an event, and their handlers are called; what calling them takes is left out in
*without the handlers*. The baseline is generated code with one `if` for each subscription. *A change* is one
subscription added or cancelled; with generated code for all of them, the next event would wait for new code (0.1 to
0.2 ms for each subscription). In the table of threads each one subscribes, publishes 20 events, cancels, and checks
that it got each event once.

{engine}

## Matching very many subscriptions

20 attributes, 10 interval predicates each of width 0.5. Both matchers give the same answers. The 100,000 are
`Subscription` objects, added with `add_all`; the million come as arrays, by `add_ranges`, and so are quicker to add.

{index}

## Code sizes

{codes}

The paper's figure 2, over full balanced trees of 2 to 8 levels and 2 to 8 children (largest code of each):

{figure}

## Growing

{catalog}

Codes one by one, each next type any of those whose parents are there:

{code_times}

Their mean size in bytes, and as a multiple of that of the whole hierarchy added at once, over three orders. *With all
above*: a random type, preceded by those above it that are missing, as a catalog registers a class. *Any ready*: any
type whose parents are there. [Codes](codes.md) says why no scheme does well in the second order.

{code_growth}

{subscriptions}

## Simulating a CAN bus

Frames per second of CPU time on one core, and how many times faster that is than the bus itself, which runs at 1
Mbit/s. *Sources* are 20 stations that send periodic 8-byte frames, received by five others, with exact lengths,
arbitration and confirmations; *hosts* run protocol code that makes its frames by a drifting clock of its own. With
the whole middleware in every node (`genus can sim`), several thousand frames a second are simulated.

{simulator}

Soft events that miss their deadlines, in percent, by policy, on the same releases: 20 channels with sporadic events,
on average 2 to 100 ms and at least half of that apart, deadline 0.6 of it, besides 3.2 % hard and 5 % other traffic.
*edf* knows all deadlines exactly, which no real bus does; *quantised* is what Genus does. The ratios depend on how
events are released: with strictly periodic events almost nothing is missed by any policy at 0.9, and with events that
come in bursts quantised priorities are not always twice as good as fixed ones. In overload earliest deadline first
collapses, and fixed priorities do not.

{soft}

## Routing on Spark

10,000,000 events of 1,110 types and 17,760 shapes in Parquet, `local[2]`. Every contestant gives the same answer in the
run. *Scan* reads the one column that counting needs; *count* is `Route.count`, which uses the rows per shape in the
ledger, *count by events* reads the events as it does where a commit has no such figures. The naive join
(`code % t = 0 and tag & mask = want`) and the Python function are measured on 1,000,000 events and multiplied. DuckDB
runs in the same process on two threads, on the same tables for types and attributes, on tables of its own for
predicates (made beforehand, as those of Genus are).

{routing}

With one predicate each besides the type, every match a row:

{predicates}

By number of events:

{events}

Subscriptions of all kinds (types, attributes, one to four tests) where nearly every event has a shape of its own, by a
driver of 2 GB:

{mixed}

One by one by `Lake.read`, each counted. *Spark alone* has a frame of the same files and tests the type only:

{reads}

On one machine DuckDB is faster at small work: no JVM, no scheduling. Spark is the engine that also runs on many
machines.

## Small questions without Spark

10,000,000 events of 1,110 types on ten days, one file a day, read by `LakeReader` and by DuckDB in the same process on
two threads; seconds of the clock, and of the processors. DuckDB is given the list of files and the names of the types.
`LakeReader` keeps parsed footers between the rounds; DuckDB can do so, too, and does not by default. The
last rows are whole processes: `genus lake read --count`, and a program that imports DuckDB and asks it.

{local_reader}

## Reading in

Files to Parquet tables, on two cores, dead letters and all; the least of three runs.

{ingest}

CAN frames decoded by columns, against cantools frame by frame:

{frames}

CAN logs of every format, nanoseconds per frame: to columns of events, and frame by frame, against cantools and its log
reader, or python-can's reader where it has none. Formats that neither reads are compared with python-can's reader of
ASC:

{logs}

## A stream to inboxes

Files land together while a query of Structured Streaming runs; eight subscriptions deliver about two matches an event.
Times are Spark's own, from the trigger to the end of the micro-batch: listing, checkpoint, one job that reads and
writes, the commit, one job that delivers; medians of five (of two for a million events). *Bare* is a query of Spark
with the same source and checkpoint that only collects the paths.

{streaming}

## Networks

Keys of events and patterns of subscriptions:

{topics}

Between processes, to one receiver, events per second of the clock; *stopped beside* is with a second receiver that is
stopped:

{ipc}

Over zenoh, between two processes on loopback; rates of the clock vary by a factor of two between runs on this machine:

{zenoh}

MQTT through mosquitto on loopback, which is most of the work; QoS 1 also with a broker that takes 1,000 messages before
it acknowledges, instead of its default of 20:

{mqtt}

Recordings, against files that a program would write by hand:

{recordings}

CloudEvents, against the official SDK, from an event and to one:

{cloudevents}

From a CAN bus (python-can's `udp_multicast`) through a gateway to zenoh, publishing to handler:

{gateway}

## Small devices

Generated C on an ATmega128RFA1 at 16 MHz, cycle by cycle in simavr, compiled by gcc-avr with `-Os`: exact, and the same
in every run. [Firmware on AVR](devices-avr.md) says how it is measured. Types from their codes on the wire:

{device_codes}

Five types and eight subscriptions, from a frame to the handlers; *nanopb* decodes the same attributes, without types
and filters. *Later types*: the program also keeps types that it asks the broker for.

{device_frames}

{device_ratios}

By number of types, with eight subscriptions that all events of the family are tested for:

{device_growth}

[CoAP](coap.md) with types as paths against paths of names, in blocks of 64 bytes on loopback, every datagram counted
with its acknowledgement. `genus codes coap FILE` makes the tables of the prime-number paper for any set of resources.

{coap}

## Studio

[Studio](studio.md) on a bus between processes, with a page on the table of channels in headless chromium. The lag is
from publishing an event to the frame after which the page shows it; rows are gathered 20 times a second. *Publishing*
is as fast as one process can, in turns with and without a page; each event has two handlers, one of them with a
condition. A page on events is a handler that notes the time of each event.

{studio}

## Commits

What a commit of one ingested file costs in the ledger of a lake, files and names flushed to disk, and what opening the
lake costs, by the number of commits before:

{ledger}

## Speeds from loop edges

Twelve sites of the [traffic application](traffic.md) for ten minutes, with many more lane changes over the loops and
missed edges than in life. *Neighbours* pairs each hit of a lower loop with the hit of the upper one just before it.
*Invented* are speeds of vehicles that only one loop noticed.

{passages}

## Importing

{importing}
"""


def machine() -> str:
    """What this was measured on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        cores = sum(line.startswith("processor") for line in lines)
    except (OSError, StopIteration):
        model, cores = platform.processor() or platform.machine(), 0
    return (
        f"{model}, {cores} cores, {platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    )


def draw(times: dict[str, dict[str, float]], file: Path) -> None:
    """Bars per library, one panel per case, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "genus"
    from matplotlib import pyplot

    cases = list(next(iter(times.values())))
    figure, panels = pyplot.subplots(1, len(cases), figsize=(12, 3.4), sharey=True, layout="constrained")
    names = list(times)[::-1]
    for panel, case in zip(panels, cases, strict=True):
        values = [times[name][case] / 1e3 for name in names]
        colours = ["#d1495b" if name == "genus" else "#8d99ae" for name in names]
        bars = panel.barh(names, values, color=colours)
        panel.bar_label(bars, [f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values], padding=3)
        panel.set_xscale("log")
        panel.set_xlim(min(values) / 2, max(values) * 6)
        count, _, rest = case.partition(",")
        panel.set_title(f"{count} handler{'' if count == '1' else 's'}{',' if rest else ''}{rest}", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("µs per published event (logarithmic)", fontsize=9)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Measure, with a line about each step, then write."""
    found: dict[str, str] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    published = step("publishing", dispatch.run)
    found["dispatch"] = dispatch.table(published)
    found["filters"] = step("filters", lambda: filters.table(filters.run()))
    found["checks"] = step("checks", lambda: filters.checks_table(filters.run_checks()))
    found["creation"] = step("creation", lambda: filters.creation_table(filters.run_creation()))
    found["texts"] = step("texts", lambda: filters.texts_table(filters.run_texts()))
    found["engine"] = step("a bus with many subscriptions (about five minutes)", engine.table)
    found["codes"] = step("codes", codes.table)
    found["figure"] = codes.figure_table()
    found["catalog"] = step("the catalog", growth.catalog_table)
    found["code_times"] = step("codes one by one", growth.codes_table)
    found["code_growth"] = step("sizes of codes one by one", codes.growth_table)
    found["subscriptions"] = step("subscriptions", growth.subscription_table)
    found["simulator"] = step("the simulator", lambda: simulator.table(simulator.run()))
    found["soft"] = step("soft deadlines", simulator.soft_table)
    lookups = step("routing (about eight minutes)", routing.tables)
    found |= {"routing": lookups["attributes"], "predicates": lookups["predicates"], "events": lookups["growth"]}
    found["local_reader"] = step("small questions", local_reader.table)
    found |= {"mixed": lookups["mixed"], "reads": lookups["reads"]}
    found["ingest"] = step("reading in", lambda: ingest.table(ingest.run()))
    found["frames"] = step("CAN frames", can_columns.table)
    found["logs"] = step("CAN logs (about three minutes)", can_logs.table)
    found["streaming"] = step("a stream", lambda: streaming.table(streaming.run()))
    found["ledger"] = step("commits (about a minute)", lambda: ledger.table(ledger.run()))
    found["topics"] = step("topics", lambda: topics.table(topics.run()))
    found["ipc"] = step("between processes", lambda: ipc.table(ipc.run()))
    found["zenoh"] = step("zenoh", lambda: "\n\n".join(zenoh.tables().values()))
    found["mqtt"] = step("MQTT (about two minutes)", mqtt.run) if which("mosquitto") else "mosquitto is not installed."
    found["recordings"] = step("recordings", recordings.table)
    found["cloudevents"] = step("CloudEvents", cloudevents.table)
    found["gateway"] = step("a gateway", lambda: gateway.table(gateway.run()))
    found |= step("small devices", devices.tables)
    found["coap"] = step("CoAP", coap.run)
    found["studio"] = step("Studio", studio.table)
    found["passages"] = step("speeds", lambda: passages.table(passages.run()))
    found["importing"] = step("importing", lambda: importing.table(importing.run()))
    found["index"] = step("index (about two minutes)", lambda: index.table(index.run()))
    (DOCS / "benchmarks.md").write_text(TEXT.format(**found))
    draw(published, DOCS / "benchmarks.svg")
    print(f"wrote {DOCS / 'benchmarks.md'}", file=sys.stderr)


def step(name: str, run: Callable[[], T]) -> T:
    """One part, announced."""
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    return run()


if __name__ == "__main__":
    main()
