"""A browser without scripts, and the checks that hold for every page."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from page_tree import Element, read_page

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2 than httpx; either serves here
    from starlette.testclient import TestClient

ORIGIN = "http://testserver"
_HTML = {"Accept": "text/html,application/xhtml+xml"}


@dataclass
class Browser:
    """A browser that follows redirects and keeps cookies, but runs no script."""

    client: TestClient

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers={**_HTML, **headers})

    def post(self, path: str, **form: str) -> Any:
        return self.client.post(path, data=form, headers={**_HTML, "Origin": ORIGIN})

    def page(self, path: str) -> Element:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return checked(answer.text)

    def sign_in(self, key: str) -> Any:
        return self.post("/sign-in", key=key)


def checked(text: str) -> Element:
    """Parse a page, and check the rules for all pages."""
    page = read_page(text)
    ids = [element.attrs["id"] for element in page.walk() if "id" in element.attrs]
    assert len(ids) == len(set(ids)), "an id is used twice"
    assert page.element("html").attrs["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert page.element("head").element("title").text  # drawings have titles too
    for element in page.walk():
        assert not [name for name in element.attrs if name.startswith("on") or name == "style"], element
        if element.tag == "script":
            assert element.attrs["src"].startswith("/static/")
            assert not element.text
        if element.tag == "table":
            assert element.all("caption")
        if element.tag in ("select", "textarea") or (
            element.tag == "input" and element.attrs.get("type") != "hidden"
        ):
            labelled = "aria-label" in element.attrs or any(
                label.attrs.get("for") == element.attrs.get("id") or element in label.walk()
                for label in page.all("label")
            )
            assert labelled, element
        if element.tag in ("th", "td") and re.fullmatch(r"-?[0-9.]+e[-+]?[0-9]+", element.text):
            raise AssertionError(f"a bare number: {element.text}")
    assert page.all("style") == []
    if any("data-local" in element.attrs for element in page.all("time")):
        assert any("app" in script.attrs["src"] for script in page.all("script")), (
            "its times stay in UTC, where other pages show the reader's"
        )
    return page
