"""The source of a kernel in a real browser: opened, read, copied and downloaded, at any length."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from replay_server import ReplayServer
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.records.kernel_sources import MEDIA_TYPE, Progress, pack_source, source_key, source_of
from tunefarm_db.values import Job
from tunefarm_tuning.compiler.kernel_source import KernelSource, SourceText
from tunefarm_tuning.search.budget import Budget

_LINE = "</code></pre><script>document.title = 'taken'</script> vfmadd231ps %zmm0, %zmm1, %zmm2\n"


def finished_job(server: ReplayServer) -> Job:
    services = server.services
    blob = services.blobs.put([Scenario(tasks=2, seed=5).to_bytes()])
    model = submit_model(services, name="net.onnx", blob=blob, shapes={}).model

    def state() -> str:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state.value

    wait_until(lambda: state() == "ready", "the model is not ready")
    job = submit_job(services, JobRequest(model_id=model.id, budget=Budget(trials=16), tuner="random")).job

    def ended() -> bool:
        with services.uow.read() as repos:
            return repos.jobs.get(job.id).state.is_finished

    wait_until(ended, "the job does not end")
    return job


def keep_source(server: ReplayServer, job: Job, position: int, text: str) -> None:
    """Put a source into the store, as if a worker had made it."""
    services = server.services
    winner = source_of(services, job.id, position, ask=False).winner
    assert winner is not None
    texts = tuple(
        SourceText(kind=kind, text=text, size_bytes=len(text.encode()))
        for kind in ("schedule", "llvm", "asm")
    )
    blob = services.blobs.put([pack_source(KernelSource(toolchain="t", texts=texts))])
    with services.uow.write() as repos:
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        key = source_key(winner.record)
        repos.sources.begin(key, record_id=winner.record.id, target=job.target)
        repos.sources.set_ready(key, sha256=blob.sha256, size_bytes=blob.size_bytes)


@pytest.mark.exhaustive
def test_a_kernels_source_is_read_copied_and_downloaded(seat, server: ReplayServer) -> None:
    job = finished_job(server)
    source = _LINE * 40_000
    keep_source(server, job, 1, source)
    seat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = seat.sign_in()

    # One that nobody has asked for yet: a worker makes it while the page waits.
    page.goto(f"{server.url}/jobs/{job.id}/tasks/0")
    schedule = page.locator("details.source").first
    expect(schedule.locator(".lines")).to_have_count(0)
    schedule.locator("summary").press("Enter")
    expect(schedule.locator(".lines")).to_contain_text("a simulation has no kernels: matmul_0")
    assert source_of(server.services, job.id, 0, ask=False).progress is Progress.READY

    page.goto(f"{server.url}/jobs/{job.id}/tasks/1")
    assembly = page.locator("details.source").last
    assembly.locator("summary").click()
    lines = assembly.locator(".lines")
    expect(lines).to_contain_text("vfmadd231ps")
    expect(assembly).to_contain_text("40,000 lines")
    expect(assembly).to_contain_text("The first 2,000 are shown")
    assert lines.inner_text().splitlines()[0] == _LINE.rstrip("\n"), "markup is text"
    assert "taken" not in page.title()
    seat.nothing_serious(page)

    assembly.get_by_role("button", name="Copy").click()
    expect(assembly.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText().then((text) => text.length)") == len(source)
    with page.expect_download() as download:
        assembly.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"{job.id}-kernel-1.s"
    assert Path(download.value.path()).read_text(encoding="utf-8") == source

    with (
        page.expect_response(lambda answer: answer.url.endswith("/tasks/1") and answer.ok),
        server.services.uow.write() as repos,
    ):
        repos.events.add(job.id, "round", {})
    expect(lines, "what is being read stays when the page renews itself").to_be_visible()
