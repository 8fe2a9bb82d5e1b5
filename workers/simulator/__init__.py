"""The simulated cluster: a process of its own that behaves as Slurm does and really runs the jobs' processes."""
