"""Print a report: latency, accuracy, the kernels without a tuned form, and how to do it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_text.algorithms import kind_of_report
from tunefarm_text.coverage_words import REASONS
from tunefarm_text.job_terms import RUNTIMES, runtime_title

_ALWAYS = ("onnxruntime", "untuned", "tuned")
_NAMES = 4
_ROWS = (
    *((name, title) for name, title in RUNTIMES.items() if name != "torch_compile"),
    ("torch_compile", "PyTorch, torch.compile"),
    ("untuned", "TVM, untuned"),
)


def show_report(out: Output, report: Mapping[str, Any]) -> None:
    """Print a job's report, or the one inside an artifact."""
    latency, checks = _part(report, "latency"), _part(report, "checks")
    coverage = _part(report, "coverage")
    if latency:
        _show_latency(out, latency, kind_of_report(report))
    else:
        for sentence in report.get("summary") or []:
            out.text(sentence)
    if "max_abs_error" in checks:
        out.text(
            f"largest output difference  {checks['max_abs_error']:.3g} absolute, "
            f"{checks.get('max_rel_error', 0.0):.3g} relative ({checks.get('reference', 'reference')})"
        )
    if samples := _part(checks, "samples"):
        used = sum(len(file["used"]) for file in samples["files"])
        out.text(
            f"  on {used} of {sum(file['sets'] for file in samples['files'])} sample sets    "
            f"{samples['max_abs_error']:.3g} absolute, {samples['max_rel_error']:.3g} relative"
        )
    for name, errors in (_part(_part(report, "precision"), "accuracy")).items():
        if errors and "mean_rel_error" in errors:
            out.text(
                f"  {report['precision']['name'] if name == 'stored' else 'as-model':<25}mean {errors['mean_rel_error']:.3g}, "
                f"largest {errors['max_rel_error']:.3g} relative"
            )
    if coverage:
        out.text(f"kernels tuned              {coverage.get('covered', 0)} of {coverage.get('tasks', 0)}")
        for line in _missed(coverage.get("misses") or []):
            out.text(f"  untuned: {line}")
    if outcomes := _part(report, "outcomes"):
        out.text(f"trials                     {trials_text(outcomes)}")
    for warning in report.get("warnings") or []:
        out.text(f"note: {warning}", style="yellow")


def show_steps(out: Output, report: Mapping[str, Any]) -> None:
    """Print how to do a job again, and what can differ then."""
    reproduce = _part(report, "reproduce")
    steps = reproduce.get("steps") or []
    if not steps:
        return
    out.text()
    out.text("How to do it again", style="bold")
    for number, step in enumerate(steps, start=1):
        out.text(f"{number}. {step['what']}")
        for line in step["code"].splitlines():
            out.text(f"     {line}".rstrip())
    for caveat in reproduce.get("caveats") or []:
        out.text(f"note: {caveat}")


def trials_text(outcomes: Mapping[str, int]) -> str:
    """Return ``"120: 110 ok, 10 build-error"``."""
    ordered = sorted(outcomes.items(), key=lambda item: (item[0] != "ok", -item[1], item[0]))
    return f"{sum(outcomes.values())}: " + ", ".join(f"{count} {outcome}" for outcome, count in ordered)


def _missed(misses: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each reason: how many kernels, why, and the first of them by name."""
    by_reason: dict[str, list[str]] = {}
    for miss in misses:
        told = f"{miss['name']} ({miss['message']})" if miss.get("message") else miss["name"]
        by_reason.setdefault(miss["reason"], []).append(told)
    lines = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        count = quantities.plural(len(names), "kernel")
        lines.append(f"{count}, {REASONS.get(reason, reason)}: {', '.join(names[:_NAMES])}{more}")
    return lines


def _part(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = report.get(name)
    return value if isinstance(value, Mapping) else {}


def _show_latency(out: Output, latency: Mapping[str, Any], kind: str) -> None:
    tuned = _part(latency, "tuned").get("median_sec")
    rows: list[tuple[str, ...]] = []
    asked = _part(latency, "baselines")
    for key, name in (*_ROWS, ("tuned", f"the artifact (TVM, {kind})")):
        facts = _part(asked, key)
        # In a job's report it has the timing; in the compiler's, it is beside the others.
        timing = _part(facts, "timing") or _part(latency, key)
        name = runtime_title(key, str(facts.get("computes") or "")) if facts else name
        if not timing:
            missing = facts.get("missing") or latency.get(f"{key}_missing")
            if key not in _ALWAYS and not missing:  # not asked for, or not measured, as torch.compile on CPUs
                continue
            rows.append(
                (name, quantities.NONE, quantities.NONE, quantities.NONE, str(missing or "not measured"))
            )
            continue
        samples = timing.get("samples_sec") or [timing["median_sec"]]
        rows.append(
            (
                name,
                quantities.latency(timing["median_sec"]),
                f"{quantities.latency(min(samples))} to {quantities.latency(max(samples))}",
                str(timing.get("threads") or quantities.NONE),
                _speedup(_part(latency, "ratios").get(key), timing["median_sec"] / tuned if tuned else None)
                if key != "tuned"
                else quantities.NONE,
            )
        )
    out.table(("", ">median latency", ">samples", ">threads", ">artifact's speed-up"), rows)
    for key, facts in asked.items():
        checks = _part(facts, "checks")
        if checks.get("ok") is False:
            out.text(
                f"note: {runtime_title(key, str(facts.get('computes') or ''))} computes something else: outputs differ by mean "
                f"{checks['mean_rel_error']:.3g}, largest {checks['max_rel_error']:.3g} relative",
                style="yellow",
            )


def _speedup(ratio: Mapping[str, Any] | None, medians: float | None) -> str:
    """Return the artifact's speed-up as far as it is known; only that of the medians, if the report is of an earlier release."""
    if ratio is None:
        return quantities.ratio(medians)
    low, high = ratio.get("low"), ratio.get("high")
    text = quantities.speedup(ratio["value"], low, high)
    known = low is not None and low != high and not quantities.is_wide(low, high)
    return f"{text} ({quantities.interval(low, high)})" if known else text
