"""Converters of ``ai.onnx.ml``: trees, support-vector machines, encoders and scalings, as scikit-learn's converters write them."""
