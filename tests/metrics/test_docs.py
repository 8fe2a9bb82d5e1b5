"""What docs/metrics.md and the example settings show works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from activities.metrics.names import known_names
from activities.metrics.settings import PrometheusSettings
from tests.docs.blocks import REPOSITORY, blocks, commands
from workers.settings import load_settings

DOCUMENT = "docs/metrics.md"


def test_the_settings_of_the_document_are_settings(tmp_path: Path) -> None:
    (tmp_path / "relight.yaml").write_text(blocks(DOCUMENT, "yaml")[0])
    metrics = load_settings(tmp_path / "relight.yaml").clusters[0].metrics
    assert metrics is not None
    assert metrics.url == "https://prometheus.example.org"


def test_the_names_of_the_document_are_names(tmp_path: Path) -> None:
    (tmp_path / "names.yaml").write_text(blocks(DOCUMENT, "yaml")[1])
    assert known_names(tmp_path / "names.yaml").by_series["site_gpu_busy_ratio"].scale == 100


def test_the_command_of_the_document_is_the_one_that_test_doctor_metrics_runs() -> None:
    assert commands(DOCUMENT) == ["relight doctor metrics"]


def test_the_example_settings_show_every_key_with_its_default(tmp_path: Path) -> None:
    example = (REPOSITORY / "deploy" / "relight.example.yaml").read_text()
    section = re.search(r"^    # metrics:\n((?:    #   .*\n)+)", example, re.MULTILINE)
    assert section is not None
    shown = "".join(line[6:] + "\n" for line in section.group(0).splitlines())
    (tmp_path / "relight.yaml").write_text(
        "clusters:\n  - name: alpha\n" + re.sub("^", "    ", shown, flags=re.MULTILINE)
    )
    metrics = load_settings(tmp_path / "relight.yaml").clusters[0].metrics
    assert metrics is not None
    assert metrics == PrometheusSettings(kind="prometheus", url=metrics.url)
    assert set(re.findall(r"^  (\w+):", shown, re.MULTILINE)) == set(PrometheusSettings.model_fields)
