"""Kernels that tunefarm makes itself, and weight pre-packing.

In the order in which compiling a network meets them:

- `layers`: kernels of whole layers, which are not tuned: recurrences, attentions, trees.
- `dot_products`: convolutions and matrix products around a CPU's dot product instruction; `int8_kernels` in bytes, for quantised
  networks; `bfloat16_kernels` in bfloat16; `narrow_depthwise` of both. `float32_products` without such an instruction.
- `legalize`, `scan`: kernels of single operators in the place of TVM's: NaN-safe extrema, linear resizing, running sums.
- `weight_packing`: marks the weights of kernels, and packs them into the order in which a schedule reads them; `digit_order` packs
  without a compiler, `shared_orders` lets several kernels read one packed weight.
- `direct_conv`, `winograd`: recognise a 3x3 convolution in a fused kernel, and compute it in another way; `library_products` and
  `library_steps`: recognise a product, with the steps after it, that oneDNN can compute.

`peak` is apart: kernels that measure the peak of a device.
"""
