"""Every figure that the README states: ``python -m benchmarks [latency|jobs|history|cli|all] [--json]``.

A figure is printed with what it is held against: a target, or a baseline of the same run. Nothing here passes or fails.
"""
