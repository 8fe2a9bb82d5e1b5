"""Let pytest show the values in the suite's assertions: it is imported, not collected."""

import pytest

pytest.register_assert_rewrite("tests.scheduler.conformance")
