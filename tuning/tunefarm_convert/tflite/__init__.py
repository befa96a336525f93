"""Convert TFLite files to ONNX models (docs/adr/0023-tflite-files-are-read-as-onnx.md).

`convert` reads a file's graphs (`parser`, `sparsity`, into the values of `graph`), writes complex tensors in parts (`complex_parts`), makes
variables inputs and outputs (`states`), and has `program` convert operator by operator. A converter (in `operators`) gets a `converter`'s
context: the tensors as ONNX has them (`values`), their sizes (`shapes`), the options of custom operators (`flexible_options`). What is
constant is folded (`folding`). At the end, `shape_check` compares with the file's own shapes. `litert` runs a file in its own interpreter.
"""
