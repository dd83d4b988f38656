"""Requests to an application in this process, without a server."""


def test_web_requests_without_a_server() -> None:
    """The two ways in which a trial asks an application."""
    import asyncio

    from cowlab._web import Request, asgi, wsgi

    def simple(environ, start_response):
        start_response("201 Created", [])
        yield environ["PATH_INFO"].encode("latin-1")
        yield environ["QUERY_STRING"].encode() + environ["wsgi.input"].read()
        yield environ["HTTP_X_TOKEN"].encode()

    async def modern(scope, receive, send):
        message = await receive()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        body = scope["path"].encode() + scope["query_string"] + message["body"]
        token = dict(scope["headers"])[b"x-token"]
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": token})

    request = Request("/caf%C3%A9?q=1", "POST", {"X-Token": "t"}, b"body")
    expected = "/café".encode() + b"q=1body" + b"t"
    assert wsgi(simple, request).body == expected
    with asyncio.Runner() as runner:
        response = asgi(modern, request, runner)
    assert (response.status, response.body) == (201, expected)


def test_start_response_may_be_called_again_until_something_is_written() -> None:
    """With what went wrong, as PEP 3333 has it: an error page instead of the answer."""
    import sys

    import pytest

    from cowlab._web import NoAnswer, Request, wsgi

    def again(environ, start_response):
        write = start_response("200 OK", [])
        if environ["PATH_INFO"] == "/late":
            write(b"so far")
        try:
            raise LookupError("lost")
        except LookupError:
            start_response("503 Later", [], sys.exc_info())
        return [b"sorry"]

    def twice(environ, start_response):
        start_response("200 OK", [])
        start_response("200 OK", [])
        return []

    response = wsgi(again, Request("/"))
    assert (response.status, response.body) == (503, b"sorry")
    with pytest.raises(LookupError):
        wsgi(again, Request("/late"))
    with pytest.raises(NoAnswer, match="called twice"):
        wsgi(twice, Request("/"))
