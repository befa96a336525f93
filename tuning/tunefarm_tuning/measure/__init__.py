"""Measurement: building candidates, timing them on a device, and what the device can do at its best.

`builder.BUILDERS` and `runner.RUNNERS` list the back ends; `interfaces` has what all of them implement.
"""
