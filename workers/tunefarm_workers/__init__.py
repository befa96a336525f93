"""The Celery worker, the device agent and the gateway.

A worker's process is `worker`: it runs `celery_app`, whose children run `steps`, and tells them to stop by a file (`drain`). `device` is the
agent's package, `gateway` the gateway's.
"""
