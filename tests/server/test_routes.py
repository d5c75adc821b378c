"""The routes: what they answer, and how they refuse."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.serving import MODEL, Running, serving

CHAT = [{"role": "user", "content": "hello there"}]


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    error: dict[str, Any] = body["error"]
    if "request_id" in body:
        assert body["type"] == "error"
        assert set(error) - {"details"} == {"type", "message"}, "Anthropic's shape"
    else:
        assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    return error


def test_it_lives_and_says_who_it_is(server: Running) -> None:
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/ready").json()["status"] == "ready"
    assert "version" in server.client.get("/version").json()
    listed = server.client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == [MODEL]
    assert server.client.get(f"/v1/models/{MODEL}").json()["max_model_len"] == 256
    error = error_of(server.client.get("/v1/models/other"), 404)
    assert error["code"] == "model_not_found"


def test_programs_can_do_without_the_tokenizer(server: Running) -> None:
    """lm-evaluation-harness uses only these routes."""
    told = server.client.get("/tokenizer_info").json()
    asked = {"prompt": told["eos_token"], "add_special_tokens": False}
    (end,) = server.ask("/tokenize", **asked)["tokens"]
    assert server.ask("/detokenize", tokens=[end])["prompt"] == told["eos_token"]
    assert told["bos_token"] is None or told["bos_token"]
    assert "messages" in told["chat_template"]


def test_completions(server: Running) -> None:
    answer = server.ask("/v1/completions", prompt="hello wor", max_tokens=9, seed=1, model=MODEL)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    usage = answer["usage"]
    assert usage["prompt_tokens"] == 9
    assert usage["total_tokens"] == 9 + usage["completion_tokens"]
    assert choice["finish_reason"] in ("stop", "length")


def test_a_stream_joins_to_the_whole_answer(server: Running) -> None:
    for path, asked in (
        ("/v1/completions", {"prompt": "abcabcabc"}),
        ("/v1/chat/completions", {"messages": CHAT}),
    ):
        options = {**asked, "max_tokens": 40, "seed": 5, "ignore_eos": True, "n": 2}
        whole = server.ask(path, **options)
        *chunks, last = server.stream(path, **options)
        assert last == "[DONE]"
        texts, reasons = ["", ""], [[], []]  # type: ignore[var-annotated]
        for chunk in map(json.loads, chunks):
            assert chunk["id"] == json.loads(chunks[0])["id"]
            (choice,) = chunk["choices"]
            words = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            texts[choice["index"]] += words
            if choice["finish_reason"]:
                reasons[choice["index"]].append(choice["finish_reason"])
        expected = [c.get("text", c.get("message", {}).get("content")) for c in whole["choices"]]
        assert texts == expected
        assert texts[0] != texts[1]
        assert reasons == [["length"], ["length"]]


def test_a_stream_is_framed_as_its_version_of_http_wants(server: Running) -> None:
    """HTTP/1.1 sends chunks with lengths and keeps the connection; HTTP/1.0 does neither."""
    body = json.dumps({"prompt": "abcabc", "max_tokens": 30, "seed": 5, "stream": True}).encode()
    head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = server.url.removeprefix("http://").split(":")

    def told(version: str, num_times: int) -> list[str]:
        with socket.create_connection((host, int(port)), timeout=60) as client:
            heard = client.makefile("rb")
            found = []
            for _ in range(num_times):
                client.sendall(f"POST /v1/completions HTTP/{version}\r\n{head}".encode() + body)
                while heard.readline().strip():
                    pass
                raw = b"".join(_parts(heard)) if version == "1.1" else heard.read()
                texts = re.findall(r'"text":("[^"]*")', raw.decode())
                assert raw.endswith(b"data: [DONE]\n\n")
                found.append("".join(map(json.loads, texts)))
            return found

    first, second = told("1.1", 2)
    assert first == second
    assert told("1.0", 1) == [first]


def _parts(heard: BinaryIO) -> Iterator[bytes]:
    while length := int(heard.readline(), 16):
        yield heard.read(length)
        assert heard.readline() == b"\r\n"
    assert heard.readline() == b"\r\n"


def test_head_is_get_without_words(server: Running) -> None:
    """Load balancers check with HEAD."""
    for path in ("/health", "/ready", "/v1/models"):
        response = server.client.head(path)
        assert (response.status_code, response.content) == (200, b""), path
        length = len(server.client.get(path).content)
        assert response.headers["content-length"] == str(length)
    assert server.client.head("/v1/completions").status_code == 405


def test_streams_are_not_held_back_by_proxies(server: Running) -> None:
    body = {"prompt": "a", "max_tokens": 1, "stream": True}
    headers = server.client.post("/v1/completions", json=body).headers
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")


def test_refusals_have_openais_shape(server: Running) -> None:
    client = server.client
    for path in ("/chat/completions", "/models"):  # a base_url without /v1
        assert f"it is at /v1{path}." in error_of(client.post(path), 404)["message"]
    for path in ("/v1/chat/completions/", "/v1/v1/chat/completions", "//v1/chat/completions"):
        message = error_of(client.post(f"{server.url}{path}"), 404)["message"]
        assert "it is at /v1/chat/completions." in message
    marked = b'\xef\xbb\xbf{"prompt": "a", "max_tokens": 1}'
    assert client.post("/v1/completions", content=marked).status_code == 200
    packed = {"Content-Encoding": "gzip"}
    error = error_of(client.post("/v1/completions", content=b"x", headers=packed), 415)
    assert "gzip" in error["message"]
    assert error_of(client.get("/v1/nothing"), 404)["type"] == "not_found_error"
    error = error_of(client.get("/v1/completions"), 405)
    assert (error["code"], error["message"].split("; ")[1]) == ("not_here", "send POST.")
    assert "send GET." in error_of(client.delete("/v1/models/tiny"), 405)["message"]
    for path in ("/v1/responses/resp_1", "/v1/chat/completions/chatcmpl-1/messages"):
        assert "no answer is stored here" in error_of(client.get(path), 404)["message"]
    assert "prompt is missing" in error_of(server.post("/v1/completions"), 400)["message"]
    error = error_of(server.post("/v1/completions", prompt="a", model="gpt-9"), 404)
    assert error["param"] == "model"
    error = error_of(server.post("/v1/completions", prompt="a", max_tokns=3), 400)
    assert "did you mean 'max_tokens'?" in error["message"]
    error = error_of(server.post("/v1/completions", prompt="a", temperature=-1), 400)
    assert error["param"] == "temperature"
    unknown = {"speculative": {"method": "suffx"}}
    error = error_of(server.post("/v1/completions", prompt="a", **unknown), 400)
    assert error["param"] == "speculative.method"
    for name, value in (
        ("logit_bias", {"999999": 1.0}),
        ("allowed_token_ids", [3, 32]),
        ("stop_token_ids", [3, 999999]),
        ("allowed_token_ids", [3] * 33),
        ("stop_token_ids", [3] * 33),
    ):
        error = error_of(server.post("/v1/completions", prompt="a", **{name: value}), 400)
        assert error["param"] == name
    for path, name, asked in (
        ("/v1/completions", "max_tokens", {"prompt": "a"}),
        ("/v1/chat/completions", "max_tokens", {"messages": CHAT}),
        ("/v1/chat/completions", "max_completion_tokens", {"messages": CHAT}),
        ("/v1/responses", "max_output_tokens", {"input": "a"}),
    ):
        error = error_of(server.post(path, **asked, **{name: 256}), 400)
        assert f"lower {name}." in error["message"]
        assert (error["param"], error["code"]) == (name, "context_length_exceeded")
    error = error_of(server.post("/v1/completions", prompt="a" * 300), 400)
    assert error["code"] == "context_length_exceeded"
    error = error_of(server.post("/v1/chat/completions", messages=CHAT, tools=[{"a": 1}]), 400)
    assert error["param"] == "tools[0]"
    for content in (b"{", b"[1]", b"\xff\xfe", b'{"prompt": "a", "temperature": NaN}'):
        error_of(client.post("/v1/completions", content=content), 400)


@pytest.mark.slow
def test_smollm2_answers_at_once_that_it_lives(smollm2_path: Path) -> None:
    """While the model loads, /health answers and requests get 503; then an answer in words."""
    with serving(smollm2_path, "--max-model-len", "512", "--threads", "1", wait=False) as running:
        assert running.client.get("/health").status_code == 200
        loading = running.client.get("/ready")
        assert loading.status_code == 503
        assert loading.headers["Retry-After"] == "1"
        assert error_of(running.post("/v1/completions", prompt="a"), 503)["code"] == "unavailable"
        while running.client.get("/ready").status_code != 200:
            assert running.process.poll() is None, running.log
            time.sleep(0.1)
        answer = running.ask(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": "Explain gravity in one sentence."}],
            temperature=0,
            max_tokens=16,
        )
        assert "Gravity" in answer["choices"][0]["message"]["content"]


def test_answers_are_counted_by_path_and_status(server: Running) -> None:
    """Paths are those of the routes, not those of the requests, so labels are bounded."""
    server.ask("/v1/completions", prompt="abc", max_tokens=2)
    server.post("/v1/chat/completions", messages=[])
    server.client.get("/v1/models/nobody")
    server.client.get("/nowhere")
    shown = server.client.get("/metrics").text
    for path, status in (
        ("/v1/completions", 200),
        ("/v1/chat/completions", 400),
        ("/v1/models/{model:path}", 404),
        ("other", 404),
    ):
        assert f'forerun:http_responses_total{{path="{path}",status="{status}"}} ' in shown
    assert "nowhere" not in shown


def test_histograms_are_such_as_prometheus_reads(server: Running) -> None:
    server.ask("/v1/completions", prompt="abc", max_tokens=9, ignore_eos=True, seed=1)
    shown = server.client.get("/metrics").text
    found = {family.name: family for family in text_string_to_metric_families(shown)}
    for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
        family = found[f"forerun:{name}_seconds"]
        assert family.type == "histogram"
        values = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
        buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert values["+Inf"] == values[f"forerun:{name}_seconds_count"] > 0
        assert values[f"forerun:{name}_seconds_sum"] > 0
