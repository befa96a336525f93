"""`Graph` and the networks of the examples, which are scripts that import each other by bare names."""

from __future__ import annotations

import sys

from benchmarks.search.machine import ROOT

if str(ROOT / "examples") not in sys.path:
    sys.path.insert(0, str(ROOT / "examples"))

from mobilenet_v2 import build_mobilenet_v2
from network_graph import Graph, write_network
from resnet18 import build_resnet18

__all__ = ["Graph", "build_mobilenet_v2", "build_resnet18", "write_network"]
