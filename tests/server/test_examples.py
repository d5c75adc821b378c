"""The examples: the client runs against a server, and what deploys it names what there is.

The code-editing loop needs a longer context than a model of a few kilobytes has.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from forerun.cli import app
from tests.server.serving import Running

EXAMPLES = Path(__file__).parents[2] / "examples" / "server"


def test_the_official_client(server: Running) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "openai_client.py"],
        env={**os.environ, "FORERUN_URL": f"{server.url}/v1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


DEPLOY = EXAMPLES / "deploy"


def test_what_compose_mounts_and_builds_is_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    build = services["forerun"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    mounted = [volume.split(":")[0] for one in services.values() for volume in one["volumes"]]
    files = [name for name in mounted if name.startswith(".")]
    assert len(files) == 4
    assert [name for name in files if not (DEPLOY / name).is_file()] == []
    for name in ("prometheus.yaml", "grafana-datasource.yaml", "grafana-dashboards.yaml"):
        assert yaml.safe_load((DEPLOY / name).read_text())


def test_what_the_image_copies_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.+)$", text, re.M) for name in line.split()[:-1]]
    assert "pyproject.toml" in copied
    assert [name for name in copied if not (EXAMPLES.parents[1] / name).exists()] == []


def test_the_unit_and_its_file_give_options_that_exist() -> None:
    unit = (DEPLOY / "forerun.service").read_text()
    (command,) = re.findall(r"^ExecStart=\S+/forerun (.+)$", unit, re.M)
    words = command.replace("/etc/forerun/serve.toml", str(DEPLOY / "serve.toml")).split()
    result = CliRunner().invoke(app, [*words, "--show-fields"])
    assert result.exit_code == 0, result.output
