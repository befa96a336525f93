"""The modules that import onnx and onnxruntime. They run only in child processes, because they read strangers' models."""

from __future__ import annotations

import os

# ONNX Runtime 1.31 reports its use over the network unless this is set before it is imported; it also leaves a file
# (.ses) in the folder for temporary files. Calling its disable_telemetry_events() later is too late for the file.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
