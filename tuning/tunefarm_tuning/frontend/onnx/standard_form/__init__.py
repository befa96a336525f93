"""The form of a model that all but the first checks read.

`form` makes it: the nodes get an order (`node_order`), `local_functions` their bodies, `qonnx` and other `mended_nodes` what ONNX Runtime
takes.
"""
