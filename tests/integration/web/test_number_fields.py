"""A number in a form is refused with its name, the limit and what was sent."""

from __future__ import annotations

import pytest
from page_browser import Browser


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"minutes": "soon"}, "minutes must be a number that is not below zero, and is 'soon'"),
        ({"minutes": "-1"}, "minutes must be a number that is not below zero, and is '-1'"),
        ({"minutes": "nan"}, "minutes must be a number that is not below zero, and is 'nan'"),
        ({"minutes": "1e30"}, "the time of the whole job must be at most 366 days"),
        (
            {"trials": "1.5"},
            "trials must be a whole number of at most 30 digits, not below zero, and is '1.5'",
        ),
        ({"trials": "1,000"}, "trials must be a whole number"),
        ({"trials": "99999999999999999999"}, "the number of trials must be at most 2,147,483,647"),
        ({"trials": "9" * 5000}, "(4960 more characters)"),
        ({"trials": "8", "seed": "-1"}, "seed must be a whole number"),
    ],
)
def test_a_wrong_number_is_named(browser: Browser, farm, form: dict[str, str], message: str) -> None:
    farm.add_device()
    refused = browser.post(f"/models/{farm.ready_model().id}/jobs", **form)
    assert refused.status_code == 422
    assert message in refused.text.replace("&#39;", "'")
