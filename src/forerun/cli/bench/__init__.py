"""The command `forerun bench`: one file per bench, registered here."""

from __future__ import annotations

import typer

from forerun.cli.bench import (
    acceptance,
    batch,
    gpu,
    kernels,
    parity,
    passes,
    serve,
    show,
    speculation,
    startup,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Run benchmarks: speculation, batches, startup, kernels, GPU, server and more.",
)
app.command()(speculation.speculation)
app.command()(acceptance.acceptance)
app.command()(batch.batch)
app.command()(startup.startup)
app.command()(parity.parity)
app.command()(passes.passes)
app.command()(kernels.kernels)
app.command()(gpu.gpu)
app.command()(serve.serve)
app.command()(show.show)
