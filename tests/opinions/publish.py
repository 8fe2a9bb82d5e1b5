"""``python -m tests.opinions.publish``: write the JSON schema of the contract to where it is published."""

from __future__ import annotations

import json

from activities.attribution.contract import schema
from tests.opinions.test_contract import SCHEMA

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
