"""The REST API.

`app` builds the application, which `server` runs. In the order in which a request meets them: `connections`, `request_scope`, `paths`,
`gate` (`concurrency`, `small_bodies`), `methods`, then one of the `routes` (with `dependencies`, as `auth`), which answers by `schemas` and
`views`, or a page of the dashboard (`web`). `transfer` carries files, `errors` are problem documents.

At the start, `first_key` writes keys to files. `openapi` corrects the document of the API; `readiness` and other things that many ask for
are a `kept_answer`.
"""
