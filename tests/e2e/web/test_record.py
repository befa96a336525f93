"""A record's page in a real Chromium, as wide as a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from replay_server import ReplayServer

from tunefarm.client import Client


@pytest.mark.parametrize("seat", [{"viewport": {"width": 400, "height": 800}}], indirect=True, ids=["narrow"])
def test_the_ids_of_records_are_on_one_line(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    with Client(server.url, server.api_key) as client:
        client.tune(server.write_model(tmp_path / "net.onnx", tasks=1), trials=16).wait(poll_sec=0.05)
    page = seat.sign_in()
    page.goto(f"{server.url}/records")
    page.get_by_role("region", name="Records").get_by_role("link").first.click()
    table = page.get_by_role("region", name="The fastest")
    record_id = table.get_by_role("link").first
    expect(record_id).to_be_visible()
    assert record_id.evaluate("link => link.getClientRects().length") == 1
    assert table.evaluate("table => table.scrollWidth - table.clientWidth") <= 0
    seat.nothing_serious(page)
