"""Kernels that tunefarm makes itself, and weight pre-packing.

In the order in which compiling a network meets them:

- `recurrent`: a whole LSTM, GRU or RNN as one kernel; the importer makes it.
- `dot_products`: convolutions and matrix products around a CPU's dot product instruction; `int8_kernels` in bytes, for quantised
  networks; `bfloat16_kernels` in bfloat16.
- `legalize`: kernels of single operators in the place of TVM's: NaN-safe extrema, linear resizing.
- `weight_packing`: marks the weights of kernels, and packs them into the order in which a schedule reads them.
- `direct_conv`, `winograd`: recognise a 3x3 convolution in a fused kernel, and compute it in another way.

`peak` is apart: kernels that measure the peak of a device.
"""
