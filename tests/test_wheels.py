"""The wheel installs into a clean environment with each extra alone, and does there what the extra is for."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import genus

ROOT = Path(__file__).parents[1]
EVENT = "from genus import Event, open_bus\nclass Lamp(Event):\n    watts: float\n"
PROGRAMS = {
    "": EVENT + "with open_bus('local:') as bus:\n    bus.publish(Lamp(watts=1.0))",
    "arrow": EVENT + "from genus.targets import arrow\nfrom genus import Subscription\n"
    "import pyarrow\narrow.compile(Subscription(Lamp))",
    "index": EVENT + "from genus.targets import SubscriptionIndex\nfrom genus import Subscription\n"
    "SubscriptionIndex([Subscription(Lamp)])",
    "plot": "from genus.can import draw_plan\nimport matplotlib",
    "can": EVENT + "from genus.can import read_log\nimport can, cantools\n"
    "open('x.log', 'w').write('(1.0) can0 100#F4\\n')\nassert len(list(read_log('x.log'))) == 1",
    "mf4": "import asammdf",
    "mcap": "import mcap",
    "zstd": EVENT + "from genus.bus import RecordingWriter\nimport zstandard",
    "lake": EVENT + "from genus.lake import Lake, local_session\n"
    "lake = Lake.create(local_session('local[1]'), 'lake', Lamp)\nassert lake.read(Lamp).count() == 0",
    "iceberg": "import pyiceberg, genus.lake",
    "objects": "import obstore",
    "zenoh": EVENT + "with open_bus('zenoh:lamps') as bus:\n    bus.publish(Lamp(watts=1.0))",
    "mqtt": "import mqtt5, genus.net",
    "sparkplug": "import google.protobuf, mqtt5, genus.net",
    "coap": "import aiocoap, cbor2, genus.net",
    "oscore": "import aiocoap.oscore",
    "metrics": "from genus.net import serve_metrics\nimport prometheus_client",
    "studio": "from genus.studio import open_studio\nimport starlette, uvicorn",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of Genus and of the traffic application."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*build, str(ROOT), str(ROOT / "apps/traffic")], check=True, capture_output=True)
    return folder


def installed(what: str, wheels: Path, folder: Path) -> Path:
    """Install a package with what it needs into a new environment, and return the folder of its commands."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--find-links", str(wheels), what], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "venv/bin"


def output(command: list[str], folder: Path) -> str:
    """Run a command that sees nothing of this checkout; it must succeed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_alone_is_all_that_its_part_needs(extra: str, wheels: Path, tmp_path: Path) -> None:
    (wheel,) = wheels.glob("genus-*.whl")
    commands = installed(f"{wheel}[{extra}]" if extra else str(wheel), wheels, tmp_path)
    output([str(commands / "python"), "-c", PROGRAMS[extra]], tmp_path)
    output([str(commands / "genus"), "doctor", *([extra] if extra else [])], tmp_path)


@pytest.mark.slow
def test_the_demo_runs_from_the_wheels_alone(wheels: Path, tmp_path: Path) -> None:
    """What `pipx run` does; all say the same version."""
    (wheel,) = wheels.glob("genus_traffic-*.whl")
    commands = installed(str(wheel), wheels, tmp_path)
    done = output([str(commands / "genus"), "demo", "traffic", "--sites", "1", "--for", "30s", "--json"], tmp_path)
    assert json.loads(done)["event_count"] > 0
    assert output([str(commands / "genus"), "--version"], tmp_path) == f"genus, version {genus.__version__}\n"
    said = output(
        [str(commands / "python"), "-c", "from importlib.metadata import version as v; print(v('genus'))"], tmp_path
    )
    assert said.strip() == genus.__version__


@pytest.mark.slow
def test_the_wheels_have_the_licences_of_all_that_is_in_them(wheels: Path) -> None:
    for wheel in wheels.iterdir():
        names = ZipFile(wheel).namelist()
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
        vendored = [name for name in names if "/vendor/" in name and not name.endswith("LICENSE")]
        assert not vendored or any(name.endswith("licenses/src/genus/studio/page/vendor/LICENSE") for name in names)


def test_what_is_copied_says_its_licence() -> None:
    """The C runtime goes into the firmware of users, and the licence into both packages."""
    for file in (ROOT / "src/genus/devices/runtime").iterdir():
        assert file.read_text().startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"), file
    assert (ROOT / "apps/traffic/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_all_that_names_the_version_names_this_one() -> None:
    """At a release, these are to be changed along with `genus.__version__`."""
    major, minor = map(int, genus.__version__.split(".")[:2])
    application = tomllib.loads((ROOT / "apps/traffic/pyproject.toml").read_text())["project"]
    assert application["version"] == genus.__version__
    assert f"genus[lake,studio]>={major}.{minor},<{major}.{minor + 1}" in application["dependencies"]
    assert f"Genus is at version {major}.{minor}: " in (ROOT / "SECURITY.md").read_text()
    assert f"\n## {genus.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_extra_for_users_is_tried() -> None:
    from genus.cli._doctor import EXTRAS

    assert set(PROGRAMS) == {"", *EXTRAS}
