"""Settings as an operator writes them: a file, the environment, and mistakes in both."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.model import Mode
from workers.scheduler_settings import CliScheduler, SimulatedScheduler
from workers.settings import Settings, load_settings
from workers.settings_errors import SettingsError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in os.environ:
        if variable.startswith(("RELIGHT_", "TEMPORAL_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "no-profiles.toml"))
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, content: Any) -> Path:
    file = tmp_path / "relight.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def refusal(file: Path | None) -> SettingsError:
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert "\n" not in refused.value.message
    return refused.value


def test_without_a_file_the_defaults_are_safe() -> None:
    found = load_settings()
    assert found.clusters == ()
    assert found.audit.dsn.get_secret_value() == ""
    assert found.telemetry.otlp_endpoint == ""


def test_a_cluster_is_observed_until_the_operator_says_more(tmp_path: Path) -> None:
    (cluster,) = load_settings(written(tmp_path, {"clusters": [{"name": "alpha"}]})).clusters
    assert cluster.mode is Mode.OBSERVE
    assert cluster.effective_mode is Mode.OBSERVE
    assert isinstance(cluster.scheduler, CliScheduler)


@pytest.mark.parametrize(
    ("mode", "acknowledged", "effective"),
    [
        ("act", True, Mode.ACT),
        ("act", False, Mode.OBSERVE),
        ("observe", True, Mode.OBSERVE),
        ("observe", False, Mode.OBSERVE),
    ],
)
def test_acting_needs_the_mode_and_the_acknowledgement(
    tmp_path: Path, mode: str, acknowledged: bool, effective: Mode
) -> None:
    content = {"clusters": [{"name": "alpha", "mode": mode, "acknowledge_scheduler_actions": acknowledged}]}
    (cluster,) = load_settings(written(tmp_path, content)).clusters
    assert cluster.effective_mode is effective


def test_the_kind_of_scheduler_decides_what_else_it_takes(tmp_path: Path) -> None:
    content = {"clusters": [{"name": "demo", "scheduler": {"kind": "simulated", "socket": "/run/demo.sock"}}]}
    (cluster,) = load_settings(written(tmp_path, content)).clusters
    assert cluster.scheduler == SimulatedScheduler(kind="simulated", socket=Path("/run/demo.sock"))


@pytest.mark.parametrize(
    ("content", "key", "nearest"),
    [
        ({"clustres": []}, "clustres", "clusters"),
        ({"telemetry": {"otlp_endpont": ""}}, "telemetry.otlp_endpont", "telemetry.otlp_endpoint"),
        ({"clusters": [{"name": "a"}, {"name": "b", "modee": "act"}]}, "clusters.1.modee", "clusters.1.mode"),
        (
            {"clusters": [{"name": "a", "scheduler": {"kind": "cli", "slurm_cnf": ""}}]},
            "clusters.0.scheduler.slurm_cnf",
            "clusters.0.scheduler.slurm_conf",
        ),
        (
            {"clusters": [{"name": "a", "policy": {"budgets": {"user-code": 1}}}]},
            "clusters.0.policy.budgets.user-code",
            "clusters.0.policy.budgets.user_code",
        ),
        (
            {"clusters": [{"name": "a", "detection": {"hang_flor_s": 1}}]},
            "clusters.0.detection.hang_flor_s",
            "clusters.0.detection.hang_floor_s",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_file_and_the_nearest_valid_key(
    tmp_path: Path, content: Any, key: str, nearest: str
) -> None:
    file = written(tmp_path, content)
    refused = refusal(file)
    assert refused.message == f"{file}: {key} is not a known key"
    assert refused.hint == f"did you mean {nearest}?"


def test_an_unknown_key_that_is_like_no_other_gets_the_list_of_keys(tmp_path: Path) -> None:
    refused = refusal(written(tmp_path, {"audit": {"zzzzzz": 1}}))
    assert refused.hint == "the keys there are dsn"


@pytest.mark.parametrize(
    ("variable", "message", "hint"),
    [
        ("RELIGHT_TELEMETRI__OTLP_ENDPOINT", "is not a known variable", "did you mean RELIGHT_TELEMETRY?"),
        ("RELIGHT_AUDIT__DNS", "is not a known key", "did you mean RELIGHT_AUDIT__DSN?"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, message: str, hint: str
) -> None:
    monkeypatch.setenv(variable, "x")
    refused = refusal(None)
    assert refused.message == f"{variable} {message}"
    assert refused.hint == hint


def test_an_unknown_key_inside_a_variable_that_holds_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_CLUSTERS", '[{"name": "a", "moode": "act"}]')
    assert refusal(None).message == "RELIGHT_CLUSTERS (clusters.0.moode) is not a known key"


def test_the_environment_wins_over_the_file_key_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_TEMPORAL__ADDRESS", "temporal:7233")
    content = {"temporal": {"address": "elsewhere:1", "ui_url": "http://ui"}}
    found = load_settings(written(tmp_path, content))
    assert found.temporal.address == "temporal:7233"
    assert found.temporal.ui_url == "http://ui"


def test_the_file_is_found_by_option_then_by_variable_then_where_relight_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable"):
        (tmp_path / f"{name}.yaml").write_text(f"temporal: {{namespace: {name}}}")
    written(tmp_path, {"temporal": {"namespace": "here"}})
    assert load_settings().temporal.namespace == "here"
    monkeypatch.setenv("RELIGHT_CONFIG", "variable.yaml")
    assert load_settings().temporal.namespace == "variable"
    assert load_settings(Path("option.yaml")).temporal.namespace == "option"


def test_the_state_directory_is_relative_to_the_file_and_not_to_where_relight_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, {"state_dir": "state"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_settings(file).state_dir == tmp_path / "state"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("audit: [", "line 1"),
        ("audit: {}\naudit: {}", "line 2: the key audit is there twice"),
        ("? [a]\n: b", "line 1: found unhashable key"),
        ("- alpha", "holds a list, not keys with values"),
        ("clusters: [{name: a}, {name: a}]", "two clusters are named a"),
        ("clusters: [{name: '../x'}]", "clusters.0.name"),
        ("clusters: [{mode: act}]", "clusters.0.name: Field required"),
        ("clusters: [{name: a, mode: acting}]", "clusters.0.mode"),
        ("clusters: [{name: a, scheduler: {kind: pbs}}]", "clusters.0.scheduler"),
        ("clusters: [{name: a, poll_interval_s: 0}]", "clusters.0.poll_interval_s"),
        ("audit: {dsn: 'mysql://x'}", "audit.dsn: should start with postgresql://"),
        ("temporal: {address: 'http://x'}", "temporal.address"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    refused = refusal(file)
    assert str(file) in refused.message
    assert said in refused.message
    assert refused.hint


def test_a_file_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.yaml").message


def test_a_variable_that_should_hold_json_and_does_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_CLUSTERS", "alpha")
    assert "clusters" in refusal(None).message


def test_the_databases_password_shows_in_no_printout_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_AUDIT__DSN", "postgresql://relight:hunter2@db/relight")
    assert "hunter2" not in repr(load_settings())
    monkeypatch.setenv("RELIGHT_AUDIT__DSN", "mysql://relight:hunter2@db/relight")
    refused = refusal(None)
    assert "hunter2" not in f"{refused.message} {refused.hint}"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "# nothing\n")) == load_settings()


def test_temporals_own_configuration_fills_in_what_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "from-temporal:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "prod")
    found = load_settings().temporal.connect_config("127.0.0.1:40000")
    assert (found["target_host"], found["namespace"]) == ("from-temporal:7233", "prod")
    monkeypatch.setenv("RELIGHT_TEMPORAL__ADDRESS", "ours:7233")
    assert load_settings().temporal.connect_config()["target_host"] == "ours:7233"


def test_with_nothing_set_the_embedded_server_is_used_and_else_temporals_default_port() -> None:
    temporal = load_settings().temporal
    assert temporal.connect_config("127.0.0.1:40000")["target_host"] == "127.0.0.1:40000"
    assert temporal.connect_config()["target_host"] == "127.0.0.1:7233"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.just("name"), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    st.sampled_from(sorted(Settings.model_fields)),
)
def test_whatever_a_file_holds_it_is_settings_or_a_settings_error(tmp_path: Path, value: Any, key: str) -> None:
    file = written(tmp_path, {key: value})
    with contextlib.suppress(SettingsError):
        load_settings(file)


def test_a_pattern_to_mask_that_cannot_be_used_is_told_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "relight.yaml"
    file.write_text("redaction: {patterns: ['corp-[a-z]+', 'x*']}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert "redaction.patterns" in str(refused.value)
    assert "'x*' matches everything or nothing at all; make it narrower" in str(refused.value)
