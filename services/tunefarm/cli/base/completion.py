"""Shell completion of jobs, sweeps, models, devices and pools. It asks the server, and offers nothing if no answer comes at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tunefarm.client import Client

Offer = tuple[str, str]
"""A word and its description."""

_LIMIT_SEC = 2.0
_MOST = 100
_HARMLESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+=-]*")
"""Words that are safe on a command line: the shell inserts them unquoted."""


def complete_job(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the newest jobs."""
    return _offers(ctx, incomplete, _jobs)


def complete_model(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the newest models."""
    return _offers(ctx, incomplete, _models)


def complete_device(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the devices, by name."""
    return _offers(ctx, incomplete, _devices)


def complete_pool(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the pools that have devices."""
    return _offers(ctx, incomplete, _pools)


def complete_sweep(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the newest sweeps."""
    return _offers(ctx, incomplete, _sweeps)


def _jobs(client: Client) -> Iterator[Offer]:
    for job in client.jobs.list(limit=_MOST).items:
        yield job.id, f"{job.state}, {job.trials} trials"


def _sweeps(client: Client) -> Iterator[Offer]:
    for sweep in client.sweeps.list(limit=_MOST).items:
        yield sweep.id, f"{sweep.state}, {sweep.counts_text}"


def _models(client: Client) -> Iterator[Offer]:
    for model in client.models.list(limit=_MOST).items:
        yield model.id, f"{model.name}, {model.state}"


def _devices(client: Client) -> Iterator[Offer]:
    for device in client.devices.list():
        yield device.name, f"{device.state}, {device.device_key}"


def _pools(client: Client) -> Iterator[Offer]:
    pools = [device.device_key for device in client.devices.list()]
    for pool in sorted(set(pools)):
        count = pools.count(pool)
        yield pool, f"{count} device{'' if count == 1 else 's'}"


def _offers(ctx: typer.Context, incomplete: str, ask: Callable[[Client], Iterator[Offer]]) -> list[Offer]:
    """Return the words that begin with the text; none if the server does not answer at once."""
    from tunefarm.cli.base.connect import Server
    from tunefarm.client import NO_RETRY, Client
    from tunefarm_tuning.core.untrusted_text import clean

    server = Server.of(ctx.params)
    try:
        address = server.find()
        if address is None:
            return []
        with Client(*address, timeout_sec=_LIMIT_SEC, retry=NO_RETRY) as client:
            return [
                (word, clean(text, 80))
                for word, text in ask(client)
                if word.startswith(incomplete) and _HARMLESS.fullmatch(word)
            ]
    except Exception:  # noqa: BLE001  (a person is typing: whatever went wrong, this is no place to say so)
        return []
