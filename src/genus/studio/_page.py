"""Who may open the page, what it may load and do, and its components as text, for other pages.

Five things are checked before anything else. The `Host` header must name this server: a page of another site that had
its own name resolved to this machine would otherwise read everything. The `Origin` header, where there is one, must be
this server's own, and so must be the site of a page that asks for data. What changes something must carry a header that
a foreign page cannot send without being asked for permission. And where others than this machine can connect, a token
is needed, which the first address carries and a cookie keeps.

The components of the page are scripts, style and vendored files, to put into one file. A page that opens from a file
cannot import modules. So `bundle` joins components into one script: it follows their imports, removes the words
`import` and `export`, and gives what they export as one object.
"""

import hmac
import ipaddress
import re
import secrets
import ssl
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from genus.errors import BusError

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_IMPORT = re.compile(r'^import \{ (?P<names>[^}]*) \} from "\./(?P<file>[a-z-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b\*? *(?P<name>[A-Za-z_$][\w$]*))", re.MULTILINE)
_STYLES = ("design.css", "figures.css")


def bundle(*names: str) -> str:
    """The script of some components, and of what they import, which defines `studio` with everything they export.

    A component that draws charts needs `vendor("uPlot.iife.min.js")` before it. ValueError for an unknown name.

    >>> bundle("bits").splitlines()[0]
    'const studio = (() => {'
    """
    texts = {name: _read_component(name) for name in _in_order(names)}
    exported = [found["name"] for name in names for found in _EXPORT.finditer(texts[name])]
    bodies = (_EXPORT.sub("", _IMPORT.sub("", text)).strip() for text in texts.values())
    parts = ["const studio = (() => {", '"use strict";', *bodies, f"return {{ {', '.join(exported)} }};", "})();"]
    return "\n".join(parts) + "\n"


def stylesheet() -> str:
    """Return the style of the design and of the components; charts need `vendor("uPlot.min.css")` as well."""
    return "\n".join(_read(name) for name in _STYLES)


def vendor(name: str) -> str:
    """Return a file that others wrote: `uPlot.iife.min.js`, `uPlot.min.css` or its `LICENSE`.

    >>> vendor("LICENSE").splitlines()[0]
    'The MIT License (MIT)'
    """
    return _read(f"vendor/{name}")


def _in_order(names: tuple[str, ...]) -> list[str]:
    """Components, each after those that it imports."""
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"components import each other: {' from '.join((*above, name))}")
        if name not in ordered:
            for imported in _imports(name):
                visit(imported, (*above, name))
            ordered.append(name)

    for name in names:
        visit(name, ())
    return ordered


def _imports(name: str) -> Iterator[str]:
    return (found["file"] for found in _IMPORT.finditer(_read_component(name)))


def _read_component(name: str) -> str:
    return _read(f"components/{name}.js")


@cache
def _read(name: str) -> str:
    try:
        return files("genus.studio").joinpath(f"page/{name}").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"Studio's page has no {name}") from None


COOKIE = "genus_studio"
CHANGE_HEADER = b"x-genus-studio"
FETCH_SITE = b"sec-fetch-site"
"""Says where the page is from that asks, also where there is no `Origin`: its answers it cannot read, but they cost."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("gate.example")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access(NamedTuple):
    """Who may ask: the names of this server, and the token, if one is needed."""

    hosts: frozenset[str]
    token: str | None
    scheme: str

    @classmethod
    def of(cls, host: str, names: Iterable[str], token: str | None, *, has_tls: bool) -> "Access":
        """Return the rules for a server at an address; BusError if others could read along."""
        if token is not None and not re.fullmatch(r"[\w.~-]{16,200}", token):
            raise BusError("a token has 16 to 200 letters, digits, and - . _ ~; leave it out and one is made")
        if is_loopback(host):
            return cls(LOCAL_NAMES | {host.lower(), *_lower(names)}, token, "https" if has_tls else "http")
        if not has_tls:
            raise BusError(
                f"others than this machine can connect to {host}: give a certificate and its key for TLS (cert=, key=; "
                "--cert, --key), or use an SSH tunnel to a page on 127.0.0.1"
            )
        unnamed = {"0.0.0.0", "::"}
        known = {host.lower()} - unnamed | set(_lower(names))
        if not known:
            raise BusError(f"{host} is every address of this machine: name those that pages use (hosts=, --allow-host)")
        return cls(frozenset(known) | LOCAL_NAMES, token or secrets.token_urlsafe(24), "https")


def _lower(names: Iterable[str]) -> list[str]:
    """Names as `_hostname` gives them."""
    return [name.lower().strip("[]") for name in names]


class Guard:
    """Checks every request before the application gets it, and adds the headers of safety to every answer."""

    def __init__(self, app: "ASGIApp", access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_safely(message: "Message") -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        from starlette.responses import JSONResponse

        headers = dict(scope["headers"])
        answer: Response | None = None
        refusal = self._refusal(scope["method"], scope["path"], headers)
        if refusal is not None:
            answer = JSONResponse({"message": refusal}, 403)
        elif self._access.token is not None:
            answer = self._admission(scope, headers)
        await (answer or self._app)(scope, receive, send_safely)

    def _refusal(self, method: str, path: str, headers: dict[bytes, bytes]) -> str | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if _hostname(f"//{host}") not in self._access.hosts:
            return f"the Host header names {host[:80]!r}, which is not this server"
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"{self._access.scheme}://{host}".lower():
            return "a page of another origin may not ask"
        if path.startswith("/api/") and headers.get(FETCH_SITE, b"none") not in (b"none", b"same-origin"):
            return "a page of another site may not ask"
        if method not in ("GET", "HEAD") and CHANGE_HEADER not in headers:
            return "a change needs the header X-Genus-Studio"
        return None

    def _admission(self, scope: "Scope", headers: dict[bytes, bytes]) -> "Response | None":
        """Return how a request is answered that is not passed on: one with the token in its address, or without any."""
        from starlette.responses import JSONResponse

        cookie = _cookie_name(scope)
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == "token" and self._is_token(value) for name, value in given):
            return self._admit(cookie, scope["path"], [(name, value) for name, value in given if name != "token"])
        if any(self._is_token(value) for value in _cookies(headers, cookie)):
            return None
        return JSONResponse({"message": "open the address with the token that Studio printed"}, 401)

    def _is_token(self, given: str) -> bool:
        assert self._access.token is not None
        return hmac.compare_digest(given.encode(), self._access.token.encode())

    def _admit(self, cookie: str, path: str, rest: list[tuple[str, str]]) -> "Response":
        """The token came with the address: keep it in a cookie, and take it out of the address."""
        from starlette.responses import RedirectResponse

        here = "/" + quote(path.lstrip("/\\"))  # never to another server, which //name would be
        answer = RedirectResponse(f"{here}?{urlencode(rest)}" if rest else here, 303)
        assert self._access.token is not None
        secure = self._access.scheme == "https"
        answer.set_cookie(cookie, self._access.token, httponly=True, samesite="lax", secure=secure)
        return answer


def _cookie_name(scope: "Scope") -> str:
    """Return the name of the cookie: browsers send those of all servers of a host, whatever their port."""
    server = scope.get("server") or ("", 0)
    return f"{COOKIE}_{server[1]}"


def _cookies(headers: dict[bytes, bytes], name: str) -> Iterable[str]:
    """The values of a cookie; other servers of this host may have set any others, also some that are no cookies."""
    for each in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        key, _, value = each.strip().partition("=")
        if key == name:
            yield value


def _hostname(url: str) -> str | None:
    try:
        found = urlsplit(url)
        found.port  # noqa: B018 - raises if it is no number
        is_more = found.username is not None or found.path or "?" in url or "#" in url
        return None if is_more else found.hostname
    except ValueError:
        return None


def check_certificate(cert: str, key: str) -> None:
    """BusError if two files are not a certificate and its private key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem
        raise BusError(f"{cert} and {key} are no certificate with its private key: {why}") from problem


def check_hosts(names: Collection[str]) -> None:
    """BusError if a name cannot be that of a host."""
    for name in names:
        if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", name):
            raise BusError(f"{name!r} is no name of a host")
