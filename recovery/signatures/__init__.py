"""The signature catalogue (YAML beside this file) and the reading of log lines: splitting, prefixes, matching."""
