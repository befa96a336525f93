"""Quantise a float network to 8 bits, as far as the accuracy asked for allows.

`quantise_child` runs a `search`: the `quantiser` makes a form, `accuracy` says what it costs, until the fastest that is accurate enough is
found.
"""
