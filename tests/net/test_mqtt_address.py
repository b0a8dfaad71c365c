"""Addresses of MQTT brokers."""

import subprocess
import sys
from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._mqtt.address import MqttOptions, parse_mqtt_address


def test_defaults() -> None:
    assert parse_mqtt_address("//localhost") == MqttOptions("localhost", 1883)
    assert parse_mqtt_address("//localhost/city", tls=True) == MqttOptions("localhost", 8883, "city", tls=True)


def test_all_parts() -> None:
    options = parse_mqtt_address(
        "//ann:p%40ss@[::1]:1884/city?qos=0&session=gate-7&session_expires=90s&keep_alive=1500ms&ca=ca.pem&cert=c.pem"
        "&key=k.pem&capacity=5&overflow=raise&receive_capacity=6&receive_overflow=drop_oldest&map=devices.toml&map=b.toml",
        tls=True,
    )
    assert (options.host, options.port, options.realm, options.username) == ("::1", 1884, "city", "ann")
    assert options.password is not None
    assert options.password.text == "p@ss"
    assert (options.qos, options.session, options.session_expires_s, options.keep_alive_s) == (0, "gate-7", 90, 2)
    assert (options.ca, options.cert, options.key) == (Path("ca.pem"), Path("c.pem"), Path("k.pem"))
    assert (options.capacity, options.overflow, options.receive_capacity) == (5, "raise", 6)
    assert (options.receive_overflow, options.map) == ("drop_oldest", (Path("devices.toml"), Path("b.toml")))


def test_a_named_session_is_kept_for_an_hour() -> None:
    assert parse_mqtt_address("//localhost?session=a").session_expires_s == 3600
    assert parse_mqtt_address("//localhost?session=a&session_expires=5s").session_expires_s == 5


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("localhost", "has no host"),
        ("//", "has no host"),
        ("//localhost:port", "host or port is not valid"),
        ("//localhost/a/b", "the realm is 'a/b'"),
        ("//localhost/%23", "the realm is '#'"),
        ("//localhost?sesion=a", "did you mean 'session'?"),
        ("//localhost?qos=2", "qos is '2'; write a whole number from 0 to 1"),
        ("//localhost?qos", "write options as name=value"),
        ("//localhost?overflow=wait", "overflow is 'wait'; choose one of block"),
        ("//localhost?receive_overflow=raise", "choose one of block, drop_oldest, drop_newest"),
        ("//localhost?session=a/b", "session is 'a/b'"),
        ("//localhost?keep_alive=soon", "keep_alive is 'soon"),
        ("//localhost?ca=ca.pem", "ca is for mqtts://"),
        ("//localhost?capacity=0", "capacity is '0'"),
        ("//localhost?capacity=5&capacity=6", "capacity= is given twice"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(rest: str, why: str) -> None:
    with pytest.raises(BusError) as problem:
        parse_mqtt_address(rest)
    assert why in str(problem.value)


def test_passwords_appear_nowhere() -> None:
    options = parse_mqtt_address("//ann:hunter2@localhost/city")
    assert "hunter2" not in repr(options)
    assert "hunter2" not in str(options)
    assert "hunter2" not in options.shown
    for rest in ("//ann:hunter2@localhost:x", "//ann:hunter2@localhost?x=1", "//ann:hunter2@localhost/a/b"):
        with pytest.raises(BusError) as problem:
            parse_mqtt_address(rest)
        assert "hunter2" not in str(problem.value)


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(BusError, match="a key needs cert"):
        parse_mqtt_address("//localhost?key=k.pem", tls=True)


def test_importing_genus_does_not_import_the_codec() -> None:
    program = "import sys, genus, genus.net, genus.testing; sys.exit('mqtt5' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_the_extra_the_error_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['mqtt5'] = None\n"
        "from genus import open_bus\n"
        "try: open_bus('mqtt://localhost')\n"
        "except RuntimeError as problem: print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("mqtt: addresses need the package mqtt5: pip install ")


def test_a_password_may_be_in_a_file(tmp_path: Path) -> None:
    """What is on a command line, others see."""
    file = tmp_path / "password"
    file.write_text("p@ss word\n")
    options = parse_mqtt_address(f"//ann@h/city?password_file={file}")
    assert options.password is not None
    assert (options.username, options.password.text) == ("ann", "p@ss word")
    for wrong in (f"//ann:x@h?password_file={file}", f"//h?password_file={file}"):
        with pytest.raises(BusError, match="password_file is for"):
            parse_mqtt_address(wrong)
    with pytest.raises(BusError, match="cannot be read"):
        parse_mqtt_address(f"//ann@h?password_file={file}.none")
