"""Networks that are compiled in part: which nodes ONNX Runtime runs, and the graphs of both sides.

`plan` chooses the nodes, `cut` makes the graphs; `value_types` infers the types at their borders.
"""
