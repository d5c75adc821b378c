"""The deployment files: the files that they name exist, and they agree with each other."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from forerun.cli import app
from forerun.server.operation.config import ServerConfig
from tests.server.serving import Running

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "server" / "deploy"
USUAL = ServerConfig(("any",))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def image() -> dict[str, list[str]]:
    """Return the arguments of each kind of Dockerfile instruction, in order."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, given = line.split(maxsplit=1)
            found.setdefault(name, []).append(given)
    return found


def unit(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", (DEPLOY / "forerun.service").read_text(), re.M)
    return str(value)


def assert_starts(words: Sequence[str]) -> None:
    """Check that the command accepts this command line, to the last option."""
    assert words[0].rsplit("/")[-1] == "forerun"
    result = CliRunner().invoke(app, [*words[1:], "--show-fields"])
    assert result.exit_code == 0, result.output


def test_what_compose_mounts_and_builds_is_there() -> None:
    services = compose()["services"]
    build = services["forerun"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    mounted = [volume.split(":")[0] for one in services.values() for volume in one["volumes"]]
    files = [name for name in mounted if name.startswith(".")]
    assert len(files) == 4
    assert [name for name in files if not (DEPLOY / name).is_file()] == []
    assert set(mounted) - set(files) == set(compose()["volumes"])


def test_what_the_image_copies_is_there() -> None:
    copied = [name for given in image()["COPY"] for name in given.split()[:-1]]
    assert "pyproject.toml" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_image_starts_a_server_as_a_user_of_its_own() -> None:
    given = image()
    assert_starts([*json.loads(given["ENTRYPOINT"][0]), *json.loads(given["CMD"][0])])
    (user,) = given["USER"]
    assert f"useradd --create-home {user}" in given["RUN"]
    (cache,) = given["VOLUME"]
    assert f"FORERUN_CACHE={cache}" in given["ENV"]
    assert f"mkdir -p {cache}" in given["RUN"]  # by that user, so that it owns a fresh volume


def test_all_speak_of_one_port() -> None:
    assert image()["EXPOSE"] == [str(USUAL.port)]
    assert f"http://127.0.0.1:{USUAL.port}/ready" in image()["HEALTHCHECK"][0]
    services = compose()["services"]
    assert services["forerun"]["ports"] == [f"127.0.0.1:{USUAL.port}:{USUAL.port}"]
    assert all(port.startswith("127.0.0.1:") for one in services.values() for port in one["ports"])
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"forerun:{USUAL.port}"]}]


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    services = compose()["services"]
    (source,) = yaml.safe_load((DEPLOY / "grafana-datasource.yaml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0].split(':')[-1]}"
    (provider,) = yaml.safe_load((DEPLOY / "grafana-dashboards.yaml").read_text())["providers"]
    (shown,) = [v for v in services["grafana"]["volumes"] if "grafana-dashboard.json" in v]
    assert shown.split(":")[1].startswith(provider["options"]["path"] + "/")


@pytest.mark.parametrize("where", ["compose", "unit"])
def test_nobody_is_killed_while_answers_end(where: str) -> None:
    grace = compose()["services"]["forerun"]["stop_grace_period"].removesuffix("s")
    assert float({"compose": grace, "unit": unit("TimeoutStopSec")}[where]) > USUAL.drain_timeout_s


def test_the_unit_and_its_file_give_options_that_exist() -> None:
    command = unit("ExecStart").replace("/etc/forerun/serve.toml", str(DEPLOY / "serve.toml"))
    assert_starts(shlex.split(command))
    assert unit("Environment") == f"FORERUN_CACHE=/var/cache/{unit('CacheDirectory')}"


def test_the_health_check_is_a_program_that_tells(server: Running) -> None:
    """It succeeds on a running server, and fails if there is none."""
    (check,) = re.findall(r'python -c "(.+)"', image()["HEALTHCHECK"][0])
    there = check.replace(f"http://127.0.0.1:{USUAL.port}", server.url)
    assert there != check
    exec(there, {})
    with pytest.raises(OSError, match="refused"):
        exec(check.replace(f":{USUAL.port}/", ":1/"), {})
