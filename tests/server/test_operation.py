"""Keys, limits, clients that leave, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import typer
from typer.testing import CliRunner

from forerun.cli import app
from forerun.cli.terminal.origins import TellsOrigins
from forerun.engine import LLM, AsyncEngine
from forerun.errors import InvalidOption, MissingExtra
from forerun.server.errors import ApiError
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.config import Limits, ServerConfig
from forerun.server.operation.counters import Counters
from forerun.server.operation.front import Front
from forerun.server.operation.listening import listening, pid_file
from forerun.server.operation.origins import Origins
from forerun.server.operation.protocol import Direct
from forerun.server.operation.running import Life
from forerun.server.service import Service
from forerun.server.streaming import DIRECT, EventStream, JsonAnswer
from tests.server.serving import Running, serving, start
from tests.server.test_routes import error_of
from tests.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow

PLAIN = ("--kernels", "reference", "--no-speculation")
ENDLESS: dict[str, Any] = {"prompt": "abc", "max_tokens": 8000, "ignore_eos": True, "seed": 1}
KEY = {"Authorization": "Bearer from the file"}
SECRET = {"Authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def long_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers take longer than any test."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=8192, num_layers=1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
    """The configs that servers would run with; no server is started."""
    found = list[ServerConfig]()
    monkeypatch.setattr(
        "forerun.server.operation.running.run_server", lambda config, *_: found.append(config)
    )
    return found


@pytest.fixture(scope="module")
def guarded(long_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with one running and one waiting place, keys from three places, small limits, and
    options from all sources."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "keys").write_text("# not a key\nfrom the file\n\n", encoding="utf-8")
    (folder / "serve.toml").write_text(
        'port = 1\nmax-num-seqs = 1\nmax_num_waiting = 77\nserved-model-name = ["one", "two"]\n'
        f'api-key-file = "{folder / "keys"}"\nmax-body-bytes = 4000\nbody-timeout = 0.4\n'
        f'pid-file = "{folder / "pid"}"\nmax-answer-tokens = 8000\n'
    )
    env = {"FORERUN_SERVE_MAX_NUM_WAITING": "1", "FORERUN_SERVE_API_KEY": "env1 env2"}
    options = ["--config", str(folder / "serve.toml"), "--lenient-fields"]
    options += ["--request-timeout", "3", "--allowed-origin", "https://A.example/"]
    with serving(
        long_path, *PLAIN, *options, "--served-model-name", "three", env=env, wait=False
    ) as running:
        running.client.headers.update(KEY)
        while running.client.get("/ready").status_code != 200:
            assert running.process.poll() is None, running.log
            time.sleep(0.05)
        assert (folder / "pid").read_text() == f"{running.process.pid}\n"
        yield running


def test_flags_win_over_the_environment_and_that_over_the_file(guarded: Running) -> None:
    """`serving` gives --port 0 and the file port 1; the environment's queue shows in 429 below."""
    assert not guarded.url.endswith(":1")
    listed = guarded.client.get("/v1/models").json()["data"]
    assert [model["id"] for model in listed] == ["three"]


def test_keys(guarded: Running) -> None:
    for value in ("Bearer env1", "bearer env2", "Bearer from the file"):
        headers = {"Authorization": value}
        assert guarded.client.get("/v1/models", headers=headers).status_code == 200
    for value in ("env1", "from the file"):  # as Anthropic's client sends them
        for given, status in ((value, 200), ("x", 401)):
            found = httpx.get(f"{guarded.url}/v1/models", headers={"X-Api-Key": given})
            assert found.status_code == status
    for value in ("", "Bearer", "Bearer wrong", "Basic env1", "env1", "Bearer # not a key"):
        for path in ("/v1/models", "/metrics", "/tokenize", "/openapi.json", "/nothing"):
            response = guarded.client.get(path, headers={"Authorization": value})
            assert error_of(response, 401)["code"] == "invalid_api_key"
            assert response.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/health", "/ready", "/version"):
        assert httpx.get(guarded.url + path).status_code == 200
    counted = guarded.client.get("/metrics").text  # by the refused path
    assert 'http_responses_total{path="/v1/models",status="401"} 8.0' in counted
    assert 'http_responses_total{path="other",status="401"} 6.0' in counted


def test_no_keys_means_that_all_may_ask_and_odd_ones_do_not_crash() -> None:
    Keys(()).check("/v1/models", None)
    sent = "Bearer schlüssel".encode().decode("latin-1")  # as the framework reads a header
    Keys(("key", "schlüssel")).check("/v1/models", sent)
    for given in ("Bearer \udcff", "Bearer ké"):
        with pytest.raises(ApiError):
            Keys(("key",)).check("/v1/models", given)


def test_request_ids_come_back_or_are_made(guarded: Running) -> None:
    answer = guarded.client.get("/health", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["X-Request-Id"] == "mine-1"
    made = guarded.client.get("/health", headers={"X-Request-Id": "a" * 200})
    assert len(made.headers["X-Request-Id"]) == 32


def test_pages_of_other_origins_are_told_apart(guarded: Running) -> None:
    for origin, allowed in (("https://a.example", "https://a.example"), ("https://b", None)):
        answer = guarded.client.get("/health", headers={"Origin": origin})
        assert answer.headers.get("access-control-allow-origin") == allowed
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://a.example"}
    theirs = "authorization,content-type,x-stainless-os"  # sent by OpenAI's client in a browser
    asked["Access-Control-Request-Headers"] = theirs
    asked["X-Request-Id"] = "asked-first"
    answer = guarded.client.options("/v1/chat/completions", headers=asked)
    assert answer.status_code == 200
    assert "x-stainless-os" in answer.headers["access-control-allow-headers"]
    assert answer.headers["X-Request-Id"] == "asked-first"
    line = logged(guarded, "asked-first")
    assert (line["method"], line["status"]) == ("OPTIONS", 200)


def test_pages_that_were_named_may_read_errors(guarded: Running) -> None:
    sent = {"Origin": "https://a.example", "Authorization": "Bearer wrong"}
    answer = guarded.client.get("/v1/models", headers=sent)
    assert error_of(answer, 401)["code"] == "invalid_api_key"
    assert answer.headers["access-control-allow-origin"] == "https://a.example"
    assert (
        answer.headers["access-control-expose-headers"] == "x-request-id, request-id, retry-after"
    )


PREFLIGHT = {"Access-Control-Request-Method": "POST", "Origin": "https://b.example"}


def test_a_preflight_of_a_page_that_was_not_named_is_refused_and_logged(guarded: Running) -> None:
    """A preflight must be answered without a key: browsers send none with it."""
    sent = {**PREFLIGHT, "X-Request-Id": "strange"}
    answer = httpx.options(f"{guarded.url}/v1/chat/completions", headers=sent)
    error = error_of(answer, 403)
    assert error["code"] == "origin_not_allowed"
    assert "https://b.example" in error["message"]
    assert "--allowed-origin" in error["message"]
    assert answer.headers["X-Request-Id"] == "strange"
    assert "access-control-allow-origin" not in answer.headers
    line = logged(guarded, "strange")
    assert (line["method"], line["status"]) == ("OPTIONS", 403)
    shown = guarded.client.get("/metrics").text
    assert 'forerun:http_responses_total{path="/v1/chat/completions",status="403"} ' in shown


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://App.example.com/", "https://app.example.com"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:80/", "http://a.example"),
        ("http://a.example:443", "http://a.example:443"),
        ("http://LOCALHOST:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ("*", "*"),
    ],
)
def test_an_origin_is_written_as_browsers_do(given: str, origin: str) -> None:
    assert ServerConfig(names=("a",), allowed_origins=(given,)).allowed_origins == (origin,)


@pytest.mark.parametrize(
    "given",
    [
        *("app.example.com", "localhost:3000", "//a.example", "https://", "", "null"),
        *("https://a.example/app", "https://a.example?b", "https://*.a.example", "file:///a"),
        *("https://a.example, https://b.example", "https://me@a.example", " https://a.example"),
    ],
)
def test_what_is_no_origin_is_refused_at_the_start(given: str, started: list[Any]) -> None:
    result = CliRunner().invoke(app, ["serve", "--allowed-origin", given])
    assert (result.exit_code, started) == (2, [])
    assert result.stderr.startswith(f"forerun: --allowed-origin {given!r} is not allowed; give one")
    assert result.stderr.count("\n") == 1


def test_who_is_cancelled_is_told_that_the_server_ends() -> None:
    service = Service(("a",), Limits(), Counters(lambda: None))

    async def cancelled(_scope: Any, _receive: Any, _send: Any) -> None:
        raise asyncio.CancelledError

    front = Front(cancelled, service, Keys(()), Origins(()), AccessLog(None))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://here:80") as client:
            return await client.get("/v1/models")

    assert "shutting down" in error_of(asyncio.run(ask()), 503)["message"]


def asking(origins: Origins, *keys: str) -> Callable[..., httpx.Response]:
    """Return ask(method, header=value, …) for a server with these origins and keys."""
    service = Service(("a",), Limits(), Counters(lambda: None))

    async def reached(scope: Any, receive: Any, send: Any) -> None:
        await JsonAnswer({})(scope, receive, send)

    front = Front(reached, service, Keys(keys), origins, AccessLog(None))

    async def ask(method: str = "POST", **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://here:80") as client:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, "/v1/completions", headers=sent, content="{}")

    return lambda *args, **headers: asyncio.run(ask(*args, **headers))


def test_pages_that_were_not_named_cannot_ask_in_plain_text() -> None:
    """Browsers send plain text to other hosts without a preflight."""
    ask = asking(Origins(("https://a.example",)))

    def status(*args: str, **headers: str) -> int:
        return ask(*args, **headers).status_code

    refused = ask(origin="https://evil.example", content_type="text/plain")
    assert error_of(refused, 403)["code"] == "origin_not_allowed"
    assert "--allowed-origin" in refused.text
    assert status(origin="null") == 403
    assert status() == 200  # no browser
    assert status(origin="https://a.example") == 200
    assert status(origin="https://here", host="here") == 200  # the server's own page
    assert status(origin="https://proxy", x_forwarded_host="proxy, inner") == 200
    assert status(origin="https://here", host="Here:443") == 200
    for json_type in ("application/json", "Application/JSON; charset=utf-8"):
        assert status(origin="https://evil.example", content_type=json_type) == 200
    assert status("GET", origin="https://evil.example") == 200


@pytest.mark.parametrize("allowed", [(), ("https://a.example",)])
@pytest.mark.parametrize("keys", [(), ("key",)])
def test_a_preflight_is_asked_for_its_origin_alone(
    allowed: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    ask = asking(Origins(allowed), *keys)
    asks_first = {"access_control_request_method": "POST"}
    refused = ask("OPTIONS", origin="https://evil.example", **asks_first)
    assert error_of(refused, 403)["code"] == "origin_not_allowed"
    as_json = ask("OPTIONS", origin="null", content_type="application/json", **asks_first)
    assert as_json.status_code == 403
    assert ask("OPTIONS", origin="https://here", host="here", **asks_first).status_code == 200
    for origin in allowed:
        assert ask("OPTIONS", origin=origin, **asks_first).status_code == 200
    plain = ask("OPTIONS", origin="https://evil.example")
    assert plain.status_code == (401 if keys else 200)  # no preflight


@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_a_name_that_was_moved_to_this_machine_is_not_its_own(content_type: str) -> None:
    """DNS rebinding: to the browser the page asks its own host, so there is no preflight."""
    ask = asking(Origins(("https://proxied.example",), is_local=True))

    def status(host: str, origin: str | None = None, **headers: str) -> int:
        sent = {"origin": origin or f"http://{host}", "content_type": content_type, **headers}
        return ask(host=host, **sent).status_code

    assert status("evil.example:8000") == 403
    assert status("127.0.0.1.evil.example:8000") == 403
    assert status("evil.example", x_forwarded_host="localhost") == 403
    assert status("127.0.0.1:8000", "https://evil.example", x_forwarded_host="evil.example") == 403
    for own in ("localhost:8000", "127.0.0.1:8000", "127.0.0.2", "[::1]:8000", "a.localhost:80"):
        assert status(own) == 200
    assert status("proxied.example", "https://proxied.example") == 200
    assert ask(host="evil.example", content_type=content_type).status_code == 200  # no browser


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), 403), (("--api-key", "k"), 200), (("--host", "0.0.0.0"), 200)],
)
def test_who_asks_for_keys_or_serves_others_may_have_any_name(
    tiny_path: Path, options: tuple[str, ...], expected: int
) -> None:
    sent = {"Host": "any.example", "Origin": "http://any.example", "Authorization": "Bearer k"}
    with serving(tiny_path, *PLAIN, *options) as running:
        answer = running.client.post("/tokenize", json={"prompt": "a"}, headers=sent)
    assert answer.status_code == expected


def connected(running: Running) -> socket.socket:
    host, port = running.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def head_of_body(*lines: str) -> bytes:
    lines = (
        "POST /v1/completions HTTP/1.1",
        "Host: x",
        f"Authorization: {KEY['Authorization']}",
        *lines,
    )
    return "\r\n".join((*lines, "", "")).encode()


def received(client: socket.socket) -> tuple[bytes, dict[str, Any]]:
    """Read to the end of the connection; return the answer's status line and error."""
    answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], json.loads(body)["error"]


def test_bodies_have_a_limit_of_length(guarded: Running) -> None:
    error = error_of(guarded.post("/v1/completions", prompt="a" * 5000), 413)
    assert "--max-body-bytes" in error["message"]
    error = error_of(guarded.post("/v1/completions", prompt="a" * 900_000), 413)  # read to its end
    assert error["code"] == "body_too_long"


def test_a_body_that_says_how_long_it_is_is_refused_before_it_comes(guarded: Running) -> None:
    """If the server waited for the body, the answer would be 408."""
    with connected(guarded) as client:
        client.sendall(head_of_body("Content-Length: 4001"))
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_end_is_cut_off(guarded: Running) -> None:
    """The client is told why, and cannot send for ever."""
    with connected(guarded) as client:
        client.sendall(head_of_body("Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            client.sendall((b"2710\r\n" + b"a" * 10_000 + b"\r\n") * 10_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
    assert guarded.client.get("/health").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(guarded: Running) -> None:
    """--body-timeout is 0.4 s here."""
    with connected(guarded) as client:
        client.sendall(head_of_body("Content-Length: 100") + b'{"prompt": "')
        status, error = received(client)
        assert (status[:13], error["code"]) == (b"HTTP/1.1 408 ", "body_timeout")


def test_unknown_fields_are_ignored_where_that_was_asked_for(guarded: Running) -> None:
    guarded.ask("/v1/completions", prompt="abc", max_tokens=1, whatever=3)
    error = error_of(guarded.post("/v1/completions", prompt="a", max_tokens=8001), 400)
    assert error["param"] == "max_tokens"


def wait_until_idle(running: Running) -> None:
    running.wait_for("forerun:num_requests_running", 0)
    running.wait_for("forerun:num_requests_waiting", 0)
    running.wait_for("forerun:kv_cache_usage_perc", 0)


def test_a_full_queue_answers_429_and_those_who_leave_make_room(guarded: Running) -> None:
    client = guarded.client
    before = guarded.metric("forerun:request_success_total")
    with client.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as runs:
        lines = runs.iter_lines()  # httpx hangs up when this is dropped
        next(lines)
        with client.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}):
            guarded.wait_for("forerun:num_requests_waiting", 1)
            refused = guarded.post("/v1/completions", **ENDLESS)
            assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
            assert refused.headers["Retry-After"] == "1"
    wait_until_idle(guarded)
    assert guarded.metric("forerun:request_success_total") == before + 2
    with pytest.raises(httpx.ReadTimeout):  # not streamed: the client disconnects
        client.post("/v1/completions", json=ENDLESS, timeout=0.5)
    wait_until_idle(guarded)
    guarded.ask("/v1/completions", prompt="abc", max_tokens=1)


def test_an_answer_has_a_limit_of_time(guarded: Running) -> None:
    lines = guarded.stream("/v1/completions", **ENDLESS)
    assert json.loads(lines[-2])["error"]["code"] == "request_timeout"
    assert lines[-1] == "[DONE]"
    wait_until_idle(guarded)


def test_the_official_client_hears_who_may_not_ask_and_who_has_to_wait(guarded: Running) -> None:
    def client(key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0)

    with client("wrong") as stranger, pytest.raises(openai.AuthenticationError, match="API key"):
        stranger.models.list()
    streams = {**ENDLESS, "stream": True}
    with client("env1") as known, ThreadPoolExecutor(2) as crowd:
        others = [crowd.submit(guarded.stream, "/v1/completions", **streams) for _ in range(2)]
        guarded.wait_for("forerun:num_requests_waiting", 1)
        with pytest.raises(openai.RateLimitError, match="wait") as refused:
            known.completions.create(model="three", prompt="a")
        assert refused.value.response.headers["Retry-After"] == "1"
        for other in others:
            other.result()  # ended by --request-timeout
    wait_until_idle(guarded)


def test_too_many_answers_at_once_can_never_run(guarded: Running) -> None:
    error = error_of(guarded.post("/v1/completions", prompt="a", n=3), 400)
    assert error["param"] == "n"
    error = error_of(guarded.post("/v1/completions", prompt=["a"] * 3), 400)
    assert error["param"] == "prompt"


def logged(running: Running, request_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while not (found := [line for line in running.log if f'"{request_id}"' in line]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    line: dict[str, Any] = json.loads(found[0])
    return line


def test_the_access_log_counts_what_a_client_did_not_wait_for(guarded: Running) -> None:
    headers = {"X-Request-Id": "left"}
    with pytest.raises(httpx.ReadTimeout):
        guarded.client.post("/v1/completions", json=ENDLESS, headers=headers, timeout=1.0)
    line = logged(guarded, "left")
    assert line["completion_tokens"] > 1
    assert line["finish_reasons"] == ["abort"]
    wait_until_idle(guarded)


def test_the_access_log_has_figures_and_no_words(guarded: Running) -> None:
    headers = {"X-Request-Id": "logged"}
    body = {"prompt": "quick brown", "max_tokens": 3, "ignore_eos": True}
    guarded.client.post("/v1/completions", json=body, headers=headers)
    line = logged(guarded, "logged")
    assert line["status"] == 200
    assert (line["prompt_tokens"], line["completion_tokens"]) == (11, 3)
    assert not any("quick" in line for line in guarded.log)
    assert not any("Traceback" in line for line in guarded.log)


def test_strangers_cannot_fill_the_log_with_the_frameworks_advice(guarded: Running) -> None:
    """Neither what is not HTTP nor a websocket upgrade logs advice; a later request's line shows
    that the log is complete."""
    host, port = guarded.url.removeprefix("http://").split(":")
    upgrade = (
        b"GET /health HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    for sent in (b"hello\r\n\r\n", upgrade):
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(sent)
            assert client.recv(1000).startswith(b"HTTP/1.1 ")
    guarded.client.get("/health", headers={"X-Request-Id": "after"})
    deadline = time.monotonic() + 10
    while not any('"after"' in line for line in guarded.log):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not any("Invalid HTTP" in line or "pip install" in line for line in guarded.log)


def test_sigterm_finishes_what_runs_and_refuses_what_comes(long_path: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with serving(long_path, *PLAIN, "--pid-file", str(pid)) as running:
        asked = {**ENDLESS, "max_tokens": 400, "stream": True}
        with running.client.stream("POST", "/v1/completions", json=asked) as stream:
            lines = stream.iter_lines()
            next(lines)
            running.terminate()
            while running.client.get("/ready").status_code == 200:
                time.sleep(0.01)
            assert running.client.get("/health").status_code == 200
            error_of(running.post("/v1/completions", prompt="a"), 503)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        reasons = [json.loads(line[6:])["choices"][0]["finish_reason"] for line in rest[:-1]]
        assert [reason for reason in reasons if reason] == ["length"]
        assert running.process.wait(30) == 0
        assert not pid.exists()


@pytest.mark.parametrize(("timeout", "is_hurried"), [("0.5", False), ("60", True)])
def test_what_still_runs_at_the_end_of_a_drain_is_told_so(
    long_path: Path, timeout: str, is_hurried: bool
) -> None:
    options = ("--drain-timeout", timeout, "--max-num-seqs", "4")
    with serving(long_path, *PLAIN, *options) as running, ThreadPoolExecutor(1) as beside:
        whole = beside.submit(running.post, "/v1/completions", **ENDLESS)
        asked = {**ENDLESS, "stream": True}
        with (
            running.client.stream("POST", "/v1/completions", json=asked) as stream,
            connected(running) as late,
            connected(running) as never,
        ):
            lines = stream.iter_lines()
            next(lines)
            running.wait_for("forerun:num_requests_running", 2)
            body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
            for client in (late, never):
                client.sendall(head_of_body(f"Content-Length: {len(body)}") + body[:5])
            time.sleep(0.2)  # the server reads the head
            running.terminate()
            while running.client.get("/ready").status_code == 200:
                time.sleep(0.01)
            late.sendall(body[5:])
            assert late.recv(1000).startswith(b"HTTP/1.1 200 ")  # it came before the shutdown
            if is_hurried:
                running.terminate()
            told = b"".join(iter(lambda: never.recv(1000), b""))
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"shutting down" in told
            *_, error, done = [line for line in lines if line]
        assert done == "data: [DONE]"
        assert json.loads(error.removeprefix("data: "))["error"]["type"] == "server_error"
        error_of(whole.result(), 503)
        assert running.process.wait(30) == 0
        assert not any("Traceback" in line for line in running.log)


def test_a_log_that_nobody_reads_does_not_stop_a_drain(long_path: Path) -> None:
    options = ("--port", "0", *PLAIN, "--served-model-name", "tiny", "--drain-timeout", "1")
    process = start(str(long_path), *options)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = process.stdout.readline().removeprefix("listening on ").strip()
        while httpx.get(f"{url}/ready").status_code != 200:
            time.sleep(0.05)
        process.stderr.close()
        asked = {**ENDLESS, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=asked, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.terminate()
            *_, last = [line for line in lines if line]
        assert last == "data: [DONE]"
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def pasted(running: Running) -> dict[str, Any]:
    """Run the command that the log suggests; return its answer."""
    if shutil.which("curl") is None:
        pytest.skip("the command is curl")
    line = running.logged("try: ")
    command = [*shlex.split(line.removeprefix("try: ")), "--silent", "--show-error"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_unix_socket_and_tls(long_path: Path, tmp_path: Path) -> None:
    """TLS by files over a unix socket; a socket left by a killed server is taken over."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    cert, key, path = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "socket"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *names, *files], check=True, capture_output=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    options = ("--uds", str(path), "--tls-cert", str(cert), "--tls-key", str(key))
    with serving(long_path, *PLAIN, *options, wait=False) as running:
        assert running.url == f"unix:{path}"
        transport = httpx.HTTPTransport(
            uds=str(path), verify=ssl.create_default_context(cafile=str(cert))
        )
        with httpx.Client(transport=transport, base_url="https://localhost") as client:
            assert client.get("/health").json() == {"status": "ok"}
            while client.get("/ready").status_code != 200:
                time.sleep(0.05)
        assert path.stat().st_mode & 0o777 == 0o600
        answer = pasted(running)
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_path_of_a_proxy_before_all_others(long_path: Path) -> None:
    """The proxy may strip the prefix or not; keys guard the same paths either way."""
    options = ("--root-path", "/llm", "--api-key", "secret")
    with serving(long_path, *PLAIN, *options) as running:
        client = running.client
        for root in ("", "/llm"):
            assert client.get(f"{root}/health").status_code == 200
            assert client.get(f"{root}/page/app.js").status_code == 200
            assert error_of(client.get(f"{root}/v1/models"), 401)["code"] == "invalid_api_key"
            assert client.get(f"{root}/v1/models", headers=SECRET).status_code == 200
        assert client.get("/llm").headers["location"] == "/llm/"
        assert error_of(client.get("/llm/llm/health", headers=SECRET), 404)
        assert error_of(client.get("/llmhealth", headers=SECRET), 404)
        described = client.get("/openapi.json", headers=SECRET).json()
        assert described["servers"] == [{"url": "/llm"}]
        assert "/v1/models" in described["paths"]


def refused_start(*args: str) -> str:
    with start(*args) as process:
        out, error = process.communicate(timeout=60)
    assert process.returncode == 2, (out, error)
    *before, last = error.splitlines()
    assert all(line.startswith("loading ") for line in before)
    assert last.startswith("forerun: ")
    return last


def test_starts_that_cannot_be(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("prot = 3\n")
    pid = tmp_path / "pid"
    pid.write_text(str(os.getpid()))
    no_pem = ("--tls-cert", str(config), "--tls-key", str(config))
    with socket.socket() as taken, ThreadPoolExecutor(4) as together:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        starts = [
            (("--config", str(config)), "did you mean 'port'?"),
            (("--pid-file", str(pid)), "which runs"),
            (("--port", port), "choose another --port"),
            (no_pem, "give the PEM files"),
            (("--root-path", "llm/"), "give one like /llm"),
            (("--root-path", "/v1"), "give one like /llm"),
            (("--step-timeout", "0"), "--step-timeout 0.0 is not allowed"),
            (("--max-num-waiting", "-1"), "--max-num-waiting -1 is not allowed"),
            (("--port", "0"), "config.json"),  # a folder without a model
        ]
        for (_, part), error in zip(
            starts,
            together.map(lambda one: refused_start(str(tmp_path), *one[0]), starts),
            strict=True,
        ):
            assert part in error


def test_a_process_of_somebody_else_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_process: int, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    path = tmp_path / "pid"
    path.write_text("1\n")
    with pytest.raises(InvalidOption, match="belongs to process 1"), pid_file(path):
        pass


def test_a_file_of_keys_may_begin_with_a_mark(tmp_path: Path, started: list[ServerConfig]) -> None:
    path = tmp_path / "keys"
    path.write_text("one\ntwo\n", encoding="utf-8-sig")
    result = CliRunner().invoke(app, ["serve", "--api-key-file", str(path)])
    assert result.exit_code == 0, result.output
    assert [each.api_keys for each in started] == [("one", "two")]


def test_a_pid_file_with_our_own_number_was_left_by_another_container(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text(f"{os.getpid()}\n")
    with pid_file(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("name", ["FORERUN_SERVE_API_KEY", "FORERUN_SERVE_API_KEY_FILE"])
def test_an_empty_variable_for_keys_does_not_open_the_server(name: str, value: str) -> None:
    result = CliRunner().invoke(app, ["serve"], env={name: value})
    assert result.exit_code == 2
    assert result.stderr == f"forerun: {name} is empty; give it a value, or unset it.\n"


def complaint(*args: str, **env: str) -> str:
    result = CliRunner().invoke(app, ["serve", *args], env=env)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_a_value_that_cannot_be_read_is_told_with_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('port = "eighty"\n')
    assert f"(from {path}); see" in complaint("--config", str(path))
    in_environment = complaint("--config", str(path), FORERUN_SERVE_PORT="eighty")
    assert "(from FORERUN_SERVE_PORT); see" in in_environment
    assert "from" not in complaint("--port", "eighty")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("port", "99999", "give 0 … 65535"),
        ("kv_cache_dtype", "int3", "valid: auto, float16, float32"),
        ("speculative_config", "{bad", 'write it like {"method": "auto"}'),
        ("model", "nowhere", "pull one of"),
        ("kernels", "cup", "did you mean"),
        ("device", "tpu", "did you mean"),
    ],
)
def test_so_is_one_that_is_refused(tmp_path: Path, option: str, value: str, said: str) -> None:
    variable, path = f"FORERUN_SERVE_{option.upper()}", tmp_path / "serve.toml"
    path.write_text(f"{option} = '{value}'\n")
    in_environment, in_file = complaint(**{variable: value}), complaint("--config", str(path))
    on_command_line = complaint(f"--{option.replace('_', '-')}", value)
    assert all(said in each for each in (in_environment, in_file, on_command_line))
    assert in_environment.endswith(f"({option} is from {variable}).\n")
    assert in_file.endswith(f"({option} is from {path}).\n")
    assert "is from" not in on_command_line


@pytest.mark.parametrize(
    "args",
    [
        ("--speculative-config", '{"modle": 1}'),
        ("--tls-cert", "/page/model.pem"),
    ],
)
def test_a_word_that_is_an_option_too_is_not_taken_for_it(args: tuple[str, ...]) -> None:
    env = {"FORERUN_SERVE_MODEL": "smollm2-135m", "FORERUN_SERVE_PAGE": "1"}
    assert "is from" not in complaint(*args, **env)


def test_where_an_extra_is_missing_that_was_asked_for_elsewhere() -> None:
    """The error message also says which variable asked for the device."""
    alone = typer.Typer()

    @alone.command(cls=TellsOrigins, context_settings={"auto_envvar_prefix": "TEA"})
    def brew(device: str = "cpu") -> None:
        raise MissingExtra(f"device {device!r}", "gpu")

    result = CliRunner().invoke(alone, env={"TEA_DEVICE": "cuda"})
    assert str(result.exception).endswith("(device is from TEA_DEVICE).")


@pytest.mark.parametrize(
    ("variable", "value", "is_shown"),
    [("NO_PAGE", " 1", False), ("NO_PAGE", "false", True), ("PAGE", "0", False)],
)
def test_so_may_the_environment_which_wins_over_a_file(
    variable: str, value: str, is_shown: bool, tmp_path: Path, started: list[ServerConfig]
) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(f"page = {'false' if is_shown else 'true'}\n")
    env = {f"FORERUN_SERVE_{variable}": value}
    result = CliRunner().invoke(app, ["serve", "--config", str(path)], env=env)
    assert result.exit_code == 0, result.output
    assert [one.page for one in started] == [is_shown]
    assert CliRunner().invoke(app, ["serve"]).exit_code == 0  # without the variable
    assert started[1].page


def test_what_is_neither_yes_nor_no_in_the_environment_is_refused(started: list[Any]) -> None:
    said = complaint(FORERUN_SERVE_NO_PAGE="perhaps")
    assert said == "forerun: FORERUN_SERVE_NO_PAGE is 'perhaps'; write 1 or 0.\n"
    assert not started


def test_a_file_may_say_no_as_the_command_line_does(
    tmp_path: Path, started: list[ServerConfig]
) -> None:
    path = tmp_path / "serve.toml"
    for text in ("no-page = true\naccess-log = false\n", "page = true\nno_access_log = false\n"):
        path.write_text(text)
        result = CliRunner().invoke(app, ["serve", "--config", str(path)])
        assert result.exit_code == 0, result.output
    assert [(one.page, one.access_log) for one in started] == [(False, False), (True, True)]
    path.write_text("no-page = 1\n")
    result = CliRunner().invoke(app, ["serve", "--config", str(path)])
    assert result.exit_code == 2
    assert "write true or false" in result.stderr


@pytest.mark.parametrize("key", ["api-key", "allowed_origin", "served-model-name"])
def test_a_text_in_the_file_is_no_list(tmp_path: Path, key: str, started: list[Any]) -> None:
    """Read as a list, each letter of the string would be a key."""
    path = tmp_path / "serve.toml"
    path.write_text(f'{key} = "solo"\n')
    result = CliRunner().invoke(app, ["serve", "--config", str(path)])
    assert (result.exit_code, started) == (2, [])
    assert f"{key} in {path} is not a list; write a list" in " ".join(result.stderr.split())
    assert "solo" not in result.stderr  # it may be secret


@pytest.mark.parametrize(
    ("option", "part"),
    [
        (("--max-num-seqs", "0"), "max_num_seqs=0 is not allowed"),
        (("--max-model-len", "0"), "max_model_len=0 is not allowed"),
        (("--threads", "9999"), "the cores this process may use"),
        (("--kv-cache-dtype", "float18"), "did you mean 'float16'?"),
    ],
)
def test_what_needs_no_model_is_refused_before_it_listens(
    option: tuple[str, str], part: str, started: list[Any]
) -> None:
    result = CliRunner().invoke(app, ["serve", *option])
    assert (result.exit_code, started) == (2, [])
    assert part in " ".join(result.stderr.split())


def test_an_engine_that_cannot_be_made_ends_the_server(tiny_path: Path) -> None:
    """Otherwise the server would report that it is loading for ever."""
    llm = LLM(tiny_path, kernels="reference")

    async def body() -> Exception | None:
        async with AsyncEngine(llm):  # no second engine can have it
            config = ServerConfig(names=("a",), port=0)
            with listening(config) as (found, _):
                life = Life(config, lambda: llm, lambda _: None, lambda _: None)
                await asyncio.wait_for(life.run(found), 60)
        return life.error

    assert isinstance(asyncio.run(body()), InvalidOption)


def test_a_head_without_end_is_cut_off(guarded: Running) -> None:
    host, port = guarded.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nX-Long: ")
        with suppress(ConnectionError):  # the connection may close before all is sent
            for _ in range(100):
                client.sendall(b"a" * 10_000)
        answer = b""
        with suppress(ConnectionError):
            answer = client.recv(1000)
    assert answer[:12] in (b"HTTP/1.1 400", b"")
    assert guarded.client.get("/health").status_code == 200


def trickle(client: socket.socket) -> None:
    """Send a head slowly, line by line."""
    client.sendall(b"GET /health HTTP/1.1\r\n")
    for _ in range(600):
        client.sendall(b"X: y\r\n")
        time.sleep(0.05)


def test_a_head_that_does_not_come_is_not_waited_for(guarded: Running) -> None:
    """Whether a client sends nothing or never ends its head; --body-timeout is 0.4 s here."""
    host, port = guarded.url.removeprefix("http://").split(":")
    for first in (b"", b"GET /health HTTP/1.1\r\nHost: a\r\n"):
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(first)
            assert client.recv(1000) == b""
    with (
        socket.create_connection((host, int(port)), timeout=30) as client,
        pytest.raises(ConnectionError),
    ):
        trickle(client)
    with httpx.Client(base_url=guarded.url) as kept:  # an idle connection may stay for longer
        assert kept.get("/health").status_code == 200
        time.sleep(0.6)
        assert kept.get("/health").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_the_log_says_what_it_does_and_where_to_go(long_path: Path, host: str) -> None:
    with serving(long_path, *PLAIN, "--host", host, "--no-access-log") as running:
        running.logged("try: ")
        loading, ready, page, curl = (running.log[n] for n in range(4))
    port = running.url.rsplit(":", 1)[1]
    assert loading.startswith(f"loading {long_path};")
    assert f"at http://{host}:{port}/v1" in ready
    assert page == f"page: http://127.0.0.1:{port}/"
    assert "speculation off" in ready
    assert curl.startswith(f"try: curl http://127.0.0.1:{port}/v1/chat/completions ")


def test_the_log_says_who_guesses(tiny_path: Path) -> None:
    config = '{"method": "choice", "methods": ["suffix", "bigram"], "num_speculative_tokens": 3}'
    with serving(tiny_path, "--kernels", "reference", "--speculative-config", config) as running:
        ready = running.logged("ready: ")
    assert ready.endswith("speculation suffix, bigram, depth 3")


def test_slow_readers_hold_nobody_up(guarded: Running) -> None:
    """One request runs at a time; although its client does not read, another is answered."""
    asked = {**ENDLESS, "stream": True, "logprobs": 20, "return_token_ids": True}
    body = json.dumps(asked).encode()
    with connected(guarded) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.sendall(head_of_body(f"Content-Length: {len(body)}") + body)
        guarded.wait_for("forerun:num_requests_running", 1)
        assert guarded.client.get("/health").status_code == 200
        time.sleep(1)  # the next request times out 1 s after the first: the time for its answer
        other = guarded.ask("/v1/completions", prompt="a", max_tokens=1)  # once --request-timeout
        assert other["usage"]["completion_tokens"] == 1  # has ended the first
        assert deaf.recv(1000).startswith(b"HTTP/1.1 200 ")  # the connection is still open


def test_a_reader_that_takes_far_too_long_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Its request ends, and the answer's end is not sent, so that the connection closes."""
    sent: list[str] = []
    left = threading.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the socket's buffer is full

    stream = EventStream(events(), left.set, timeout_s=0.05)
    scope = {"http_version": "1.1", "method": "POST"}
    asyncio.run(stream({DIRECT: Direct(scope, send)}, receive, send))
    assert sent == ["http.response.start", "http.response.body"]
    assert left.is_set()
    assert "too slow" in caplog.text


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
def test_what_nobody_takes_is_given_up() -> None:
    with listening(ServerConfig(names=("a",), port=0)) as (found, _):
        milliseconds = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert milliseconds == 1000 * Limits().reader_timeout_s


def test_answers_are_not_held_back_by_the_network_stack() -> None:
    """asyncio sets TCP_NODELAY only for sockets that name their protocol."""
    with listening(ServerConfig(names=("a",), port=0)) as (found, _):
        assert found.proto == socket.IPPROTO_TCP


def test_without_the_extra_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("forerun.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert 'pip install "forerun[serve]"' in result.stderr


def test_a_failure_of_ours_is_logged_under_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client is told that the server failed, not why; the log has the reason under the id."""

    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise RuntimeError("secret")

    service = Service(("a",), Limits(), Counters(lambda: None))
    front = Front(broken, service, Keys(()), Origins(()), AccessLog(None))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/v1/models", headers={"X-Request-Id": "mine"})

    answer = asyncio.run(ask())
    assert error_of(answer, 500)["type"] == "server_error"
    assert "secret" not in answer.text
    assert answer.headers["X-Request-Id"] == "mine"
    assert "request mine failed" in caplog.text
    assert service.num_open == 0
