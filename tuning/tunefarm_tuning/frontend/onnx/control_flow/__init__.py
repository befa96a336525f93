"""Resolve `If`, `Loop` and `Scan` where shapes, constants and bound values decide them: the compiler takes graphs without inner graphs.

`flatten` does so, node by node into a `flat_graph`: `branches`, `loops`, `scans` (`batched_scans`: all steps at once). `inner_graphs` reads
such a node.
"""
