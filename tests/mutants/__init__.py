"""One planted bug for each of relight's promises, and the check that has to find it."""
