"""The domain: what a failure is, whose fault it is and what to do. Pure Python: no I/O, no clock, no Temporal."""
