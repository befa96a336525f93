"""``tunefarm sweeps list|show|report|cancel``: several jobs that `tunefarm tune` started together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_sweep
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_sweep
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import Sweep

app = group("sweeps", "Show, report and cancel sweeps: several jobs with one budget.")

SweepId = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP_ID",
        help="The sweep: its id (swp_…), or the first or last characters of it.",
        autocompletion=complete_sweep,
    ),
]


@command(app, "list")
def list_sweeps(out: Output, server: Server, limit: Limit = 50) -> None:
    """List the sweeps, newest first."""
    with server.connect() as client:
        sweeps = out.first(client.sweeps.all(), limit)
    out.items(
        sweeps,
        {
            "sweep": lambda sweep: sweep.id,
            "models": lambda sweep: sweep.models_text,
            "state": lambda sweep: sweep.state,
            "jobs": lambda sweep: sweep.counts_text,
            "budget": lambda sweep: quantities.budget(sweep.budget, "sweep"),
            "tags": lambda sweep: ", ".join(sweep.tags),
            "created": lambda sweep: quantities.local_time(sweep.created_at),
        },
    )


@command(app, "show")
def show(out: Output, server: Server, sweep_id: SweepId) -> None:
    """Show one sweep, with a row for each job."""
    with server.connect() as client:
        sweep = client.sweeps.get(find_sweep(client, sweep_id))
    show_sweep(out, sweep)


@command(app, "report")
def report(
    out: Output,
    server: Server,
    sweep_id: SweepId,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one self-contained HTML file."),
    ] = None,
) -> None:
    """Show the report of a sweep: how fast each artifact is, and which is the fastest; with --json, all of it."""
    with server.connect() as client:
        sweep_id = find_sweep(client, sweep_id)
        if html is not None:
            page = client.sweeps.save_report(sweep_id, html)
            out.result({"report_page": str(page)}, str(page))
            return
        sweep = client.sweeps.get(sweep_id)
    show_sweep(out, sweep)


@command(app, "cancel")
def cancel(out: Output, server: Server, sweep_id: SweepId) -> None:
    """Cancel all jobs of a sweep that have not ended. Their records stay."""
    with server.connect() as client:
        sweep = client.sweeps.cancel(find_sweep(client, sweep_id))
    out.result(sweep.raw, f"{sweep.id}: {sweep.state}, {sweep.counts_text}")


def show_sweep(out: Output, sweep: Sweep) -> None:
    """Print a sweep with its rows."""
    if out.json:
        out.data(sweep.raw)
        return
    out.table(
        (
            "model",
            "pool",
            "precision",
            "state",
            ">latency",
            ">speed-up over the fastest runtime",
            ">speed-up over untuned",
            ">trials",
            "job",
        ),
        (
            (
                cell.model_name,
                cell.device_key or quantities.NONE,
                cell.precision or quantities.NONE,
                cell.state,
                f"{cell.latency_text} (fastest)" if cell.is_fastest else cell.latency_text,
                cell.over_runtime_text,
                cell.over_untuned.text if cell.over_untuned else quantities.NONE,
                cell.trials,
                cell.job_id or quantities.NONE,
            )
            for cell in sweep.cells
        ),
        title=f"{sweep.id}: {sweep.state}, {sweep.counts_text}",
    )
    for cell in sweep.cells:
        if cell.error is not None:
            where = ", ".join(part for part in (cell.device_key, cell.precision) if part)
            out.text(f"{cell.model_name}{f' ({where})' if where else ''}: {cell.error.message}")
    if sweep.budget:
        out.text(f"Budget: {quantities.budget(sweep.budget, 'sweep')}. {sweep.rule}")
