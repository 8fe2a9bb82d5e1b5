"""What deploy/rest/README.md and the example settings say of slurmrestd holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from activities.scheduler.rest_versions import KNOWN, newest_known
from tests.docs.blocks import REPOSITORY, blocks
from tests.rest.server import PATHS_OF_26_05
from tests.rest.test_versions import offering
from workers.scheduler_settings import RestScheduler
from workers.settings import SettingsError, load_settings

README = "deploy/rest/README.md"
EXAMPLE = (REPOSITORY / "deploy" / "relight.example.yaml").read_text()


def test_its_settings_are_settings(tmp_path: Path) -> None:
    for shown in blocks(README, "yaml"):
        (tmp_path / "relight.yaml").write_text(shown)
        (cluster,) = load_settings(tmp_path / "relight.yaml").clusters
        assert isinstance(cluster.scheduler, RestScheduler)


def test_its_table_says_of_each_version_what_relight_does() -> None:
    rows = re.findall(
        r"^\| (v[\d.]+)(?: to (v[\d.]+))? \|[^|]+\| yes \| yes \| (\w+) \| (\w+) \|$", table(), re.MULTILINE
    )
    told = {
        name: (updates == "yes", requeues == "yes")
        for first, last, updates, requeues in rows
        for name in KNOWN[KNOWN.index(first) : KNOWN.index(last or first) + 1]
    }
    assert tuple(told) == KNOWN
    for name, (updates, requeues) in told.items():
        paths = [path for path in (*PATHS_OF_26_05, f"/slurm/{name}/jobs/") if name in path]
        version = newest_known(offering(*paths), "it")
        assert (version.name, version.updates, version.requeues) == (name, updates, requeues)


def table() -> str:
    return (REPOSITORY / README).read_text()


def test_the_example_shows_every_key_with_its_default() -> None:
    section = re.search(
        r"^    # scheduler:\n((?:    #   .*\n)*?    #   kind: rest\n(?:    #   .*\n)*)", EXAMPLE, re.MULTILINE
    )
    assert section is not None
    shown = yaml.safe_load(re.sub(r"^    #   ", "", section[1], flags=re.MULTILINE))
    assert set(shown) == set(RestScheduler.model_fields)
    assert RestScheduler(**shown) == RestScheduler(kind="rest", url=shown["url"])


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ({"url": "slurm.example.org:6820"}, "url"),
        ({"url": "https://root:secret@slurm.example.org"}, "url"),
        ({"url": "unix:run/slurmrestd.sock"}, "url"),
        ({}, "url"),
        ({"url": "http://c", "token_file": "/t", "token_variable": "SLURM_JWT"}, "set one of token_file"),
        ({"url": "http://c", "client_key_file": "/key"}, "client_key_file needs client_cert_file"),
        ({"url": "http://c", "token": "eyJ"}, "token is not a known key"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, scheduler: dict[str, str], words: str) -> None:
    cluster = {"name": "alpha", "scheduler": {"kind": "rest", **scheduler}}
    (tmp_path / "relight.yaml").write_text(yaml.safe_dump({"clusters": [cluster]}))
    with pytest.raises(SettingsError, match=words):
        load_settings(tmp_path / "relight.yaml")
