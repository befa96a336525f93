"""What users import and type: the client, the artifact loader and the `tunefarm` command."""
