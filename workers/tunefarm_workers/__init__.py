"""The Celery worker, the device agent and the gateway."""
