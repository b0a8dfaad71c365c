"""The wheel installs into a clean environment with each extra alone, and does there what the extra is for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (found,) = folder.glob("genus-*.whl")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_alone_is_all_that_its_part_needs(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    doctor = [str(tmp_path / "venv/bin/genus"), "doctor", *([extra] if extra else [])]
    for command in ([str(python), "-c", PROGRAMS[extra]], doctor):
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_extra_for_users_is_tried() -> None:
    from genus.cli._doctor import EXTRAS

    assert set(PROGRAMS) == {"", *EXTRAS}
