"""A job's log, downloaded from its page."""

from __future__ import annotations

import json
from typing import Any

from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario


def test_the_log_as_text_and_as_json_lines(browser: Browser, farm: Any) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, seed=5)), trials=16, tuner="random")
    farm.run()
    with farm.services.uow.write() as repos:
        for number in range(600):
            repos.events.add(job.id, "retry", {"error": {"message": f"{number} \x1b]0;x\x07\n<b>"}})
    kinds = farm.events(job.id)
    page = browser.page(f"/jobs/{job.id}").element("section", id="log")
    text, lines = (
        browser.get(anchor.attrs["href"]) for anchor in page.all("a") if anchor.text in ("text", "JSON lines")
    )
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["content-disposition"] == f'attachment; filename="{job.id}.log"'
    lines_of_text = text.text.splitlines()
    assert [line.split()[0] for line in lines_of_text] == [
        str(seq) for seq in range(1, len(lines_of_text) + 1)
    ]
    assert len(lines_of_text) > 600, "all of it, and not only what one part holds"
    assert "queued for the pool pool" in lines_of_text[0]
    assert "UTC" in lines_of_text[0]
    assert "599 \\x1b]0;x\\x07\\n<b>" in lines_of_text[-1]
    assert lines.headers["content-type"].startswith("application/jsonl")
    events = [json.loads(line) for line in lines.text.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(lines_of_text) + 1))
    assert [event["kind"] for event in events][: len(kinds)] == kinds[: len(events)]
    assert set(events[0]) == {"seq", "kind", "data", "created_at"}
    for name in ("log.txt", "log.jsonl"):
        assert browser.get(f"/jobs/job_x/{name}").status_code == 404
