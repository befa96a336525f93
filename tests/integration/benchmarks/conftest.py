"""The benchmarks are modules of the repository's root, which is not installed."""

from __future__ import annotations

import sys

from repository import ROOT

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
