"""A job's report as one HTML file without scripts or other files.

Any text in it may come from a stranger: a model's name, an operator's, a message. The template escapes all of them, and
invisible characters (control characters, direction overrides) are spelt out.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tunefarm_app.report import charts, words
from tunefarm_app.report.document import JobReport, ReportKernel
from tunefarm_app.report.measurements import timed_beside, which_is_shown
from tunefarm_app.storage.file_names import file_stem
from tunefarm_text import quantities
from tunefarm_text.algorithms import algorithm_title, artifact_kind
from tunefarm_text.coverage_words import REASONS
from tunefarm_text.job_terms import STOPS, libraries_option, runtime_title
from tunefarm_tuning.core.untrusted_text import clean

_PACKAGE = "tunefarm_app.report"
_LONGEST_LINE = 2000
KERNELS_OPEN = 12
"""How many kernels a table shows before a reader asks for the others: those that take longest."""


def report_page(report: JobReport) -> str:
    """Return the page."""
    parts = report.breakdown
    return render(
        "report.html",
        report=report,
        strip=charts.latency_strip(report.latency) if report.latency else None,
        stacks=charts.time_stacks(report),
        exceeds=parts is not None and (parts.exceeds_before or parts.exceeds_after),
        kernels=sorted(report.kernels, key=_by_time),
        kernels_open=KERNELS_OPEN,
        most_before=max((kernel.before_sec or 0.0 for kernel in report.kernels), default=0.0) or 1.0,
        most_after=max((kernel.after_sec or 0.0 for kernel in report.kernels), default=0.0) or 1.0,
        words=words,
        reasons=REASONS,
        stops=STOPS,
        width=charts.WIDTH,
        which_counts=which_is_shown(report.measurements),
        beside=timed_beside(report.measurements),
        runtime_title=runtime_title,
        algorithm_title=algorithm_title,
        kind=_kind(report),
        target=" ".join(filter(None, (report.target.key, libraries_option(report.target.attributes)))),
    )


def _kind(report: JobReport) -> str:
    if report.latency is not None and report.latency.tuned_is_untuned:
        return artifact_kind(0)
    chosen = [alternative.algorithm for alternative in report.alternatives if alternative.chosen]
    return artifact_kind(report.coverage.covered if report.coverage else None, chosen)


def render(template: str, **values: object) -> str:
    """Return a page of a template, with the reports' style sheet inside."""
    return (
        _environment()
        .get_template(template)
        .render(css=Markup(_css()), policy=content_security_policy(), q=quantities, **values)  # noqa: S704  (ours)
    )


def page_name(report: JobReport) -> str:
    """Return the file's name."""
    return f"{file_stem(report.model.name)}.report.html"


@cache
def content_security_policy() -> str:
    """Return the page's Content-Security-Policy: its own style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_css().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _by_time(kernel: ReportKernel) -> tuple[float, int]:
    return (-(kernel.before_sec or 0.0), kernel.position)


@cache
def _css() -> str:
    return resources.files(_PACKAGE).joinpath("templates/report.css").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: object) -> object:
    """Return a text with its invisible characters spelled out. The template adds the markup."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(clean(line, _LONGEST_LINE) for line in value.split("\n"))
    return value
