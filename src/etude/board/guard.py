"""Refuses requests from other sites, foreign host names and unknown machines."""

from __future__ import annotations

import ipaddress
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "etude_board"
_LOCAL = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Stands before the app. ``hosts``: names beside the loopback's; ``token``: asked for if not empty."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] = (), token: str = "") -> None:
        self.app, self.hosts, self.token = app, {*_LOCAL, *map(str.lower, hosts)}, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # a websocket: the server closes it
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refused = self._refusal(scope, headers)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                pairs = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                pairs = [pair for pair in pairs if pair[0] not in own]
                message = {**message, "headers": [*message["headers"], *pairs]}
            await send(message)

        if refused is not None:
            await refused(scope, receive, guarded)
        elif self.token and "token" in (query := parse_qs(scope["query_string"].decode("latin-1"))):
            response = RedirectResponse(scope["path"], status_code=303)
            response.set_cookie(COOKIE, query["token"][0], httponly=True, samesite="strict")
            await response(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> PlainTextResponse | None:
        """Return the answer to a request that is refused, or None."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read-only\n", status_code=405, headers={"Allow": "GET, HEAD"})
        host = headers.get("host", "")
        if name_in(host).lower() not in self.hosts and not (self.token and _is_address(name_in(host))):
            return PlainTextResponse("this host name is not served\n", status_code=421)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return PlainTextResponse("requests of other sites are refused\n", status_code=403)
        visit = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not visit:
            return PlainTextResponse("requests of other sites are refused\n", status_code=403)
        if self.token and not self._knows_token(scope, headers):
            return PlainTextResponse("open the address with ?token=… that the command printed\n", status_code=401)
        return None

    def _knows_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        given.append(headers.get("authorization", "").removeprefix("Bearer "))
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given += [cookie.value] if cookie else []
        return any(compare_digest(text.encode(), self.token.encode()) for text in given)


def name_in(host: str) -> str:
    """Return the name of a Host header without its port.

    >>> name_in("[::1]:6007"), name_in("localhost:80"), name_in("evil.example")
    ('::1', 'localhost', 'evil.example')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_address(name: str) -> bool:
    """Return whether ``name`` is an IP address: no other site can make a browser believe that it is one of its own."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
