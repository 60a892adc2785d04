"""Refuses requests from other sites, foreign host names and unknown machines."""

from __future__ import annotations

import ipaddress
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
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
    """Checks each request first. ``hosts``: allowed names besides the loopback's; ``token``: required if not empty."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] = (), token: str = "") -> None:
        self.app, self.hosts, self.token = app, {*_LOCAL, *map(str.lower, hosts)}, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # a websocket: the server closes it

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer: ASGIApp = self._refusal(request) or self.app
        if answer is self.app and self.token and "token" in request.query_params:
            # Out of the address, which histories and screenshots show, into a cookie.
            redirect = RedirectResponse(scope["path"], status_code=303)
            redirect.set_cookie(COOKIE, request.query_params["token"], httponly=True, samesite="strict")
            answer = redirect
        await answer(scope, receive, guarded)

    def _refusal(self, request: Request) -> PlainTextResponse | None:
        """Return the answer to a request that is refused, or None."""
        headers, host = request.headers, request.headers.get("host", "")
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read-only\n", status_code=405, headers={"Allow": "GET, HEAD"})
        # Against DNS rebinding: a name of another site may lead to this machine.
        if name_in(host).lower() not in self.hosts and not (self.token and _is_address(name_in(host))):
            return PlainTextResponse("this host name is not served\n", status_code=421)
        origin = headers.get("origin")
        # A link on another page may open this one, but nothing else may ask for its data.
        visit = headers.get("sec-fetch-mode") == "navigate" and request.scope["path"] == "/"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not visit
        if is_foreign or (origin is not None and urlsplit(origin).netloc != host):
            return PlainTextResponse("requests of other sites are refused\n", status_code=403)
        if self.token and not self._knows_token(request):
            return PlainTextResponse("open the address with ?token=… that the command printed\n", status_code=401)
        return None

    def _knows_token(self, request: Request) -> bool:
        given = request.query_params.getlist("token")
        given += [request.headers.get("authorization", "").removeprefix("Bearer "), request.cookies.get(COOKIE, "")]
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
    """Return whether ``name`` is an IP address: no other site can claim it as its name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
