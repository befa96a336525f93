"""Handlers of a child whose kernel says that it is an older one: ``OLD_ABI`` is the version of Landlock that it has."""

import os

from reaching_handlers import HANDLERS as HANDLERS

from tunefarm_tuning.process import landlock

landlock.abi = lambda: int(os.environ["OLD_ABI"])
