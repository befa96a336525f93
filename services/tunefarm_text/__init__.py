"""How tunefarm writes things for people. The client, the command, the pages and the report share it; it imports nothing."""
