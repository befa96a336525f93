"""Schemas of requests for sweeps; their answers are `tunefarm_app.report.sweeps`."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input
from tunefarm_api.schemas.job import JobCheck
from tunefarm_text.job_terms import HELP

SampleIds = Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=64)]
Names = Annotated[list[Annotated[str, Field(max_length=250)]], Field(max_length=64)]


class RefusedFile(Input):
    """A file that could not be uploaded or imported. It gets a row of its own, so that nobody misses it in the report."""

    name: str = Field(max_length=1000, description="Name of the file.")
    code: str = Field("refused", max_length=200, description="Problem code of the refusal.")
    message: str = Field(max_length=20_000, description="The reason, for people.")


class SweepCreate(JobCheck):
    """A request to tune models on pools in precisions. Other terms are those of each job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model_ids": ["mdl_01k8z3v6q4m9t2c7x5n8b1r0sd"],
                    "device_keys": [],
                    "precisions": ["as-model", "float16-weights"],
                    "budget": {"job_sec": 1800},
                }
            ]
        }
    )

    model_ids: Names = Field(
        description="Models to tune; they must be imported. Ids, `name@version`, or names, which mean their newest versions."
    )
    device_keys: Names = Field(default=[], description="Pools; empty for the farm's only pool.")
    precisions: Names = Field(
        default=[], description=f"One or several of these; empty for the models' own. {HELP['precision']}"
    )
    samples: dict[Annotated[str, Field(max_length=250)], SampleIds] = Field(
        default={},
        max_length=64,
        description="Ids of samples by the model that they belong to, named as in `model_ids`. They must be ready: each artifact of "
        "the model is compared on them before random inputs, and timed on the first of them. int8 needs some of every model.",
    )
    refused: list[RefusedFile] = Field(
        default=[], max_length=64, description="Files that are not among the models, and why."
    )
