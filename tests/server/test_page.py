"""The page's files and routes; tests/server/page drives the page in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import forerun.server
from forerun.theory.depth_table import depth_table
from forerun.theory.verify_cost import LinearVerifyCost, MeasuredVerifyCost
from tests.server.serving import Running, serving

PAGE = Path(forerun.server.__file__).parent / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())


def test_every_file_is_served_under_a_strict_policy(server: Running) -> None:
    for address in ("/", *(f"/page/{path.relative_to(PAGE).as_posix()}" for path in FILES)):
        response = server.client.get(address)
        assert response.status_code == 200, address
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert server.client.get("/").text == server.client.get("/page/index.html").text


@pytest.mark.parametrize(
    "name", ["..%2Fapp.py", "app.py", "", "%2Fetc%2Fpasswd", "x.js", "text", "text/../../app.py"]
)
def test_nothing_else_is(server: Running, name: str) -> None:
    assert server.client.get(f"/page/{name}").status_code == 404


def test_it_is_light_and_complete() -> None:
    """No other host, no inline script or style, and no way from text to markup."""
    assert sum(len(path.read_bytes()) for path in FILES) < 200_000
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        hosts = set(re.findall(r"https?://([\w.-]+)", text)) - {"www.w3.org"}
        assert not hosts, path
        unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
        assert not re.search(unsafe, text), path
        assert path.suffix != ".html" or not re.search(r"<script>|\son\w+=|style=", text)
        for name in re.findall(r'from "([\w./]+)"', text):
            assert (path.parent / name).resolve() in FILES, (path, name)
        for name in re.findall(r'"page/([\w./]+)"', text):
            assert PAGE / name in FILES, (path, name)


def test_it_is_in_the_package() -> None:
    wanted = Path(__file__).parents[2] / "pyproject.toml"
    for folder in {path.parent.relative_to(PAGE.parents[1]).as_posix() for path in FILES}:
        assert f'"{folder}/*"' in wanted.read_text(encoding="utf-8"), folder


def test_a_key_guards_the_api_and_not_the_page(tiny_path: Path) -> None:
    options = ("--kernels", "reference", "--api-key", "secret", "--no-speculation")
    with serving(tiny_path, *options) as running:
        assert running.client.get("/").status_code == 200
        assert running.client.get("/page/app.js").status_code == 200
        for address in ("/forerun/settings", "/forerun/theory?alpha=0.5", "/page"):
            assert running.client.get(address).status_code == 401, address
        running.client.headers["Authorization"] = "Bearer secret"
        assert running.client.get("/forerun/settings").json()["speculation"] is None


def test_it_can_be_left_out(tiny_path: Path) -> None:
    with serving(tiny_path, "--kernels", "reference", "--no-page") as running:
        assert running.client.get("/").status_code == 404
        assert running.client.get("/page/app.js").status_code == 404
        settings = running.client.get("/forerun/settings").json()
        costs = settings["speculation"]["costs"]
        assert settings["speculation"]["adaptive"]
        assert costs["plain_pass_seconds"] > 0
        measured = running.client.get(
            "/forerun/theory", params={"alpha": 0.5, "verify_cost": costs["verify_cost"]}
        ).json()
        assert measured["rows"][1]["verify_cost"] > 0
        heard = dict[str, float]()
        for _ in range(30):  # on a busy machine guesses may seem costly for a while
            running.ask("/v1/completions", prompt="abc" * 20, max_tokens=40, ignore_eos=True)
            settings = running.client.get("/forerun/settings").json()
            heard = settings["speculation"]["costs"]["guesses"]
            if "suffix" in heard:
                break
        assert heard["suffix"] > 0


def test_settings_say_what_a_request_would_get(server: Running) -> None:
    settings = server.client.get("/forerun/settings").json()
    assert settings["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    assert settings["max_model_len"] == 256
    assert settings["speculation"] == {
        "methods": ["suffix", "ngram_tables", "random"],
        "num_speculative_tokens": 4,
        "num_branches": 2,
        "adaptive": False,
        "costs": None,
        "left_out": {},
    }


def test_theory_is_that_of_the_closed_forms(server: Running) -> None:
    asked: dict[str, Any] = {"alpha": 0.7, "cost": 0.05, "verify_cost": "0.1", "max_depth": 8}
    found = server.client.get("/forerun/theory", params=asked).json()
    table = depth_table(0.7, 0.05, 8, LinearVerifyCost(0.1))
    assert [row["speedup"] for row in found["rows"]] == [row.speedup for row in table.rows]
    assert (found["best_depth"], found["meaning"]) == (table.best_depth, table.meaning())
    asked["verify_cost"] = "1:1.1,3:1.5"
    found = server.client.get("/forerun/theory", params=asked).json()
    table = depth_table(0.7, 0.05, 3, MeasuredVerifyCost(((1, 1.1), (3, 1.5))))
    assert [row["speedup"] for row in found["rows"]] == [row.speedup for row in table.rows]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "alpha=2",
        "alpha=nan",
        "alpha=x",
        "alpha=0.5&cost=-1",
        "alpha=0.5&cost=inf",
        "alpha=0.5&verify_cost=a",
        "alpha=0.5&verify_cost=-1",
        "alpha=0.5&cost=1e308",
        "alpha=0.5&verify_cost=1e308",
        "alpha=0.5&verify_cost=1:1e-320",
        "alpha=0.5&verify_cost=" + "9" * 5000 + ":1",
        "alpha=0.5&max_depth=65",
        "alpha=0.5&max_depth=000000064999",
        "alpha=0.5&max_depth=²",
        "alpha=0.5&max_depth=99999999999999999999",
        "alpha=0.5&alfa=1",
    ],
)
def test_theory_refuses_what_it_cannot_read(server: Running, query: str) -> None:
    response = server.client.get(f"/forerun/theory?{query}")
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"]
