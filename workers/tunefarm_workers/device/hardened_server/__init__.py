"""The RPC server of a device: ``python -m tunefarm_workers.device.hardened_server``.

TVM's own server ends for good, silently, when a kernel crashes its session, when a peer sends nonsense or resets its
connection, or when the tracker is away for a minute; a peer that says nothing blocks everybody. Here one event
loop of our own speaks the protocol (`loop`), a front door sorts the visitors (`front_door`) by the numbers of their leases (`fences`), and
each session is a forked child (`session`) that runs TVM's serving loop (`tvm_private`).

An agent's server listens nowhere: the agent hands it connections. One that is started by hand may offer itself at a tracker
(`tracker_link`), as the engine measures without a farm.
"""
