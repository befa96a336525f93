"""An artifact says that a library is missing which its kernels call, and runs all the same."""

from __future__ import annotations

import warnings

import pytest

from tunefarm_tuning.artifact import onednn_library
from tunefarm_tuning.artifact.onednn_library import LibraryWarning, load_kernel_libraries


def test_a_missing_library_is_a_warning_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_library, "load_onednn", lambda: "")
    with pytest.warns(
        LibraryWarning, match=r"oneDNN \(timed with 3\.2\.0\).*pip install 'tunefarm\[onednn\]'"
    ):
        load_kernel_libraries({"onednn": "3.2.0"})


def test_an_artifact_without_libraries_loads_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_kernel_libraries({})
