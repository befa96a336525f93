"""Devices: registration, calibration, peaks, history.

- A machine joins: `enrolment` gives it a credential, `credentials` renews that, `register` takes its reports (read by `agent_info`),
  `certificates` is what the gateway knows it by.
- Workers measure it: `calibration` (judged by `drift`) and `peak`.
- People: `commands` they give, `holders` of its lease, `history`.
"""
