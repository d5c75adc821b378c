"""Schemathesis on the server's OpenAPI description: no 5xx, no answer that breaks its schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.serving import Running

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
def test_generated_requests(server: Running, mode: GenerationMode) -> None:
    fuzz(server, mode, num_examples=3)


@pytest.mark.soak
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
def test_many_generated_requests(server: Running, mode: GenerationMode) -> None:
    fuzz(server, mode, num_examples=400)


@pytest.mark.slow
def test_calls_that_follow_calls(server: Running) -> None:
    assert fuzz_chains(server, num_examples=3)


@pytest.mark.soak
def test_many_calls_that_follow_calls(server: Running) -> None:
    followed = fuzz_chains(server, num_examples=400)
    assert followed == {"/v1/models/{model}", "/tokenize", "/detokenize", "/v1/completions"}


def fuzz_chains(server: Running, num_examples: int) -> set[str]:
    """Follow the links of the description, where a call's answer is the next call's input.

    Return the paths that links led to.
    """
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    followed: set[str] = set()

    class Chain(schema.as_state_machine()):  # type: ignore[misc]  # a class made at run time
        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

        def step(self, input: Any) -> Any:
            if input.transition is not None:
                followed.add(input.case.path)
            return super().step(input)

    Chain.run(settings=hypothesis.settings(SETTINGS, max_examples=num_examples))
    return followed


SETTINGS = hypothesis.settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def fuzz(server: Running, mode: GenerationMode, num_examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    found = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # an error would raise
        parts = [*operation.body, *operation.query]
        if mode is GenerationMode.NEGATIVE and not parts:
            continue  # no part to make invalid

        @hypothesis.settings(SETTINGS, max_examples=num_examples)
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=60)

        check()
        found += 1
    assert found >= 5


def test_the_description_is_complete(server: Running) -> None:
    described = server.client.get("/openapi.json").json()
    assert set(described["paths"]) >= {
        *("/health", "/ready", "/version", "/metrics", "/tokenize", "/detokenize"),
        *("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/responses"),
    }
    body = described["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    properties = body["content"]["application/json"]["schema"]["properties"]
    assert {"messages", "prediction", "speculative", "forerun"} <= set(properties)


def test_the_dashboard_names_only_metrics_that_exist(server: Running) -> None:
    dashboard = Path(__file__).parents[3] / "examples" / "server" / "grafana-dashboard.json"
    found = json.loads(dashboard.read_text(encoding="utf-8"))
    server.ask("/v1/completions", prompt="abcabcabc", max_tokens=20, ignore_eos=True, seed=1)
    shown = server.client.get("/metrics").text
    queries = [t["expr"] for panel in found["panels"] for t in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"forerun:\w+", query)}
    known = {re.split("[{ ]", line)[0] for line in shown.splitlines()}
    assert len(names) > 15
    assert sorted(names - known) == []
