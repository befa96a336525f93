"""The report of a finished job: its schema (`document`), its contents from the database (`assemble`), its page (`page`).

- The schema: `document` takes the compiler's part from `sections`, which `peak_sections`, `precision_sections` and `shape_sections` continue.
- The contents: `assemble` reads an artifact's manifest and report by `evidence`, and computes `numbers`, `measurements`, `networks`,
  `libraries`, `hybrid` and the steps to `reproduce` the job; `contradictions` says what does not fit together.
- As people read it: `sentences`, `words`, `charts`.
- Several jobs side by side: `comparison`, `sweeps`.
"""
