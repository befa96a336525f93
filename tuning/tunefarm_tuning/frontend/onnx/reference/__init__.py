"""The child's side of the reference: forms of a network that ONNX Runtime runs, in float64, with moved weights or in segments.

`variants` runs a network (by `runtime`) in all the ways that its comparison is made from:

- in `float64` (`float64_operators`, `inferred_types`); rounding its values as a quantised network does (`rounding`, `exact_products`);
- with `narrow` factors, as a compile for 16 bits has them; with inputs and weights `moved` by a unit in the last place;
- with `scaled` weights, to try whether the comparison would notice a layer that is off.

`telling_inputs` draws its inputs (`vocabulary`: how large integers may be). `segments` cuts it to compare inside.
"""
