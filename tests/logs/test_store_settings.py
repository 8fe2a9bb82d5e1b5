from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from activities.logs.files import FileTail
from activities.logs.merged import MergedLogs
from activities.logs.stores.source import StoreLogs
from tests.docs.blocks import blocks
from workers.log_sources import open_log_source
from workers.settings import ClusterSettings, SettingsError, load_settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "relight.example.yaml"
LOKI = {"kind": "loki", "url": "http://127.0.0.1:3100"}
VICTORIALOGS = {"kind": "victorialogs", "url": "http://127.0.0.1:9428"}


def load(directory: Path, *logs: object) -> ClusterSettings:
    file = directory / "relight.yaml"
    file.write_text(yaml.safe_dump({"clusters": [{"name": "alpha", "logs": list(logs)}]}))
    (cluster,) = load_settings(file).clusters
    return cluster


def keys(model: BaseModel) -> dict[str, object]:
    """All keys of a section, and of those below it."""
    values = ((name, getattr(model, name)) for name in type(model).model_fields)
    return {name: keys(value) if isinstance(value, BaseModel) else value for name, value in values}


@pytest.mark.parametrize("kind", ["loki", "victorialogs"])
def test_the_example_shows_every_key_of_a_store_and_its_true_default(kind: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^    # logs:\n((?:    #   .*\n)+)", EXAMPLE.read_text(), re.MULTILINE)
    (shown,) = next(
        found
        for text in blocks
        if (found := yaml.safe_load(re.sub("^    # ", "", text, flags=re.MULTILINE)))[0]["kind"] == kind
    )
    (read,) = load(tmp_path, shown).logs
    (plain,) = load(tmp_path, {"kind": kind, "url": shown["url"], "name": kind}).logs
    assert shown == keys(plain)
    assert read == plain


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([{**LOKI, "url": "loki.example.org"}], "url"),
        ([{**LOKI, "labels": {"job_id": 'x"} or {'}}], "job_id"),
        ([{**LOKI, "tenant": "a\r\nX-Evil: 1"}], "tenant"),
        ([{**LOKI, "access": {"username": "me"}}], "password_file"),
        ([{**LOKI, "access": {"client_key_file": "/k"}}], "client_cert_file"),
        ([LOKI, LOKI], "called loki"),
        ([{"kind": "elastic"}], "kind"),
        ([], "logs"),
    ],
)
def test_a_wrong_setting_is_told_by_its_key(wrong: list[object], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, *wrong)
    assert said in str(refused.value)


async def test_settings_choose_the_source(tmp_path: Path) -> None:
    async with open_log_source(ClusterSettings(name="alpha")) as files:
        assert isinstance(files, FileTail)
    async with open_log_source(load(tmp_path, VICTORIALOGS)) as store:
        assert isinstance(store, StoreLogs)
    async with open_log_source(load(tmp_path, LOKI, {"kind": "files"})) as merged:
        assert isinstance(merged, MergedLogs)
        assert [merged.family(source) for source in ("loki:1", "/log", "elastic:1")] == ["loki", "files", ""]


def test_the_settings_in_the_documentation_load(tmp_path: Path) -> None:
    (shown,) = blocks("docs/log-stores.md", "yaml")
    (tmp_path / "relight.yaml").write_text(shown)
    (cluster,) = load_settings(tmp_path / "relight.yaml").clusters
    assert [each.called for each in cluster.logs] == ["loki", "files"]
