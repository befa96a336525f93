"""Which topics changed between two looks at the database."""

from __future__ import annotations

from tunefarm_api.web.live import changes
from tunefarm_db.repositories.farm.overview import JobHead
from tunefarm_db.states.job import JobState


def test_what_changed_between_two_looks() -> None:
    def head(seq: int) -> JobHead:
        return JobHead(id="job_1", state=JobState.TUNING, event_seq=seq, updated_at=float(seq))

    assert changes({"job:1": head(1)}, {"job:1": head(1)}) == {}
    assert changes({"job:1": head(1)}, {"job:1": head(3), "job:2": head(1)}) == {"job:1": 3, "job:2": 1}
    assert changes({"job:1": head(1), "device:1": "x"}, {}) == {"device:1": 0}
