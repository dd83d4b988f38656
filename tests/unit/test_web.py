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
