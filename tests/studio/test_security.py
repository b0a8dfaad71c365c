"""Who may see the page, and what a page may do: Host and Origin, token and TLS, headers of safety."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from genus import Bus, open_bus
from genus.errors import BusError
from genus.studio import Studio, open_studio
from tests.studio.pages import ask

TOKEN = "a-token-of-20-letters"


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus() as made:
        yield made


@pytest.fixture
def studio(bus: Bus) -> Iterator[Studio]:
    with open_studio(bus, allow_publish=True, hosts=["gate.example"]) as made:
        yield made


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_browser_is_started_without_the_token(bus: Bus, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    """What it is started with is seen by others; the file that leads to the page only by this user, until the end."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with open_studio(bus, token=token) as studio:
        studio.open_in_browser()
        if token is None:
            assert opened == [studio.url]
            return
        path = Path(urlsplit(opened[0]).path)
        assert token not in opened[0]
        assert f'url={studio.url}"' in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


FOREIGN = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "",
    "[::1",
    "localhost:x",
    "10.0.0.1",
    "127.0.0.1?evil",
    "127.0.0.1#evil",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_header_is_refused(studio: Studio, host: str) -> None:
    for path in ("/", "/api/sources", "/api/stream?tables=sources", "/page/app.js"):
        assert ask(studio, path, headers={"Host": host}).status == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "gate.example", "Gate.Example:80"]
)
def test_own_names_are_accepted(studio: Studio, host: str) -> None:
    assert ask(studio, "/api/config", headers={"Host": host}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost:{port}", "http://localhost:1"])
def test_a_page_of_another_origin_is_refused(studio: Studio, origin: str) -> None:
    headers = {"Host": f"localhost:{studio.port}", "Origin": origin.format(port=studio.port)}
    assert ask(studio, "/api/sources", headers=headers).status == 403
    assert ask(studio, "/api/control", "POST", {}, {**headers, "X-Genus-Studio": "1"}).status == 403


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_a_page_of_another_site_may_open_the_page_and_not_ask_for_data(studio: Studio, site: str, status: int) -> None:
    """Browsers send no `Origin` with some requests; the page could not read the answer, but it would cost."""
    headers = {"Sec-Fetch-Site": site}
    assert ask(studio, "/api/explain?q=Event", headers=headers).status == status
    assert ask(studio, "/", headers=headers).status == 200


def test_the_own_origin_is_accepted(studio: Studio) -> None:
    headers = {"Host": f"localhost:{studio.port}", "Origin": f"http://localhost:{studio.port}"}
    assert ask(studio, "/api/sources", headers=headers).status == 200


def test_a_change_needs_a_header_that_forms_of_other_sites_cannot_send(studio: Studio) -> None:
    assert ask(studio, "/api/publish", "POST", {}, headers={}).status == 403


def test_other_methods_are_refused(studio: Studio) -> None:
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert ask(studio, "/api/publish", method, {}, headers={}).status == 403
    assert ask(studio, "/api/sources", "POST", {}).status == 405


@pytest.mark.parametrize("path", ["/", "/api/sources", "/nothing", "/page/app.js"])
def test_every_answer_says_what_a_page_may_load(studio: Studio, path: str) -> None:
    headers = ask(studio, path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_by_default_only_this_machine_can_connect(bus: Bus) -> None:
    with open_studio(bus) as studio:
        assert studio.host == "127.0.0.1"
        assert "token" not in studio.url


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_elsewhere_tls_is_needed(bus: Bus, host: str) -> None:
    with pytest.raises(BusError, match="certificate"):
        open_studio(bus, host=host)


def test_a_certificate_needs_its_key(bus: Bus, tmp_path: Path) -> None:
    with pytest.raises(BusError, match="both"):
        open_studio(bus, cert=tmp_path / "cert.pem")


@pytest.mark.parametrize("token", ["short", "with spaces and so on", "x" * 300])
def test_a_weak_token_is_refused(bus: Bus, token: str) -> None:
    with pytest.raises(BusError, match="token"):
        open_studio(bus, token=token)


@pytest.mark.parametrize("name", ["a b", "host/path", "user@host"])
def test_a_name_that_is_none_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(BusError, match="no name of a host"):
        open_studio(bus, hosts=[name])


def test_with_a_token_nothing_is_answered_without_it(bus: Bus) -> None:
    with open_studio(bus, token=TOKEN) as studio:
        assert studio.url.endswith(f"?token={TOKEN}")
        for path in ("/", "/api/sources", "/api/stream?tables=sources", "/?token=wrong-token-of-20-l"):
            assert ask(studio, path).status == 401
        admitted = ask(studio, f"/?view=1&token={TOKEN}")
        assert (admitted.status, admitted.headers["location"]) == (303, "/?view=1")
        cookie = admitted.headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert ask(studio, "/api/sources", headers={"Cookie": cookie.partition(";")[0]}).status == 200
        assert ask(studio, "/api/sources", headers={"Cookie": "genus_studio=wrong"}).status == 401


@pytest.mark.parametrize("path", ["//evil.example/", "http://evil.example/", "/\\evil.example/", "///evil.example"])
def test_who_has_the_token_is_sent_to_no_other_server(bus: Bus, path: str) -> None:
    with open_studio(bus, token=TOKEN) as studio:
        connection = HTTPConnection(studio.host, studio.port, timeout=10)
        connection.putrequest("GET", f"{path}?token={TOKEN}", skip_host=True)
        connection.putheader("Host", f"{studio.host}:{studio.port}")
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 303
        location = answer.getheader("location") or ""
        assert urlsplit(urljoin(f"http://{studio.host}:{studio.port}/", location)).hostname == studio.host
        connection.close()


def test_the_token_leaves_the_address_also_of_a_page_that_is_known(bus: Bus) -> None:
    with open_studio(bus, token=TOKEN) as studio:
        cookie = ask(studio, f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
        assert ask(studio, f"/?token={TOKEN}", headers={"Cookie": cookie}).headers["location"] == "/"


def test_cookies_of_other_servers_of_this_machine_do_no_harm(bus: Bus) -> None:
    with open_studio(bus, token=TOKEN) as studio, open_studio(bus, token=TOKEN[::-1]) as other:
        kept = [
            ask(each, f"/?token={token}").headers["set-cookie"].partition(";")[0]
            for each, token in ((studio, TOKEN), (other, TOKEN[::-1]))
        ]
        assert kept[0].partition("=")[0] != kept[1].partition("=")[0], "browsers do not tell ports apart"
        for each in (studio, other):
            cookies = "; ".join(['other={"a": [1, 2]}', "odd", *kept])
            assert ask(each, "/api/sources", headers={"Cookie": cookies}).status == 200


def test_a_further_name_may_be_an_address(bus: Bus) -> None:
    with open_studio(bus, hosts=["[fd00::1]"]) as studio:
        assert ask(studio, "/api/config", headers={"Host": f"[fd00::1]:{studio.port}"}).status == 200


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs the package cryptography to make a certificate")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def test_over_tls_the_cookie_is_for_tls_only(bus: Bus, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with open_studio(bus, cert=cert, key=key, token=TOKEN) as studio:
        assert studio.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        connection = HTTPSConnection("localhost", studio.port, timeout=10, context=context)
        connection.request("GET", f"/?token={TOKEN}")
        answer = connection.getresponse()
        assert answer.status == 303
        assert "secure" in (answer.getheader("set-cookie") or "").lower()
        answer.read()
        connection.close()


def test_every_address_of_the_machine_needs_a_name(bus: Bus, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with pytest.raises(BusError, match="allow-host"):
        open_studio(bus, host="0.0.0.0", cert=cert, key=key)


def test_files_that_are_no_certificate_are_named(bus: Bus, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(BusError, match=r"cert\.pem"):
        open_studio(bus, cert=tmp_path / "cert.pem", key=tmp_path / "cert.pem")
