"""The documentation's commands run against a service on a simulated cluster."""

from tests.endtoend.conftest import own_simulator, servers

__all__ = ["own_simulator", "servers"]
