"""HTTP to the farm: links, retries, pages, files.

A method awaits the `transport`, which opens a `connection`, sends a request over a link (`links`: blocking or asynchronous), decides on a
`retry`, and reads `streams` and lists (`paging`). `waiting` polls. `blocking` makes the blocking methods of the awaited ones.
"""
