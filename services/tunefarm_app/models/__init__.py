"""Models: uploads, submission, deletion, the sweep of the store.

A file comes whole, or in parts (`uploads`, `upload_part`); `submit` registers it (`stored_file` says what its bytes are) and plans its
import. `samples` are its user's real inputs, `quantised` its forms of 8 bits, `labels` its tags and notes. `removal` deletes.
"""
