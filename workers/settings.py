"""What an operator sets: one YAML file and the environment. Every default is safe: nothing in Slurm is changed.

The file is ``--config``, else ``RELIGHT_CONFIG``, else ``./relight.yaml`` when it is there. A variable such as
``RELIGHT_TELEMETRY__OTLP_ENDPOINT`` sets one key, two underscores standing for a dot, and wins over the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from activities.attribution.settings import AttributionSettings
from activities.evidence_settings import EvidenceSettings
from activities.metrics.settings import PrometheusSettings
from activities.stores.access import LocalPath
from recovery.detection.settings import DetectionSettings
from recovery.governor import GovernorSettings
from recovery.model import Mode
from recovery.policy.settings import PolicySettings
from recovery.redaction import MOST_SITE_PATTERNS, SitePattern
from workers.log_settings import FileLogs, LogsSettings
from workers.scheduler_settings import AnyScheduler, CliScheduler
from workers.settings_errors import SettingsError, describe, unknown_variable
from workers.settings_file import read_settings_file
from workers.settings_section import Port, Section

if TYPE_CHECKING:
    from temporalio.envconfig import ClientConnectConfig

ENV_PREFIX = "RELIGHT_"
CONFIG_VARIABLE = "RELIGHT_CONFIG"
DEFAULT_FILE = Path("relight.yaml")

__all__ = ["Settings", "SettingsError", "load_settings"]


class TemporalSettings(Section):
    """Which Temporal server to use.

    What is empty here comes from Temporal's own client configuration (its TOML profiles and the variables
    ``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE``, ``TEMPORAL_API_KEY``, ``TEMPORAL_TLS_*``): mTLS and API keys belong
    there.
    """

    address: str = Field(default="", pattern=r"^([^\s/]+:[0-9]{1,5})?$")
    """Host and port."""
    namespace: str = ""
    profile: str = ""
    """Name of a profile in Temporal's client configuration."""
    ui_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Where people open Temporal's web UI; only printed and linked."""

    def connect_config(self, embedded_address: str = "") -> ClientConnectConfig:
        """Return what `temporalio.client.Client.connect` takes: these settings over Temporal's own configuration, then
        `embedded_address`, then Temporal's defaults."""
        from temporalio.envconfig import ClientConfig

        config = ClientConfig.load_client_connect_config(profile=self.profile or None)
        config["target_host"] = self.address or config.get("target_host") or embedded_address or "127.0.0.1:7233"
        config["namespace"] = self.namespace or config.get("namespace") or "default"
        return config


class EmbeddedSettings(Section):
    """The servers that `relight up` starts. Port 0: the one used last time, else any free one."""

    temporal_port: Port = 7233
    temporal_ui_port: Port = 8233
    postgres_port: Port = 0


def _postgres_dsn(dsn: SecretStr) -> SecretStr:
    if dsn.get_secret_value() and not dsn.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError("should start with postgresql://")
    return dsn


class AuditSettings(Section):
    """Where the audit trail is kept."""

    dsn: Annotated[SecretStr, AfterValidator(_postgres_dsn)] = SecretStr("")
    """PostgreSQL connection string. Empty: the embedded one under `relight up`, and no audit trail otherwise."""


class TelemetrySettings(Section):
    """Where traces and metrics go."""

    otlp_endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Base address of an OTLP/HTTP receiver, such as ``http://127.0.0.1:4318``. Empty: nothing is exported."""


def _web_address(url: SecretStr) -> SecretStr:
    if url.get_secret_value() and not url.get_secret_value().startswith(("https://", "http://")):
        raise ValueError("should start with https://")
    return url


class NotifySettings(Section):
    """Where people are told of failures, of a tripped governor, and of a pause; many failures make one message."""

    webhook_url: Annotated[SecretStr, AfterValidator(_web_address)] = SecretStr("")
    """An incoming webhook that takes JSON with ``text``, such as Slack's. Empty: only the worker's log tells."""


def _masks(pattern: str) -> str:
    SitePattern(pattern)
    return pattern


class RedactionSettings(Section):
    """What is masked beside the tokens, keys and passwords that are known everywhere."""

    patterns: tuple[Annotated[str, AfterValidator(_masks)], ...] = Field(default=(), max_length=MOST_SITE_PATTERNS)
    """RE2. What one matches is masked in all that is stored or shown, or of it only a group named ``secret``."""


class WatchdogSettings(Section):
    """The watchdog's own gate and times: it works while everything else is dead, so it goes by nothing else's."""

    mode: Mode = Mode.OBSERVE
    acknowledge_scheduler_actions: bool = False
    """The operator knows that the watchdog will release holds here. Without it, mode act stays observe."""
    deadline_s: float = Field(default=300.0, ge=30, le=86_400)
    """How long a job may be held because of us."""
    interval_s: float = Field(default=30.0, ge=1, le=3_600)

    @property
    def effective_mode(self) -> Mode:
        """How far the operator lets the watchdog go on this cluster."""
        return self.mode if self.acknowledge_scheduler_actions else Mode.OBSERVE


class ClusterSettings(Section):
    """One Slurm cluster."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    """Names workflows and task queues; keep it as Slurm's ClusterName."""
    scheduler: AnyScheduler = CliScheduler()
    mode: Mode = Mode.OBSERVE
    acknowledge_scheduler_actions: bool = False
    """The operator knows that relight will hold, requeue and cancel jobs here. Without it, mode act stays observe."""
    act_partitions: tuple[str, ...] = ()
    """Act only on jobs of these partitions, and observe the others. Empty: no partition is left out."""
    environment: str = Field(default="", max_length=64)
    """Which environment's jobs to look after, such as ``prod``; a job that names another is left alone. Empty: all."""
    partitions: tuple[str, ...] = ()
    """Only jobs of these partitions. Empty: all."""
    poll_interval_s: float = Field(default=2.0, ge=0.2, le=300)
    """How often slurmctld is asked for all jobs, in one call. When it answers slowly it is asked less often."""
    max_calls_per_s: float = Field(default=20.0, ge=1, le=1_000)
    """At most so many calls to the scheduler, of all kinds and in the long run; each waits for its turn."""
    logs: LogsSettings = (FileLogs(),)
    """Where jobs' lines are read. The first that can be read is believed; the others stand in for it."""
    metrics: PrometheusSettings | None = None
    """The store that knows the nodes' and GPUs' metrics, as evidence. None: verdicts are made from lines alone."""
    attribution: AttributionSettings | None = None
    """The service of the site that is asked for a second opinion on each failure. None: nobody is."""
    detection: DetectionSettings = DetectionSettings()
    policy: PolicySettings = PolicySettings()
    evidence: EvidenceSettings = EvidenceSettings()
    governor: GovernorSettings = GovernorSettings()
    watchdog: WatchdogSettings = WatchdogSettings()

    @property
    def effective_mode(self) -> Mode:
        """How far the operator lets us go on this cluster."""
        return self.mode if self.acknowledge_scheduler_actions else Mode.OBSERVE


class Settings(BaseSettings):
    """All settings of a relight process. Make one with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    state_dir: LocalPath = Path(".relight")
    """Directory of the embedded servers' state. A relative path in the file is relative to the file."""
    temporal: TemporalSettings = TemporalSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    audit: AuditSettings = AuditSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    notify: NotifySettings = NotifySettings()
    redaction: RedactionSettings = RedactionSettings()
    signatures: tuple[LocalPath, ...] = ()
    """Catalogue files of the site's own, in front of the packaged one. A relative path is relative to the file."""
    clusters: tuple[ClusterSettings, ...] = ()

    @field_validator("clusters")
    @classmethod
    def _named_apart(cls, clusters: tuple[ClusterSettings, ...]) -> tuple[ClusterSettings, ...]:
        names = [cluster.name for cluster in clusters]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two clusters are named {twice[0]}")
        return clusters

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content comes in as keyword arguments."""
        return env_settings, init_settings


def load_settings(config: Path | None = None) -> Settings:
    """Read the settings file and the environment.

    Raises `SettingsError` for a file that is named but missing, for anything unreadable, and for every unknown key.
    """
    file = _settings_file(config)
    content = _anchored(read_settings_file(file), file) if file else {}
    _refuse_unknown_variables()
    try:
        return Settings(**content)
    except UnreadableVariable as error:
        raise SettingsError(
            f"an environment variable does not hold JSON: {error}", "set single keys, such as RELIGHT_AUDIT__DSN"
        ) from error
    except ValidationError as error:
        raise describe(error, Settings, content, file, ENV_PREFIX) from error


def _settings_file(config: Path | None) -> Path | None:
    named = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    if named is not None:
        return named
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _anchored(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """Make paths relative to the file, so that they do not depend on where relight is started."""
    folder = file.absolute().parent
    state_dir, signatures = content.get("state_dir"), content.get("signatures")
    if isinstance(state_dir, str):
        content = content | {"state_dir": str(folder / Path(state_dir).expanduser())}
    if isinstance(signatures, list):
        places = [str(folder / Path(each).expanduser()) if isinstance(each, str) else each for each in signatures]
        content = content | {"signatures": places}
    return content


def _refuse_unknown_variables() -> None:
    """pydantic-settings passes over a variable whose first word is no setting; a typing slip must not be lost."""
    for variable in sorted(os.environ):
        name = variable.removeprefix(ENV_PREFIX)
        if (
            name != variable
            and variable != CONFIG_VARIABLE
            and name.split("__")[0].lower() not in Settings.model_fields
        ):
            raise unknown_variable(variable, Settings, ENV_PREFIX)
