"""Where a library computes a kernel faster than the best kernel of ours: what to mend next."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from tunefarm_app.report.sections import ReportAlternative, ReportSection
from tunefarm_text.algorithms import algorithm_title
from tunefarm_text.quantities import seconds

_AHEAD = 0.98
"""A library is ahead if it takes at most this share of the time: less is noise."""


class ReportLibraryAhead(ReportSection):
    """A kernel that a library computes faster than we do."""

    workload_key: str = Field(description="Content hash of the kernel.")
    name: str = Field(description="The kernel's name in the graph.")
    library: str = Field(description="Name and version of the library.")
    library_sec: float = Field(description="Seconds per call of the library, timed alone.")
    own_sec: float = Field(
        description="Seconds per call of our best kernel, timed alone: tuned if it has a record, by another algorithm if that is faster."
    )
    share: float = Field(description="The first divided by the second.")
    gain_sec: float = Field(description="Seconds per inference between them, timed alone.")
    chosen: bool = Field(description="Whether the library computes it in the artifact.")

    @property
    def sentence(self) -> str:
        """The comparison in words: ``"oneDNN 3.9 computes this kernel in 120 µs, 0.8 of our best (150 µs)."``."""
        used = "" if self.chosen else " The artifact does not use it."
        return (
            f"{self.library} computes this kernel in {seconds(self.library_sec)}, {self.share:.2g} of our best "
            f"({seconds(self.own_sec)}).{used}"
        )


def libraries_ahead(alternatives: Sequence[ReportAlternative]) -> list[ReportLibraryAhead]:
    """Return the kernels that a library computes faster than the best of ours, those first that cost an inference most."""
    own_secs: dict[str, list[float]] = {}
    for alternative in alternatives:
        known = own_secs.setdefault(alternative.workload_key, [])
        if alternative.direct_sec is not None:
            known.append(alternative.direct_sec)
        if not alternative.library:
            known.append(alternative.sum_sec)
    ahead = [
        _ahead(alternative, min(own_secs[alternative.workload_key]))
        for alternative in alternatives
        if alternative.library and own_secs[alternative.workload_key]
    ]
    return sorted(
        (entry for entry in ahead if entry.share <= _AHEAD),
        key=lambda entry: (-entry.gain_sec, entry.name),
    )


def _ahead(alternative: ReportAlternative, own_sec: float) -> ReportLibraryAhead:
    return ReportLibraryAhead(
        workload_key=alternative.workload_key,
        name=alternative.name,
        library=algorithm_title(alternative.algorithm, alternative.library),
        library_sec=alternative.sum_sec,
        own_sec=own_sec,
        share=alternative.sum_sec / own_sec if own_sec else 1.0,
        gain_sec=alternative.weight * (own_sec - alternative.sum_sec),
        chosen=alternative.chosen,
    )
