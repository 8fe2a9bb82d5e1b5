"""What we ship for deployment, held against the settings, the command line and the code it speaks of."""

import configparser
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from recovery.model import Mode
from tests.embedded.places import open_directory
from workers.embedded.temporal import EmbeddedTemporal
from workers.settings import Settings, load_settings

TOP = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((TOP / "docker-compose.yml").read_text())
EXAMPLE = TOP / "deploy" / "relight.example.yaml"
SCRIPTS = TOP / "deploy" / "compose"
CONTAINERFILE = (TOP / "deploy" / "Containerfile").read_text()
UNITS = sorted((TOP / "deploy" / "systemd").glob("*.service"))


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ:
        if variable.startswith("RELIGHT_"):
            monkeypatch.delenv(variable)


def substituted(text: str) -> str:
    """What compose makes of ``${POSTGRES_PASSWORD...}``."""
    return re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", "s3cret", text)


def said_by_relight(arguments: list[str], **variables: str) -> str:
    """What `relight` says on stderr with `arguments`: with a settings file that is not there, it ends at reading it."""
    program = Path(sys.executable).parent / "relight"
    environment = {"PATH": os.environ["PATH"], **variables}
    finished = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert finished.returncode == 1
    return finished.stderr


def test_the_example_is_valid_and_observes() -> None:
    found = load_settings(EXAMPLE)
    assert found.clusters
    assert {cluster.effective_mode for cluster in found.clusters} == {Mode.OBSERVE}


def test_the_example_shows_every_key_outside_the_domains_own_sections_and_the_true_defaults() -> None:
    shown = yaml.safe_load(EXAMPLE.read_text())
    assert set(shown) == set(Settings.model_fields)
    for section in ("temporal", "embedded", "audit", "telemetry", "notify"):
        assert set(shown[section]) == set(Settings.model_fields[section].annotation.model_fields)  # type: ignore[union-attr]
    (cluster,) = load_settings(EXAMPLE).clusters
    assert set(shown["clusters"][0]) == set(type(cluster).model_fields)
    assert cluster == type(cluster)(name=cluster.name)


def test_the_example_shows_every_key_of_the_other_transports_too_and_their_true_defaults(tmp_path: Path) -> None:
    alternatives = re.findall(r"^    # scheduler:\n((?:    #   .*\n)+)", EXAMPLE.read_text(), re.MULTILINE)
    assert alternatives
    for text in alternatives:
        shown = yaml.safe_load(text.replace("    #   ", ""))
        file = tmp_path / "relight.yaml"
        file.write_text(yaml.safe_dump({"clusters": [{"name": "alpha", "scheduler": shown}]}))
        (cluster,) = load_settings(file).clusters
        fields = type(cluster.scheduler).model_fields
        assert set(shown) == set(fields)
        needed = {key: value for key, value in shown.items() if fields[key].is_required()}
        assert cluster.scheduler == type(cluster.scheduler).model_validate(needed)


def test_compose_gives_the_worker_settings_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = COMPOSE["services"]["worker"]
    for name, value in worker["environment"].items():
        monkeypatch.setenv(name, substituted(str(value)))
    mount = next(volume for volume in worker["volumes"] if volume["target"] == worker["environment"]["RELIGHT_CONFIG"])
    assert mount["source"] == "./relight.yaml"
    found = load_settings(EXAMPLE)
    assert found.temporal.address == "temporal:7233"
    assert found.audit.dsn.get_secret_value() == "postgresql://relight:s3cret@postgres:5432/relight"


def test_composes_addresses_and_accounts_name_its_own_services() -> None:
    services = COMPOSE["services"]
    database = services["postgres"]["environment"]
    assert services["worker"]["environment"]["RELIGHT_AUDIT__DSN"].endswith(f"@postgres:5432/{database['POSTGRES_DB']}")
    assert services["temporal"]["environment"]["POSTGRES_SEEDS"] == "postgres"
    assert services["temporal"]["environment"]["POSTGRES_USER"] == database["POSTGRES_USER"]
    assert services["temporal-schema"]["environment"]["SQL_USER"] == database["POSTGRES_USER"]
    for name, service in services.items():
        for dependency in service.get("depends_on", {}):
            assert dependency in services, f"{name} depends on {dependency}"


def test_compose_runs_the_worker_with_the_file_that_it_mounts() -> None:
    worker = COMPOSE["services"]["worker"]
    variables = {name: substituted(str(value)) for name, value in worker["environment"].items()}
    assert "/etc/relight/relight.yaml can't be read" in said_by_relight(worker["command"], **variables)


def test_compose_keeps_the_workers_state_in_a_volume_that_the_worker_may_write_to() -> None:
    worker = COMPOSE["services"]["worker"]
    state_dir = worker["environment"]["RELIGHT_STATE_DIR"]
    mount = next(volume for volume in worker["volumes"] if volume["target"] == state_dir)
    assert mount["type"] == "volume"
    assert mount["source"] in COMPOSE["volumes"]
    home, _, name = state_dir.rpartition("/")
    assert f"USER relight\nWORKDIR {home}\n" in CONTAINERFILE
    assert f"\nRUN mkdir {name}\n" in CONTAINERFILE, "a new volume takes its owner from there"


def test_nothing_in_compose_listens_beyond_the_host() -> None:
    for name, service in COMPOSE["services"].items():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_every_image_is_pinned_and_none_is_the_deprecated_all_in_one() -> None:
    images = [service["image"] for service in COMPOSE["services"].values() if "image" in service]
    assert all(":" in image and not image.endswith(":latest") for image in images)
    assert not any("auto-setup" in image for image in images)


def test_every_file_that_compose_mounts_or_builds_from_is_in_the_repository() -> None:
    made_by_the_operator = {"./relight.yaml"}
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            if source.startswith("./") and source not in made_by_the_operator:
                assert (TOP / source).exists(), source
        if config := service.get("environment", {}).get("DYNAMIC_CONFIG_FILE_PATH"):
            assert (SCRIPTS / Path(config).name).exists()
        if service.get("entrypoint"):
            assert (SCRIPTS / Path(service["entrypoint"][-1]).name).exists()
    build: dict[str, Any] = COMPOSE["services"]["worker"]["build"]
    assert (TOP / build["dockerfile"]).exists()


def test_no_password_is_written_in_compose() -> None:
    for service in COMPOSE["services"].values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or name == "POSTGRES_PWD":
                assert str(value).startswith("${POSTGRES_PASSWORD:?"), name


@pytest.mark.temporal
async def test_the_namespace_script_registers_what_the_workflows_set_and_may_run_again() -> None:
    from workflows.visibility import ALL_KEYS

    with open_directory() as directory:
        async with EmbeddedTemporal(directory / "temporal") as server:
            environment = {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(directory),
                "TEMPORAL_ADDRESS": server.address,
                "TEMPORAL_NAMESPACE": "fleet",
            }
            for _ in range(2):
                script = ["/bin/sh", str(SCRIPTS / "temporal-namespace.sh")]
                subprocess.run(script, env=environment, check=True, capture_output=True, timeout=60)
            client = await Client.connect(server.address, namespace="fleet")
            listing = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace="fleet")
            )
    registered = {name: int(kind) for name, kind in listing.custom_attributes.items()}
    assert {key.name: int(key.indexed_value_type) for key in ALL_KEYS}.items() <= registered.items()


def test_the_schema_script_prepares_both_of_temporals_databases(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\n')
    tool.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SQL_HOST": "postgres", "SQL_USER": "relight"}
    subprocess.run(["/bin/sh", str(SCRIPTS / "temporal-schema.sh")], env=environment, check=True, timeout=10)
    told = calls.read_text().splitlines()
    for database, schema in (("temporal", "temporal"), ("temporal_visibility", "visibility")):
        verbs = [line for line in told if f"--db {database} " in f"{line} "]
        assert [verb in line for verb, line in zip(("create", "setup-schema", "update-schema"), verbs, strict=True)]
        assert verbs[-1].endswith(f"/{schema}/versioned")


def test_the_container_runs_locked_packages_under_an_account_of_its_own() -> None:
    assert "--require-hashes --requirement /tmp/runtime.lock" in CONTAINERFILE
    final = CONTAINERFILE.split("FROM ")[-1]
    assert re.search(r"^USER (?!root|0)\w+$", final, re.MULTILINE)
    assert final.index("pip install") < final.index("USER relight") < final.index("ENTRYPOINT")


def test_the_container_copies_only_what_is_there_and_all_packages() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    missing = [name for name in names if not (TOP / name).exists()]
    assert not missing
    assert {"recovery", "activities", "workflows", "workers"} <= set(names)


def test_the_container_runs_the_worker_unless_told_otherwise() -> None:
    default = re.search(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert default is not None
    assert "no-such.yaml can't be read" in said_by_relight(json.loads(default[1]), RELIGHT_CONFIG="no-such.yaml")


def read_unit(unit: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_its_process_with_settings_that_it_knows(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = read_unit(unit)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "relight"
    assert f"relight-{arguments[-1]}" == unit.stem
    assert "/etc/relight/relight.yaml can't be read" in said_by_relight(arguments)
    for assignment in shlex.split(service["Environment"]):
        monkeypatch.setenv(*assignment.split("=", 1))
    assert load_settings(EXAMPLE).state_dir == Path("/var/lib") / service["StateDirectory"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to check the unit with")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "relight"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/relight/bin/relight", str(program)))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False, timeout=30
    )
    ours = [line for line in said.stderr.splitlines() if unit.name in line]
    assert not ours, said.stderr


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = TOP / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    lines = script.read_text().splitlines()
    assert lines[:2] == ["#!/usr/bin/env bash", "set -euo pipefail"]
    assert lines[-1] == "exec make test"


def test_pre_commit_needs_no_network() -> None:
    config = yaml.safe_load((TOP / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert (TOP / shlex.split(hook["entry"])[0]).exists()


def test_the_licence_is_the_one_that_the_package_names() -> None:
    text = (TOP / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
