"""The form for the shapes of a model whose import failed for want of them."""

from __future__ import annotations

import pytest
from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario


@pytest.mark.parametrize(
    ("advice", "shapes", "words"),
    [
        ("; it runs, for example, with: --shape x=1,3", {"x": [1, 3]}, "with the shapes and values below"),
        ("; it runs without shapes and values", {}, "leave the fields empty"),
        (", for example: --shape x=1,3", {"x": [1, 3]}, "are a guess"),
    ],
)
def test_it_says_whether_onnx_runtime_ran_with_them(
    browser: Browser, farm, advice: str, shapes: dict[str, list[int]], words: str
) -> None:
    model = farm.upload(Scenario(tasks=1), "net.onnx")
    with farm.services.uow.write() as repos:
        fields = {"proposal": {"shapes": shapes, "values": {}}}
        error = {"code": "unknown-input", "message": f"there is no input y{advice}", "fields": fields}
        repos.models.set_failed(model.id, error)
    assert words in browser.page(f"/models/{model.id}").text
