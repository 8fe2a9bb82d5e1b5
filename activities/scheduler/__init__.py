"""The scheduler behind one protocol: `cli` speaks to a real Slurm, `simulated` to the simulated cluster."""
