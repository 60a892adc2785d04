"""Serves the live page: a few read-only addresses, and a stream of changes."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from etude.board.guard import Guard
from etude.board.index import Index
from etude.errors import MissingExtra, UserError

#: Runs that one request may ask curves of, and points of each curve.
_MOST_RUNS, _POINTS = 40, 1200
_PAUSE = 1.0
_HEARTBEAT = 15.0
#: Lets a browser compile the library in another thread while it loads; that halves the time until it is ready.
_COMPILE_AT_ONCE = b"//# allFunctionsCalledOnLoad\n"
_STATIC = {
    "board.css": ("etude.board", "text/css"),
    **{
        f"{name}.js": ("etude.board", "text/javascript")
        for name in ("board", "curves", "details", "hparams", "list", "state")
    },
    "page.css": ("etude.report", "text/css"),
    "charts.js": ("etude.report", "text/javascript"),
}


def make_app(root: Path, *, hosts: tuple[str, ...] = (), token: str = "") -> Starlette:
    """Return the app that shows the runs below ``root``."""
    board = Board(Index(root))
    # The runs are read while a browser starts and loads the page.
    threading.Thread(target=board.index.look_ahead, name="etude-index", daemon=True).start()
    routes = [
        Route("/", board.page),
        Route("/static/{name}", board.static),
        Route("/api/runs", board.runs),
        Route("/api/curves", board.curves),
        Route("/api/run", board.run),
        Route("/api/diff", board.diff),
        Route("/api/match", board.match),
        Route("/api/media", board.media),
        Route("/media", board.medium),
        Route("/events", board.events),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, hosts=hosts, token=token)])


class Board:
    """Answers each address. Files are read in threads, so that a large one holds nobody up."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._plotly = _plotly()
        self._refreshing: asyncio.Lock = asyncio.Lock()
        self._next = 0.0
        #: Tells pages that the server was started again, so that their version counts for nothing.
        self.id = secrets.token_hex(4)

    async def page(self, request: Request) -> Response:
        page = _file("etude.board", "board.html").replace("{plotly}", version("plotly"))
        return Response(page, media_type="text/html; charset=utf-8")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "plotly.min.js":
            # The library has its version in its address, so that a browser may keep it.
            kept = {"Cache-Control": "private, max-age=31536000, immutable"}
            return Response(self._plotly, media_type="text/javascript", headers=kept)
        if name not in _STATIC:
            return PlainTextResponse("no such file\n", status_code=404)
        package, kind = _STATIC[name]
        return Response(_file(package, name), media_type=kind)

    async def runs(self, request: Request) -> Response:
        """Return all runs, or with ``since`` those that changed; one of another server process is ignored."""
        query = request.query_params
        since = _number(query.get("since")) if query.get("board") == self.id else None
        if query.get("since") is not None and (since is None and query.get("board") == self.id):
            return PlainTextResponse("since is a version: a whole number\n", status_code=400)
        await self._refresh()
        found = await run_in_threadpool(self.index.runs, int(since or 0))
        return _json({"board": self.id, **found})

    async def curves(self, request: Request) -> Response:
        query = request.query_params
        names = query.getlist("run")[:_MOST_RUNS]
        low, high = _number(query.get("low")), _number(query.get("high"))
        if not self.index.version:
            await self._refresh()
        found = await run_in_threadpool(self.index.curves, names, points=_POINTS, low=low, high=high)
        return _json(found)

    async def run(self, request: Request) -> Response:
        if not self.index.version:
            await self._refresh()
        found = await run_in_threadpool(self.index.details, request.query_params.get("run", ""))
        return _json(found) if found is not None else PlainTextResponse("no such run\n", status_code=404)

    async def diff(self, request: Request) -> Response:
        names = request.query_params.getlist("run")[:_MOST_RUNS]
        found = await run_in_threadpool(self.index.differences, names)
        return _json(found) if found is not None else PlainTextResponse("no such run\n", status_code=404)

    async def match(self, request: Request) -> Response:
        """Return the names of the runs that a filter selects, or what is wrong with it."""
        try:
            names = await run_in_threadpool(self.index.matching, request.query_params.get("filter", ""))
        except UserError as error:
            return _json({"error": str(error)})
        return _json({"names": names})

    async def media(self, request: Request) -> Response:
        found = await run_in_threadpool(self.index.media, request.query_params.get("run", ""))
        return _json(found) if found is not None else PlainTextResponse("no such run\n", status_code=404)

    async def medium(self, request: Request) -> Response:
        query = request.query_params
        file = query.get("file", "")
        found = await run_in_threadpool(self.index.medium, query.get("run", ""), file)
        if found is None:
            return PlainTextResponse("no such file\n", status_code=404)
        # A text of a run is never a page.
        return Response(found, media_type="image/png" if file.endswith(".png") else "text/plain; charset=utf-8")

    async def events(self, request: Request) -> Response:
        # nginx in front of it would otherwise hold the stream back.
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._changes(request), media_type="text/event-stream", headers=headers)

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        """Yield the version whenever it changes; nothing is queued, so that a slow reader costs no memory."""
        loop, seen, said = asyncio.get_running_loop(), -1, 0.0
        while not await request.is_disconnected():
            now = await self._refresh()
            if now != seen or loop.time() - said > _HEARTBEAT:
                seen, said = now, loop.time()
                yield f"data: {self.id} {now}\n\n"
            await asyncio.sleep(_PAUSE)

    async def _refresh(self) -> int:
        """Look for changes, however many ask, at most once a pause."""
        async with self._refreshing:
            clock = asyncio.get_running_loop().time
            began = clock()
            if began >= self._next:
                with suppress(UserError):  # the folder is gone for now
                    await run_in_threadpool(self.index.refresh)
                # On a slow disk look less often, so that looking takes at most a tenth of the time.
                # Only not while runs are left to read, of which a list shows the names.
                self._next = clock() + (0.0 if self.index.is_stale else max(_PAUSE, 10 * (clock() - began)))
            return self.index.version


def _json(value: Any) -> Response:
    return Response(json.dumps(_finite(value), allow_nan=False), media_type="application/json")


def _finite(value: Any) -> Any:
    """Return ``value`` with texts in place of numbers that JSON does not know."""
    # True of NaN and the infinities alone.
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()} if not {"x", "y"} <= value.keys() else value
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _number(text: str | None) -> float | None:
    """Return a finite number of a query; None for none, and for anything else."""
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and abs(number) < 1e18 else None


def _file(package: str, name: str) -> str:
    return (files(package) / "static" / name).read_text(encoding="utf-8")


def _plotly() -> bytes:
    """Return the library as ``plotly.offline.get_plotlyjs`` does, which imports much that the board does not need."""
    try:
        library = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except ImportError:
        raise MissingExtra("plotly", "board", "the board") from None
    return _COMPILE_AT_ONCE + library
