"""Which paths are pages, and which need no key."""

from __future__ import annotations

from tunefarm_api.paths import is_local, is_page, is_public


def test_which_paths_are_pages() -> None:
    assert all(map(is_page, ["/", "/jobs", "/jobs/x/y", "/static/app.js", "/sign-in", "/live"]))
    assert not any(
        map(
            is_page, ["/v1/jobs", "/healthz", "/readyz", "/metrics", "/jobsx", "/docs", "", "jobs", "//jobs/"]
        )
    )
    assert is_public("/static/x")
    assert not is_public("/jobs")
    assert is_local("/jobs?x=1#y")
    assert not any(map(is_local, ["//x", "x", "https://x", "/\\x", "/\nx", ""]))
