"""The report's section on the sets of shapes that an artifact was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.phases.measure import EntryTiming
from tunefarm_tuning.compiler.phases.prove_batches import ProvedBatches
from tunefarm_tuning.compiler.report import baselines_report
from tunefarm_tuning.compiler.session import LoadedInfo
from tunefarm_tuning.core.ratio import speedups
from tunefarm_tuning.workload.model import Model


def shape_reports(
    model: Model,
    info: LoadedInfo,
    timings: Mapping[str, EntryTiming],
    comparison: ModelComparison,
    proved: Mapping[str, ProvedBatches],
) -> list[dict[str, Any]]:
    """Return what is known of each set of shapes, in the order of `Model.each`; nothing if there is one set only."""
    if not model.specialisations:
        return []
    reports = []
    for entry, each in zip(info.entries, model.each, strict=True):
        timing, batches = timings[entry.name], proved.get(entry.name, ProvedBatches())
        part = comparison.of_entry(entry.name)
        latency = timing.latency
        tuned_sec = latency["tuned"].median_sec
        others = {name: latency[name].median_sec for name in ("untuned", "onnxruntime") if name in latency}
        reports.append(
            {
                "entry": entry.name,
                "weight": entry.weight,
                "inputs": [spec.to_json() for spec in each.inputs],
                "outputs": [spec.to_json() for spec in each.outputs],
                "latency": {
                    "onnxruntime": None,
                    **{name: network.to_json() for name, network in latency.items()},
                    "rejected": timing.rejected.to_json() if timing.rejected else None,
                    **{f"speedup_over_{name}": seconds / tuned_sec for name, seconds in others.items()},
                    **({"alone": timing.alone.to_json()} if timing.alone else {}),
                    "ratios": {name: ratio.to_json() for name, ratio in speedups(latency).items()},
                    **baselines_report({name: facts.to_json() for name, facts in timing.baselines.items()}),
                },
                "checks": {"ok": part.ok, **part.errors()},
                "fallback": timing.fallback.message if timing.fallback else None,
                "batches": list(batches.batches),
                "batches_tried": list(batches.tried),
                "no_batches": batches.reason or None,
            }
        )
    return reports
