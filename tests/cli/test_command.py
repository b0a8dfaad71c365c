"""The `genus` command as a whole: its help, its examples, and how it ends."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from genus.cli import COMMANDS, HELP_SECTIONS, _warn_of_passwords, genus
from genus.cli._groups import COMMANDS as CAN
from genus.cli._groups import HELP_SECTIONS as CAN_STORY
from genus.cli._groups import HelpSections, LazyGroup, first_sentence
from genus.cli._lake import COMMANDS as LAKE
from genus.cli._lake import HELP_SECTIONS as LAKE_STORY
from genus.testing import run_command as shell

ROOT = Path(__file__).parents[2]
SOURCE = """
from genus import Event, Maybe

class Loop(Event):
    lane: int
    speed: Maybe[float] = None
"""
DBC = """VERSION ""

BU_: car

BO_ 256 Speed: 2 car
 SG_ kmh : 0|16@1+ (0.01,0) [0|655.35] "km/h" car
"""


def commands(group: click.Group = genus, path: str = "genus") -> Iterator[tuple[str, click.Command]]:
    """Every command and group below one, by how it is called."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = dict(commands())
ALONE = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the examples of the help texts can be tried."""
    (tmp_path / "road.py").write_text(SOURCE)
    (tmp_path / "car.dbc").write_text(DBC)
    (tmp_path / "drive.log").write_text("(1.000000) can0 100#F431\n")
    (tmp_path / "subscriptions.txt").write_text("Loop\nLoop has place\n")
    for name in ("loops.toml", "edges.parquet", "truth.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "apps").symlink_to(ROOT / "apps")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("city.json", "city-later.json"):
        assert CliRunner().invoke(genus, ["catalog", "register", name, "examples/traffic.py"]).exit_code == 0
    return tmp_path


# -- sections ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "lazy", "sections"),
    [("genus", COMMANDS, HELP_SECTIONS), ("genus can", CAN, CAN_STORY), ("genus lake", LAKE, LAKE_STORY)],
)
def test_the_help_has_every_command_once_in_order_with_its_own_summary(
    group: str, lazy: dict[str, str], sections: HelpSections
) -> None:
    lines = {name: line for part in sections.values() for name, line in part.items()}
    assert [name for part in sections.values() for name in part] == list(lazy)
    assert lines == {name: first_sentence(ALL[f"{group} {name}"]) for name in lazy}


def test_help_begins_with_what_a_newcomer_wants() -> None:
    said = CliRunner().invoke(genus, ["-h"]).output
    headings = re.findall(r"^(\w.*):$", said, re.MULTILINE)
    assert headings[:2] == ["Options", "Declare what events are"]


def test_a_group_without_a_command_shows_its_help() -> None:
    for arguments in ([], ["can"], ["catalog"]):
        done = CliRunner().invoke(genus, arguments)
        assert (done.exit_code, done.output.startswith("Usage: genus")) == (0, True)


@pytest.mark.parametrize("path", ALL)
def test_help_is_whole_and_of_one_style(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One short first sentence, both ways to ask for it, every option explained, no type where a word would do."""
    command = ALL[path]
    # Another test may have run it by itself: it would remember a help option without what it inherits here.
    monkeypatch.setattr(command, "_help_option", None, raising=False)
    done = CliRunner().invoke(genus, [*path.split()[1:], "-h"], prog_name="genus")
    assert done.exit_code == 0
    assert done.output.startswith(f"Usage: {path} [OPTIONS]")
    assert "-h, --help" in done.output
    assert not re.search(r"\.\.\.$", done.output.partition("Options:")[2], re.MULTILINE)
    assert not re.search(r"(INTEGER|FLOAT)( RANGE)?\b", done.output)
    assert all(option.help for option in command.params if isinstance(option, click.Option))
    assert len(f"  {path.split()[-1]:<10}  {first_sentence(command)}") <= 78


def test_the_same_option_has_the_same_name_and_place_holder_everywhere() -> None:
    shown: dict[str, set[str]] = {}
    for command in ALONE.values():
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                context = click.Context(command)
                shown.setdefault(option.opts[-1], set()).add(option.make_metavar(context))
    differing = {name for name, places in shown.items() if len(places) > 1}
    assert differing == {"--out"}  # a file and a folder


def test_an_option_takes_a_value_everywhere_or_nowhere() -> None:
    flags: dict[str, set[bool]] = {}
    for command in ALONE.values():
        for option in command.params:
            if isinstance(option, click.Option):
                flags.setdefault(option.opts[-1], set()).add(option.is_flag)
    assert [name for name, kinds in flags.items() if len(kinds) > 1] == []


def test_help_imports_no_command() -> None:
    """Which is why it is there at once."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nimport genus.cli\n"
        "for group in ([], ['can'], ['lake']):\n"
        "    assert CliRunner().invoke(genus.cli.genus, [*group, '-h']).exit_code == 0\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "sys.exit(', '.join(found & {'pyspark', 'can', 'cantools', 'rich', 'matplotlib', 'pyarrow', 'numpy'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(("columns", "breaks"), [(None, False), ("40", True)])
def test_a_table_that_is_piped_has_each_row_on_one_line(
    columns: str | None, breaks: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COLUMNS still sets a width."""
    names = [f"an_attribute_of_a_long_name_{number}" for number in range(9)]
    (folder / "long.py").write_text(
        "from genus import Event\nclass Long(Event):\n" + "".join(f"    {name}: int\n" for name in names)
    )
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    (row,) = [line for line in shell("types", "long.py").stdout.splitlines() if "Long" in line]
    assert all(name in row for name in names) is not breaks


def test_every_table_is_printed_as_wide_as_needed() -> None:
    """Consoles of standard output are made in one place."""
    files = [*(ROOT / "src/genus/cli").glob("*.py"), ROOT / "apps/traffic/src/genus_traffic/commands.py"]
    sources = {path.name: path.read_text() for path in files}
    made = {name: re.findall(r"\bConsole\((?!stderr=True)[^)]*\)", text) for name, text in sources.items()}
    assert {name for name, calls in made.items() if calls} == {"_groups.py"}


WITHOUT_EXTRAS = """
import importlib, json, pydoc, sys
from importlib.machinery import PathFinder

ALLOWED = {*sys.stdlib_module_names, "genus", "msgspec", "click", "rich", "pygments", "markdown_it", "mdurl"}

class Required(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        first = name.partition(".")[0]
        found = first in ALLOWED or first.startswith("_sysconfigdata")
        return super().find_spec(name, path, target) if found else None

sys.meta_path[2:] = [Required]  # after those of built-in and frozen modules
from click.testing import CliRunner
from genus.cli import genus
failed = []
for words in json.load(sys.stdin):
    done = CliRunner().invoke(genus, words)
    if done.exit_code:
        failed.append(f"{' '.join(words)}: {done.output}{done.exception!r}")
for room in ("bus", "can", "codes", "devices", "lake", "net", "records", "studio", "targets", "testing"):
    try:
        pydoc.render_doc(importlib.import_module(f"genus.{room}"))
    except Exception as problem:
        failed.append(f"help(genus.{room}): {problem!r}")
sys.exit(chr(10).join(failed) or 0)
"""
NEEDS_NO_EXTRA = [
    ["types", "road.py"],
    ["types", "road.py", "--json"],
    ["codes", "road.py"],
    ["catalog", "register", "new.json", "road.py"],
    ["catalog", "show", "new.json"],
    ["catalog", "check", "new.json", "road.py"],
    ["catalog", "etags", "new.json", "Loop"],
    ["explain", "-t", "road.py", "--catalog", "new.json", "Loop where speed > 1"],
    ["pub", "-t", "road.py", "--bus", "ipc:nobody", "Loop", "lane=1"],
    ["c", "generate", "new.json", "-o", "firmware", "--publish", "Loop", "--node"],
    ["can", "plan", "examples/crossing.toml"],
    ["doctor"],
]


def test_commands_that_need_no_extra_run_without_any(folder: Path) -> None:
    """Help of every command and room included, in a process where no optional package can be imported."""
    helps = [[*path.split()[1:], "-h"] for path in ALL if path.split()[1] in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], input=json.dumps([*helps, *NEEDS_NO_EXTRA]), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)


# -- the examples ------------------------------------------------------------------------------------------------------


def examples(path: str) -> list[list[str]]:
    """The calls that a help text shows, without what feeds them."""
    lines = (ALL[path].help or "").splitlines()
    calls = [line.strip().partition(" | ")[2] or line.strip() for line in lines if "genus " in line]
    return [shlex.split(call, comments=True)[1:] for call in calls if call.startswith("genus ")]


@pytest.mark.parametrize("path", [path for path in ALONE if path != "genus completion"])
def test_every_help_shows_examples_that_are_understood(path: str, folder: Path) -> None:
    for name in ("loops.genus", "drive.genus", "city.toml", "births.txt"):
        (folder / name).touch()
    mine = [words for words in examples(path) if words[: len(path.split()) - 1] == path.split()[1:]]
    assert mine
    for words in examples(path):
        command: click.Command = genus
        context = click.Context(genus, info_name="genus")
        while isinstance(command, click.Group):
            _, found, words = command.resolve_command(context, words)
            assert found is not None
            command = found
        command.make_context(path, [*words], parent=context)


WITHOUT_A_BUS = ("types", "explain", "catalog", "grants", "can plan", "can types", "can decode")


@pytest.mark.parametrize("path", [path for path in ALONE if path[6:].startswith(WITHOUT_A_BUS)])
def test_examples_run(path: str, folder: Path) -> None:
    for words in examples(path):
        done = CliRunner().invoke(genus, words)
        assert done.exit_code == 0, (words, done.output, done.exception)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["repaly"], 2, "genus: No such command 'repaly'; did you mean 'replay'? See `genus --help`"),
        (["lake", "ingets"], 2, "genus: No such command 'ingets'; did you mean 'ingest'? See `genus lake --help`"),
        (["completion", "csh"], 2, "genus: Invalid value for '{bash|zsh|fish}': 'csh' is not one of"),
        (["pub", "--typ", "x"], 2, "genus: No such option '--typ'. Did you mean '--types'?"),
        (["types", "road.py", "--catalog", "none.json"], 2, "does not exist. See `genus types --help`"),
        (["types", "none.py"], 2, "File 'none.py' does not exist. See `genus types --help`"),
        (["codes", "none.csv"], 2, "File 'none.csv' does not exist. See `genus codes --help`"),
        (["catalog", "register", "new.json", "none.dbc"], 2, "File 'none.dbc' does not exist"),
        (["sub", "-t", "none.py", "Loop"], 2, "'--types': File 'none.py' does not exist"),
        (["explain", "-t", "no_such_module", "Loop"], 1, "No module named 'no_such_module'"),
        (["can", "decode", "--dbc", "car.dbc", "drive.log", "--format", "nope"], 2, "'nope' is not one of 'log', "),
        (["lake", "ingest", "city", "drive.log", "--format", "nope"], 2, "'nope' is not one of "),
        (["lake", "read", "city", "Loop", "--explain", "--json"], 2, "--json is for events; leave it out with"),
        (["lake", "read", "city", "Loop", "--plan", "--json"], 2, "--json is for events; leave it out with"),
        (["lake", "route", "city", "subscriptions.txt", "--explain", "--json"], 2, "--json is for matches; leave it"),
        (["gateway", "car.dbc", "--check", "--json"], 2, "--json is for what crossed; leave it out with --check"),
        (["lake", "keep"], 2, "give LAKE, or set GENUS_LAKE"),
        (["lake", "expire", "city", "Loop", "Lamp"], 2, "give LAKE and at most one SUBSCRIPTION"),
        (["explain", "-t", "road.py", "Lop has place"], 1, "did you mean 'Loop'? known: Loop (column 1): Lop has"),
        (["explain", "-t", "road.py", "Loop has plcae"], 1, "'plcae'; did you mean 'place'? its attributes are"),
        (["pub", "-t", "road.py", "Lop"], 1, "no event type is called Lop; did you mean 'Loop'?"),
        (["pub", "-t", "road.py", "Loop", "lne=1"], 1, "no attribute lne; did you mean 'lane'?"),
        (["catalog", "deprecate", "city.json", "Lop"], 1, "city.json has no type Lop; did you mean 'Loop'?"),
        (["sub", "-t", "road.py", "--timeout", "3 m"], 2, "'--timeout': it is '3 m', and 'm' is no unit of time"),
        (["record", "-t", "road.py", "x.genus", "--for", "0s"], 2, "it is '0s'; it must be above zero"),
        (
            ["record", "-t", "road.py", "x.genus", "--for", "9999999999d"],
            2,
            "it is '9999999999d', which is longer than",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    arguments: list[str],
    status: int,
    said: str,
    folder: Path,
) -> None:
    ended, out, err = shell(*arguments)
    assert (ended, out) == (status, "")
    assert err.startswith("genus: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (ModuleNotFoundError("No module named 'pyspark'", name="pyspark"), 1, "[lake]'"),
        (ModuleNotFoundError("No module named 'frob'", name="frob"), 1, "No module named 'frob'"),
        (PermissionError(13, "Permission denied", "x"), 1, "Permission denied"),
        (RuntimeError("oh\nno"), 1, "internal error: RuntimeError: oh no (set GENUS_TRACEBACK=1"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_nothing_ends_in_a_stack_trace(
    raised: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: LazyGroup, ctx: click.Context) -> None:
        raise raised

    monkeypatch.setattr(LazyGroup, "invoke", fail)
    ended, _, err = shell("types", "x")
    assert ended == status
    assert said in err
    assert "Traceback" not in err
    assert len(err.split("\n")) == 2


def test_a_stack_trace_is_shown_to_whom_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENUS_TRACEBACK", "1")
    assert "Traceback" in shell("types", "no_such_module").stderr


def test_whom_nobody_reads_says_nothing() -> None:
    command = [sys.executable, "-m", "genus", "can", "plan", str(ROOT / "examples" / "crossing.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert (said, process.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("closed", "module", "status", "said"),
    [
        (">&-", "examples/traffic.py", 0, ""),
        (">&- 2>&- <&-", "examples/traffic.py", 0, ""),
        (">&-", "no_such_module", 1, "genus: no_such_module: "),
    ],
)
def test_what_is_printed_to_a_closed_stream_is_discarded(closed: str, module: str, status: int, said: str) -> None:
    command = ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "genus", "types", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize("missing", ["numpy", "starlette", "uvicorn"])
def test_studio_names_its_own_extra_whichever_package_is_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    ended, _, err = shell("studio", "ipc:city")
    assert (ended, err.startswith(f"genus: Studio needs {missing}: pip install ")) == (1, True)
    assert "[studio]'" in err


# -- when it is told to stop -------------------------------------------------------------------------------------------


class Running:
    """A command under way."""

    def __init__(self, *arguments: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-m", "genus", *arguments], text=True, **pipes)  # type: ignore[call-overload]

    def end(self, number: int) -> tuple[str, int]:
        """Stop it; what it still said, and how it ended."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return (out + err).strip(), self.process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_waits_for_input_leaves_no_socket_behind(number: int, folder: Path) -> None:
    running = Running("pub", "-t", "road.py", "Loop", "--stdin")
    sockets = folder / "genus" / "genus"
    while not (sockets.is_dir() and any(sockets.iterdir())):
        assert running.process.poll() is None
    said, code = running.end(number)
    assert code == 130
    assert said in ("", "interrupted; published 0 events before")  # the first, if it had not begun to read
    assert not any(sockets.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_is_cut_short_is_interrupted(number: int, folder: Path) -> None:
    from genus.bus import RecordingWriter
    from genus.cli._events import load_types

    (loop,) = load_types("road.py")
    with RecordingWriter("loops.genus") as writer:
        for second in range(2):
            writer.write(loop(lane=second), second * 1_000_000_000)
    running = Running("replay", "-t", "road.py", "loops.genus", "--print", "--json", "--speed", "1")
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == '{"type": "Loop", "lane": 0}\n'
    assert running.end(number) == ("replayed 1 event before it was interrupted", 130)


DBC = """VERSION ""
BU_: Engine
BO_ 256 Drive: 4 Engine
 SG_ speed : 0|12@1+ (0.1,0) [0|409] "km/h" Engine
"""


def test_an_interrupted_command_says_what_was_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here `genus can decode`, interrupted at its third event: the recording has the two before."""
    pytest.importorskip("cantools")
    from genus.bus import RecordingWriter, read_recording

    write = RecordingWriter.write
    monkeypatch.setattr(
        RecordingWriter,
        "write",
        lambda self, *event: write(self, *event) if self.waiting < 2 else signal.raise_signal(signal.SIGINT),
    )
    Path("car.dbc").write_text(DBC)
    Path("drive.log").write_text("".join(f"(170000000{i}.000000) can0 100#F4310070\n" for i in range(5)))
    done = shell("can", "decode", "--dbc", "car.dbc", "drive.log", "-o", "drive.genus")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (130, "interrupted; 2 events in drive.genus")
    recording = read_recording("drive.genus")
    assert len(list(recording)) + recording.problems.total() == 2


def test_a_password_on_the_command_line_is_warned_of_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _warn_of_passwords(["sub", "mqtt://ann:secret@broker/city", "mqtt://ann@broker/city?password_file=x", "a@b"])
    warning = capsys.readouterr().err
    assert warning.count("mqtt://ann:...@broker/city") == 1
    assert "password_file=FILE" in warning
    assert "secret" not in warning
