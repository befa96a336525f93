"""A whole farm on this machine: private Valkey, gateway, API, worker and device agent, as children of one supervisor.

It runs the same code as a distributed farm, over the same protocols; only the start differs.
`EmbeddedFarm` is the handle, ``python -m tunefarm.embedded`` the supervisor's process.

`farm` starts a `supervisor` for a folder (`home`) with `options`. The supervisor starts the `processes`, `valkey` first, each a `child` that
a `tether` ends with it, and restarts what dies by the `restart_policy`.
"""

from __future__ import annotations

from tunefarm.embedded.farm import EmbeddedFarm
from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmEvent, FarmOptions
from tunefarm.endpoint import Endpoint, default_home

__all__ = ["EmbeddedFarm", "Endpoint", "FarmEvent", "FarmHome", "FarmOptions", "default_home"]
