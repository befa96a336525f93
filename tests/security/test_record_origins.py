"""A record of a measurement says by which certificate the device's agent was connected, and which ticket opened the session."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from real_farm import network, real_farm

from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.tickets import Ticket, TicketReader
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_tuning.process.listening import listen
from tunefarm_workers.gateway.__main__ import Files
from tunefarm_workers.gateway.server import Gateway


@dataclass
class _NotingReader(TicketReader):
    """Reads tickets as the gateway does, and notes them."""

    reader: TicketReader
    read_tickets: list[Ticket] = field(default_factory=list)

    def ticket(self, text: object) -> Ticket:
        ticket = self.reader.ticket(text)
        self.read_tickets.append(ticket)
        return ticket


@dataclass(frozen=True)
class _NotedGateway:
    """A gateway in this process, whose tickets are noted."""

    folder: Path
    port: int
    read_tickets: list[Ticket]


@contextmanager
def _noted_gateway(folder: Path) -> Iterator[_NotedGateway]:
    ensure_authority(folder)
    files = Files(folder / "gateway")
    files.wait()
    noting = _NotingReader(files.tickets())
    gateway = Gateway(files.context, lambda: noting, files.receipts, started_at=time.time())
    listener = listen("127.0.0.1", 0)
    serving = threading.Thread(target=gateway.serve, args=(listener,), daemon=True)
    serving.start()
    try:
        yield _NotedGateway(folder, listener.getsockname()[1], noting.read_tickets)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        serving.join()


def test_records_carry_the_certificate_of_the_agent_and_the_ticket_that_the_gateway_took(
    tmp_path: Path,
) -> None:
    with _noted_gateway(tmp_path / "keys") as gateway, real_farm(tmp_path, gateway=gateway) as real:
        farm = real.farm
        job = farm.submit(farm.ready_model(network()), trials=10, seed=0, round_size=5)
        farm.finish()
        with farm.services.uow.read() as repos:
            records = repos.records.query(RecordFilter(job_id=job.id), limit=100).items
            entries = repos.audit.after(0, limit=500)
        issued = {
            entry.details["certificate_sha256"] for entry in entries if entry.action == "device-certified"
        }
        device = real.device()
        measured = [record for record in records if record.outcome == "ok"]
        assert measured
        assert {record.certificate_sha256 for record in measured} <= issued
        tickets = {ticket.id: ticket for ticket in gateway.read_tickets}
        for record in measured:
            assert record.ticket_jti is not None
            assert tickets[record.ticket_jti].device.startswith(f"{device.id}/")
        assert len({record.ticket_jti for record in measured}) > 1, "rounds are sessions of their own"
        with farm.client() as client:
            lines = client.get(f"/v1/jobs/{job.id}/records.jsonl").text.splitlines()
            page = client.get(f"/v1/records?job_id={job.id}").json()["items"]
        exported = {
            (line.get("certificate_sha256"), line.get("ticket_jti")) for line in map(json.loads, lines)
        }
        stored = {(record.certificate_sha256, record.ticket_jti) for record in records}
        assert exported == stored == {(item["certificate_sha256"], item["ticket_jti"]) for item in page}
