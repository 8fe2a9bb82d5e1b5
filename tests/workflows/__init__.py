"""Stories of the workflows: the world around them is played by `stage`, on Temporal's own test servers."""

import pytest

pytest.register_assert_rewrite("tests.workflows.stage")
