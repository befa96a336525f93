"""The devices of child processes: sessions (`session`), and the state and timing of GPUs (`gpu`).

In a session, `kernel_times` times kernels, `kernel_check` compares and times them beside others, `parts` runs what ONNX Runtime runs of a network, `watching` asks what else the
machine does, `instruction_probes` try whether it has the instructions that kernels are made for.
"""
