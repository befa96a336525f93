"""Requests of somebody with a key, made to keep a process of the API from everybody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tunefarm_app.records.search import parse_shape

# Time is the attack: without an end of its own, this test would last as long as the API would stand still.
SEARCH = "import sys; from tunefarm_app.records.search import parse_shape; parse_shape(sys.argv[1])"


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize("gap", ["   ", " " * 60, " , ", "\t" * 20])
def test_a_search_by_shape_never_holds_the_process(gap: str) -> None:
    """Before, 15 gaps of three spaces took 2 s, of 60 spaces for ever: each space could be the separator, and Python's `re` holds all threads."""
    text = "1" + f"{gap}1" * 15 + f"{gap}y"
    ran = subprocess.run([sys.executable, "-c", SEARCH, text], capture_output=True, text=True, timeout=60)
    assert "bad-shape" in ran.stderr or "is not a shape" in ran.stderr


@pytest.mark.parametrize(
    "text",
    ["1x56x56x64", "[1, 56, 56, 64]", "1 56 56 64", " 1×56 * 56,64 ", "1  56\t56 64", "[ 1x56x56x64 ]"],
)
def test_shapes_are_read_as_before(text: str) -> None:
    assert parse_shape(text) == (1, 56, 56, 64)
