"""One request to a WSGI or ASGI application, made in this process, without a server."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

__all__ = ["Request", "Response", "asgi", "wsgi"]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: ``target`` is a path with its query, as in ``/items?page=2``."""

    target: str = "/"
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


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
        if exc_info is not None and status:
            raise exc_info[1].with_traceback(exc_info[2])
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
    return Response(int(status.split(maxsplit=1)[0]), written.getvalue())


def asgi(application: Callable[..., Any], request: Request, runner: Any) -> Response:
    """Call an ASGI application once, in ``runner`` (an ``asyncio.Runner``)."""
    response: Response = runner.run(_asgi(application, request))
    return response


async def _asgi(application: Callable[..., Any], request: Request) -> Response:
    parts = urlsplit(request.target)
    headers = {"host": _host(request), **request.headers}
    if request.body:
        headers["content-length"] = str(len(request.body))
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote_to_bytes(parts.path).decode(errors="replace"),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    sent = False
    status = 0
    written = io.BytesIO()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            written.write(message.get("body", b""))

    await application(scope, receive, send)
    return Response(status, written.getvalue())
