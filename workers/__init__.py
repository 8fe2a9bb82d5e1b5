"""The processes people start: the worker, the command line, the embedded servers, the simulated cluster."""
