"""One request to a WSGI or ASGI application, made in this process, without a server."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from cowlab._errors import CowlabError

__all__ = ["Asgi", "NoAnswer", "Request", "Response", "asgi", "wsgi"]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: ``target`` is a path with its query, as in ``/items?page=2``."""

    target: str = "/"
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class NoAnswer(CowlabError):
    """The application returned without an answer, or did not start."""


@dataclass(frozen=True, slots=True)
class Response:
    """What was answered: the status code and the whole body."""

    status: int
    body: bytes


def _host(request: Request) -> str:
    for name, value in request.headers.items():
        if name.lower() == "host":
            return value
    return "localhost"


def _environ(request: Request) -> dict[str, Any]:
    parts = urlsplit(request.target)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        # Bytes as latin-1, as PEP 3333 has it.
        "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
        "QUERY_STRING": parts.query,
        "RAW_URI": request.target,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": _host(request),
        "CONTENT_LENGTH": str(len(request.body)) if request.body else "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    return environ


def wsgi(application: Callable[..., Iterable[bytes]], request: Request) -> Response:
    """Call a WSGI application once. What it raises is passed on."""
    status = ""
    written = io.BytesIO()

    def start_response(line: str, headers: Any, exc_info: Any = None) -> Any:
        nonlocal status
        if exc_info is not None and written.tell():
            raise exc_info[1].with_traceback(exc_info[2])  # too late for another
        if exc_info is None and status:
            raise NoAnswer(
                f"{request.method} {request.target}: start_response was called twice"
            )
        status = line
        return written.write

    body = application(_environ(request), start_response)
    try:
        for part in body:
            written.write(part)
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
    if not status[:3].isdecimal():
        raise NoAnswer(
            f"{request.method} {request.target}: the application never called"
            " start_response"
            if not status
            else f"{request.method} {request.target}: {status!r} is no status line"
        )
    return Response(int(status[:3]), written.getvalue())


def asgi(application: Callable[..., Any], request: Request, runner: Any) -> Response:
    """Call an ASGI application once, in ``runner`` (an ``asyncio.Runner``)."""
    response: Response = runner.run(_asgi(application, request, {}))
    return response


class Asgi:
    """An ASGI application with an event loop of its own, as a worker has one.

    ``start()`` runs the application's lifespan up to its startup, ``stop()`` the rest.
    An application that knows no lifespan is served without, as servers do.
    """

    def __init__(self, application: Callable[..., Any]) -> None:
        import asyncio

        self.application = application
        self.state: dict[str, Any] = {}
        self._runner = asyncio.Runner()
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._lifespan: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Raises NoAnswer where the application says that its startup failed."""
        self._runner.run(self._tell("lifespan.startup"))

    def ask(self, request: Request) -> Response:
        """One request, from its first byte to the end of its answer."""
        state = dict(self.state)
        response: Response = self._runner.run(_asgi(self.application, request, state))
        return response

    def stop(self) -> None:
        """Shutdown, and the end of the loop and of all its tasks."""
        if self._lifespan is not None and not self._lifespan.done():
            self._runner.run(self._tell("lifespan.shutdown"))
        self._runner.close()

    async def _tell(self, what: str) -> None:
        import asyncio

        await self._inbox.put({"type": what})
        if self._lifespan is None:
            self._lifespan = asyncio.create_task(self._live())
        said = await self._said.get()
        if said is not None and said["type"] == f"{what}.failed":
            raise NoAnswer(f"{what} failed: {said.get('message', '')}".rstrip(": "))

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": dict(_VERSION), "state": self.state}
        try:
            await self.application(scope, self._inbox.get, self._said.put)
        except Exception:
            pass  # by the specification: it supports no lifespan
        finally:
            self._said.put_nowait(None)


_VERSION = {"version": "3.0", "spec_version": "2.3"}


async def _asgi(
    application: Callable[..., Any], request: Request, state: dict[str, Any]
) -> Response:
    import asyncio

    parts = urlsplit(request.target)
    headers = {"host": _host(request), **request.headers}
    if request.body:
        headers["content-length"] = str(len(request.body))
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": dict(_VERSION),
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote_to_bytes(parts.path).decode(errors="replace"),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "state": state,
    }
    asked = False
    answered = asyncio.Event()
    status = 0
    written = io.BytesIO()

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            # The client stays until it has its answer: an application may listen for
            # the disconnect while it streams.
            await answered.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            written.write(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

    await application(scope, receive, send)
    if not status or not answered.is_set():
        raise NoAnswer(
            f"{request.method} {request.target}: the application returned"
            f" {'in the middle of' if status else 'without'} an answer"
        )
    return Response(status, written.getvalue())
