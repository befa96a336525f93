"""A job's report as a notebook shows it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """The report of a job as one HTML page, complete in itself. A notebook that is given one shows it."""

    html: str

    def __repr__(self) -> str:
        return f"<ReportPage of {len(self.html.encode()) / 1000:.0f} kB: a notebook shows it, `html` is its text>"

    def _repr_html_(self) -> str:
        # In a frame of its own, so that its styles do not meet the notebook's; it needs no script.
        style = "width: 100%; height: 36em; border: 1px solid #8888"
        return f'<iframe sandbox title="report" style="{style}" srcdoc="{escape(self.html)}"></iframe>'
