"""Kernels of whole layers, which run all of a layer's loops themselves and are not tuned.

`recurrent` (LSTM, GRU, RNN, by a `recurrence`), `attention`, `trees`, `coupling` (classes of a support vector machine), `determinant`.
"""
