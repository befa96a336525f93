"""Apply the config of a record, and check that it gives the schedule that was measured."""

from __future__ import annotations

import tvm
from tvm.s_tir import Schedule

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.space.design_space import DesignSpace


def apply_recorded(module: tvm.IRModule, target: Target, config: Config, space_key: str | None) -> Schedule:
    """Schedule a workload by the config of a record.

    Args:
        module: The workload.
        target: The target to schedule for.
        config: The record's config.
        space_key: The record's space key; None for a config of no record, which may apply as another config.

    Raises:
        InvalidInputError: ``"space-changed"`` if the search space is no longer the one of the record, ``"does-not-apply"`` if the
            config is no point of the space, or applies as another config.
    """
    try:
        space = DesignSpace(module, target)
        if space_key is not None and space.config_space.key != space_key:
            raise InvalidInputError(
                f"the record is of config space {space_key[:16]}; "
                f"the workload has {space.config_space.key[:16]} now",
                code="space-changed",
            )
        schedule, applied = space.apply(config)
    except InvalidInputError as error:
        if error.code == "space-changed":
            raise
        raise InvalidInputError(error.message, code="does-not-apply") from error
    if space_key is not None and applied != config:
        raise InvalidInputError(
            f"the config was measured as {config.key[:200]}, but applies as {applied.key[:200]}",
            code="does-not-apply",
        )
    return schedule
