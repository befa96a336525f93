"""The dashboard: pages that the API process renders, for people with a browser.

Pages live beside ``/v1`` and never below it. A browser shows a session's cookie there; the API proper knows keys alone.

Before any page: `front` (headers, errors), `session` (the cookie) and `sign_in`. For all pages: `rendering`, `forms`, `assets`, and `live`,
which tells open ones what changed. The pages of jobs and devices have folders of their own, as have the `charts`.
"""
