"""The copies of states agree: the farm's, the client's, and the badges of the pages."""

from __future__ import annotations

from enum import StrEnum

import pytest
from repository import ROOT

from tunefarm.cli.farm_snapshot import OPEN_STATES as OPEN_STATES_OF_THE_COMMAND
from tunefarm.client.results.jobs import FINISHED_STATES
from tunefarm_api.schemas.device import Device
from tunefarm_db.states.job import OPEN_STATES, JobState
from tunefarm_db.values import CalibrationOutcome, DeviceState, ModelState, SampleState

BADGES = next((ROOT / "services").glob("*/**/templates/parts.html"))


def test_the_client_and_the_command_know_the_job_states() -> None:
    assert {state.value for state in JobState if state.is_finished} == FINISHED_STATES
    assert set(OPEN_STATES_OF_THE_COMMAND) == {state.value for state in OPEN_STATES}


@pytest.mark.parametrize("states", [JobState, ModelState, SampleState, DeviceState, CalibrationOutcome])
def test_every_state_has_a_badge(states: type[StrEnum]) -> None:
    text = BADGES.read_text(encoding="utf-8")
    assert [state.value for state in states if f"'{state.value}': (" not in text] == []


def test_the_documentation_of_the_api_explains_every_state_of_a_device() -> None:
    description = Device.model_fields["state"].description or ""
    assert all(f"`{state}` ({state.meaning})" in description for state in DeviceState)
