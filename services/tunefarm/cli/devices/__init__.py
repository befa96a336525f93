"""``tunefarm device``: commands that add machines to a farm and manage them."""

from __future__ import annotations

from tunefarm.cli.devices.group import app as app

# In the order in which the help lists their commands.
# isort: off
from tunefarm.cli.devices import join as join
from tunefarm.cli.devices import manage as manage
from tunefarm.cli.devices import history as history
