"""The `relight` command. Command modules import what is heavy inside their functions, so that `--help` stays quick."""
