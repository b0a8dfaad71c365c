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

from genus._extras import install_command
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
    "cc": ("compile generated C (genus c)", "gcc"),
    "avr-gcc": ("compile generated C for AVR processors", "gcc-avr avr-libc"),
    "mosquitto": ("an MQTT broker to try things with", "mosquitto"),
    "openssl": ("make certificates for TLS", "openssl"),
    "chromium": ("tests of Studio's page", "chromium"),
    "clang": ("tests of generated C with sanitizers and a fuzzer", "clang"),
    "cppcheck": ("tests of the list of MISRA deviations", "cppcheck"),
    "simavr": ("tests on a simulated AVR processor", "simavr libsimavr-dev libelf-dev"),
    "coap-client-notls": ("tests against another CoAP library", "libcoap3-bin"),
}
"""Programs that Genus or its tests call, with their purpose and the Debian packages that have them."""
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
@click.argument("extras", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def doctor(extras: tuple[str, ...], as_json: bool) -> None:
    """Show what is installed, what it is for, and what is missing.

    Name EXTRAS to check only these; the exit code is 1 if one of them cannot be used.

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
    for java in examined:
        yield Part(java.source, not java.problem, java.problem or f"Java {java.version}", str(java.path))
    if not examined:
        yield Part("none", False, "", "Spark needs Java 17 or newer", install_command("lake"))


def _extra(name: str) -> Part:
    """Return whether all packages of an extra are there, in versions that it takes."""
    missing, there = [], []
    for package, wanted in dict.fromkeys(_packages(name)):
        try:
            has = version(package)
        except PackageNotFoundError:
            missing.append(f"{package} is missing")
            continue
        there.append(f"{package} {has}")
        if not _within(has, wanted):
            missing.append(f"{package} is {has}, not {wanted}")
    return Part(name, not missing, ", ".join(missing or there), EXTRAS[name], install_command(name) if missing else "")


def _packages(extra: str) -> Iterator[tuple[str, str]]:
    """Return the packages of an extra on this machine, each with the versions that it takes."""
    for text in _requirements():
        found = _REQUIREMENT.fullmatch(text)
        assert found is not None, text
        marker = found["marker"] or ""
        if not re.search(rf"""extra == ['"]{extra}['"]""", marker) or not _applies(marker, extra):
            continue
        if found["name"] == "genus":
            for other in found["extras"].split(","):
                yield from _packages(other.strip())
        else:
            yield found["name"], found["range"].strip()


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


def _program(name: str, purpose: str, packages: str) -> Part:
    path = which(name) or which(name, path="/usr/sbin:/sbin")  # servers are there, where users do not look
    return Part(name, path is not None, path or "", purpose, "" if path else f"apt install {packages}")


def _print(found: dict[str, list[Part]]) -> None:

    console = wide_console(highlight=False)
    for title, parts in found.items():
        if not parts:
            continue
        table = plain_table(title, "", "for", "found")
        for part in parts:
            mark = "[green]yes[/]" if part.found else "[yellow]no[/]"
            table.add_row(part.name, mark, part.purpose, part.detail or part.install)
        console.print(table)
    commands = list(dict.fromkeys(part.install for parts in found.values() for part in parts if part.install))
    if commands:
        click.echo("What is missing is installed by:")
        for command in commands:
            click.echo(f"  {command}")
