"""Who made a file: signed statements about artifacts and backups, and their check before the file is used.

A statement is in-toto's (v1), in a DSSE envelope that is signed with Ed25519. It lies beside its file as ``NAME.intoto.jsonl``, or in a
backup. The check needs the package ``securesystemslib``, which the extra ``verify`` installs; it is imported when a key is given.
"""
