"""group(): a master and its workers, against what each process says of itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cowlab

PROGRAM = """
import os, sys, time
data = bytearray(8 << 20)
for _ in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            data[:] = bytes([1]) * len(data)
        break
print("ready", flush=True)
sys.stdin.read()
"""


def test_children_and_theirs_are_members_and_shared_pages_count_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as master:
        assert master.stdout is not None
        for _ in range(5):
            assert master.stdout.readline() == b"ready\n"
        found = cowlab.group(master.pid)
        assert master.stdin is not None
        master.stdin.close()
    assert found.master.pid == master.pid
    assert len(found.members) == 5
    assert [member.parent for member in found.members[1:3]] == [master.pid] * 2
    # Two grandchildren wrote the buffer, three processes share the first one.
    mib = 1 << 20
    assert 3 * 8 * mib < found.pss < 3 * 8 * mib + 40 * mib
    assert found.rss > 5 * 8 * mib
    assert 2 * 8 * mib < found.uss < found.pss
    assert found.to_json()["pss"] == found.pss


def test_a_group_of_one_is_the_process() -> None:
    found = cowlab.group()
    assert found.master.pid == os.getpid()
    assert found.master.rss > 0


def test_a_master_that_has_ended_is_gone() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    with pytest.raises(cowlab.Gone):  # ended, and not waited for
        cowlab.group(child)
    os.waitpid(child, 0)
    with pytest.raises(cowlab.Gone):
        cowlab.group(child)


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
