"""A cluster behind a login host, as an operator writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from activities.scheduler.login_host import LoginHost
from workers.scheduler_settings import SshScheduler
from workers.settings import load_settings
from workers.settings_errors import SettingsError


def loaded(tmp_path: Path, **scheduler: Any) -> SshScheduler:
    file = tmp_path / "relight.yaml"
    settings = {"kind": "ssh", "hosts": ["login1"], "user": "relight", **scheduler}
    file.write_text(yaml.safe_dump({"clusters": [{"name": "alpha", "scheduler": settings}]}))
    found = load_settings(file).clusters[0].scheduler
    assert isinstance(found, SshScheduler)
    return found


def test_hosts_are_names_addresses_and_ports(tmp_path: Path) -> None:
    found = loaded(tmp_path, hosts=["login1", "10.0.0.7:2222", "[2001:db8::7]:22", "[::1]"], proxy_jump="me@gate:2022")
    assert found.hosts == (
        LoginHost(host="login1"),
        LoginHost(host="10.0.0.7", port=2222),
        LoginHost(host="2001:db8::7"),
        LoginHost(host="::1"),
    )
    assert found.proxy_jump == LoginHost(host="gate", port=2022, user="me")


def test_the_hosts_are_checked_against_the_accounts_own_known_hosts_unless_another_file_is_named(
    tmp_path: Path,
) -> None:
    assert loaded(tmp_path).known_hosts == Path.home() / ".ssh" / "known_hosts"
    assert loaded(tmp_path, known_hosts="~/hosts").known_hosts == Path.home() / "hosts"


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ({"hosts": []}, "scheduler.hosts"),
        ({"hosts": ["-oProxyCommand=id"]}, "scheduler.hosts.0: should be a host"),
        ({"hosts": ["login1:ssh"]}, "scheduler.hosts.0: should be a host"),
        ({"hosts": ["login1:70000"]}, "scheduler.hosts.0"),
        ({"user": "a b"}, "scheduler.user"),
        ({"known_hosts": None}, "scheduler.known_hosts"),
        ({"proxy_jump": "a,b"}, "scheduler.proxy_jump: should be a host"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, scheduler: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, **scheduler)
    assert said in refused.value.message
    assert "\n" not in refused.value.message
