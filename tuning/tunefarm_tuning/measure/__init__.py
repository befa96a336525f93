"""Measurement: building candidates, timing them on a device, calibration and peaks of devices.

`builder.BUILDERS` and `runner.RUNNERS` list the back ends; `interfaces` has their interfaces.
"""
