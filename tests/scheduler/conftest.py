"""The servers of a whole recovery; and the suite's assertions show their values: it is imported, not collected."""

import pytest

from tests.endtoend.conftest import servers

__all__ = ["servers"]

pytest.register_assert_rewrite("tests.scheduler.conformance")
