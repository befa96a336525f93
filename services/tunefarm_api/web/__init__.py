"""The dashboard: pages that the API process renders, for people with a browser.

Pages live beside ``/v1`` and never below it. A browser shows a session's cookie there; the API proper knows keys alone.
"""
