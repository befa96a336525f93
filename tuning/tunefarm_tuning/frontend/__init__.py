"""Import a stranger's file as a checked model (`importing`, `described_model`), and extract its tasks (`extraction`).

Other formats become an ONNX file first: `conversion`, `torch`, `single_file`; `quantising` makes one of 8 bits. What reads strangers'
bytes is in `onnx`, and runs in child processes.
"""
