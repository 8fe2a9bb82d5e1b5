"""What several suites share: the real clusters, a second chance on real servers, and which files come first."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.slurm.plugin"]

_REAL_SERVERS = ("slurm", "temporal", "postgres")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test on real servers once more when it fails: on a busy host a daemon is now and then late for reasons of
    its own. What fails twice has failed."""
    for item in items:
        if _on_real_servers(item):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        _longest_files_first(items)


def _longest_files_first(items: list[pytest.Item]) -> None:
    """Sort whole files, so that of those which processes share out among themselves no long one is begun last. How long
    a file takes, its marks say: the most that one of its tests may take, then how many are on real servers."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    ranks = {path: (_longest_s(tests), sum(map(_on_real_servers, tests))) for path, tests in files.items()}
    items.sort(key=lambda item: ranks[item.path], reverse=True)


def _longest_s(tests: list[pytest.Item]) -> float:
    marks = (test.get_closest_marker("timeout") for test in tests)
    return max((float(mark.args[0]) for mark in marks if mark is not None), default=0.0)


def _on_real_servers(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in _REAL_SERVERS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was run once more: that it passed then is no proof that nothing is wrong."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("=", f"failed at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
