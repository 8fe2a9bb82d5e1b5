"""Log sources behind one protocol: `files` reads a shared filesystem."""
