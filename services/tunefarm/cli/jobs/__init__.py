"""``tunefarm jobs``: commands that show, follow and change jobs, and download their results."""

from __future__ import annotations

from tunefarm.cli.jobs.look import app as app

# In the order in which the help lists their commands.
# isort: off
from tunefarm.cli.jobs import look as look
from tunefarm.cli.jobs import change as change
from tunefarm.cli.jobs import results as results
