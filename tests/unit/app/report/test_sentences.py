"""The sentences of a report."""

from __future__ import annotations

from tunefarm_app.report.document import JobReport
from tunefarm_app.report.parts import ReportAlternative
from tunefarm_app.report.sentences import summary


def test_an_artifact_is_larger_than_its_model_for_a_reason(report: JobReport) -> None:
    assert report.artifact is not None
    chosen = ReportAlternative(workload_key="w", algorithm="winograd-4", chosen=True, sum_sec=1e-3)
    sizes = {
        "artifact": report.artifact.model_copy(update={"size_bytes": 97_000_000}),
        "model": report.model.model_copy(update={"size_bytes": 47_000_000}),
    }
    large = report.model_copy(update={**sizes, "alternatives": [chosen]})
    (sentence,) = (each for each in summary(large) if "Winograd" in each)
    assert sentence.startswith(
        "The artifact has 97.0 MB, the model's file 47.0 MB: it holds the weights of 1 kernel"
    )
    left_out = large.model_copy(update={"alternatives": [chosen.model_copy(update={"chosen": False})]})
    small = large.model_copy(
        update={"artifact": report.artifact.model_copy(update={"size_bytes": 48_000_000})}
    )
    for other in (left_out, small):
        assert not any("Winograd" in each for each in summary(other))
