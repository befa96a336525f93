"""Names of algorithms and libraries, and what an artifact is called by them."""

from __future__ import annotations

import pytest

from tunefarm_text.algorithms import algorithm_title, artifact_kind, kind_of_report
from tunefarm_text.job_terms import libraries_option


@pytest.mark.parametrize(
    ("algorithm", "library", "title"),
    [
        ("winograd-4", "", "Winograd"),
        ("onednn", "", "oneDNN"),
        ("onednn", "onednn 3.9.1", "oneDNN 3.9.1"),
        ("fft", "", "fft"),
    ],
)
def test_an_algorithm_has_its_name(algorithm: str, library: str, title: str) -> None:
    assert algorithm_title(algorithm, library) == title


@pytest.mark.parametrize(
    ("covered", "algorithms", "kind"),
    [
        (3, [], "tuned"),
        (3, ["onednn"], "tuned"),
        (None, [], "tuned"),
        (0, [], "untuned"),
        (0, ["winograd-4", "winograd-2"], "not tuned, with Winograd"),
        (0, ["winograd-4", "onednn"], "not tuned, with oneDNN and Winograd"),
    ],
)
def test_what_an_artifact_is(covered: int | None, algorithms: list[str], kind: str) -> None:
    assert artifact_kind(covered, algorithms) == kind


def test_it_is_read_from_the_compilers_report_and_a_jobs() -> None:
    candidates = [{"algorithm": "onednn", "chosen": True}, {"algorithm": "winograd-4", "chosen": False}]
    coverage = {"tasks": 2, "covered": 0}
    assert kind_of_report({"coverage": coverage, "alternatives": candidates}) == "not tuned, with oneDNN"
    assert (
        kind_of_report({"coverage": coverage, "alternatives": {"candidates": candidates}})
        == "not tuned, with oneDNN"
    )
    assert kind_of_report({"coverage": "?", "alternatives": 3}) == "tuned"
    assert kind_of_report(None) == "tuned"


def test_the_libraries_of_a_target() -> None:
    assert libraries_option({"kind": "llvm", "libs": ["dnnl"]}) == "-libs=dnnl"
    assert libraries_option({"kind": "llvm", "libs": ["cudnn", "cublas"]}) == "-libs=cudnn,cublas"
    assert libraries_option({"kind": "llvm"}) == ""
