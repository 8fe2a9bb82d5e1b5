"""What several suites share: the real clusters, and a second chance for tests on real servers."""

import pytest

pytest_plugins = ["tests.slurm.plugin"]

_REAL_SERVERS = ("slurm", "temporal", "postgres")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test on real servers once more when it fails: on a busy host a daemon is now and then late for reasons of
    its own. What fails twice has failed."""
    for item in items:
        if any(item.get_closest_marker(name) for name in _REAL_SERVERS):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was run once more: that it passed then is no proof that nothing is wrong."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("=", f"failed at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
