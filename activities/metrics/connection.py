"""HTTP to a store of metrics, through prometheus-api-client: who we are, how much we take, what its refusals mean.

The library is synchronous and reads whatever comes: this module runs in threads, and bounds each answer in size and
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from activities.metrics.settings import PrometheusSettings
from activities.stores.access import shown_address

MAX_ANSWER_BYTES = 32 << 20
PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
_CHUNK_BYTES = 64 << 10
_EXCERPT_BYTES = 160
_REMEDIES = {
    400: "check `url`, `labels`, `matchers` and `names_file`",
    401: "check `access` and whether the secret in its file is still good",
    403: "the account may not read this: check `access`, `headers` and the tenant in `url`",
    404: "check `url`: it is the address before /api/v1, with the tenant's path if there is one",
    405: "check `url`: this is no such store",
    413: "lower `window_s`, or raise the store's limits",
    422: "the store gave up: lower `window_s`, or raise its limits on samples and time",
    429: "raise the store's limits",
}


class MetricsUnreadable(Exception):
    """No usable answer. The message names the source and says what to do."""

    def __init__(self, what: str, remedy: str, pause_s: float = PAUSE_S) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy
        self.pause_s = pause_s
        """How long to leave the store alone."""


class PrometheusApi:
    """Asks one store. May be used by several threads."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._session = _Session(settings, self.shown)
        self._library = PrometheusConnect(
            settings.url.rstrip("/"), headers=dict(settings.headers), session=self._session, retry=0, method="POST"
        )

    @property
    def shown(self) -> str:
        """The store for people."""
        return f"{self._settings.name} at {shown_address(self._settings.url)}"

    def query(self, promql: str, at: datetime | None = None) -> list[object]:
        """Return the series that answer `promql` at a moment; now where none is given. Raises `MetricsUnreadable`."""
        # A store that knows only half says so with these, instead of giving it; VictoriaMetrics leaves out the newest
        # 30 s without the last. Others pass over what they don't know.
        params = {"deny_partial_response": "1", "partial_response": "false", "nocache": "1"}
        if at is not None:
            params["time"] = f"{at.timestamp():.3f}"
        try:
            found = self._library.custom_query(promql, params=params)
        except (KeyError, TypeError, ValueError) as error:
            raise MetricsUnreadable(f"{self.shown}: half an answer, or none of its API", "check `url`") from error
        except PrometheusApiClientException as error:
            raise MetricsUnreadable(f"{self.shown}: {str(error)[:_EXCERPT_BYTES]}", "check `url`") from error
        except (requests.RequestException, OSError) as error:
            raise self._no_answer(error) from error
        if not isinstance(found, list):
            raise MetricsUnreadable(f"{self.shown}: the answer is no list of series", "check `url`")
        return found

    def server_time(self) -> datetime | None:
        """Return the store's clock as its last answer told it; None where it did not."""
        return self._session.told_at

    def close(self) -> None:
        """Give up the connections."""
        self._session.close()

    def _no_answer(self, error: Exception) -> MetricsUnreadable:
        if isinstance(error, requests.Timeout | TimeoutError):
            return MetricsUnreadable(
                f"{self.shown}: no answer within {self._settings.timeout_s:g} s", "is it overloaded?"
            )
        why = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            return MetricsUnreadable(f"{self.shown}: its certificate is not trusted", "set `access.ca_file`")
        if isinstance(error, requests.exceptions.SSLError):
            return MetricsUnreadable(f"{self.shown}: TLS fails", "check `url` and `access.client_cert_file`")
        kind = "refused" if "refused" in why else type(error).__name__
        return MetricsUnreadable(f"{self.shown}: no answer ({kind})", "check `url` and that the store runs")


class _Session(requests.Session):
    """Sends queries in the body, because thousands of node names are too long for an address; reads secrets each time,
    for they are renewed; and looks at each answer before any of it is read."""

    def __init__(self, settings: PrometheusSettings, shown: str) -> None:
        super().__init__()
        self._settings = settings
        self._shown = shown
        self.told_at: datetime | None = None
        self.trust_env = False
        access = settings.access
        self.verify = str(access.ca_file) if access.ca_file else True
        if access.client_cert_file:
            key = access.client_key_file or access.client_cert_file
            self.cert = (str(access.client_cert_file), str(key))

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        until_s = time.monotonic() + self._settings.timeout_s

        def look(answer: requests.Response, **_: object) -> None:
            try:
                self._look(answer, until_s)
            except MetricsUnreadable:
                answer.close()
                raise

        kwargs["headers"] = {**(kwargs.get("headers") or {}), **self._authorization(), "User-Agent": "relight"}
        if method == "POST":
            kwargs["data"] = kwargs.pop("params", None)
        kwargs |= {"timeout": self._settings.timeout_s, "allow_redirects": False, "hooks": {"response": look}}
        return super().request(method, url, **kwargs)

    def _look(self, answer: requests.Response, until_s: float) -> None:
        """Refuse what is no answer, and let the library read no more of one than is bounded."""
        self.told_at = _date(answer.headers.get("date", ""))
        answer.raw = _Bounded(answer.raw, until_s, self._shown)
        if answer.status_code != requests.codes.ok:
            raise self._refusal(answer)
        if "html" in answer.headers.get("content-type", ""):
            raise MetricsUnreadable(
                f"{self._shown}: the answer is HTML", "is a login page or a proxy in between? check `url`"
            )

    def _refusal(self, answer: requests.Response) -> MetricsUnreadable:
        status = answer.status_code
        html = "html" in answer.headers.get("content-type", "")
        body = b"" if html else next(iter(answer.iter_content(_EXCERPT_BYTES)), b"")
        said = f"{self._shown}: HTTP {status}" + (
            f", {body[:_EXCERPT_BYTES].decode('utf-8', 'replace')!r}" if body else ""
        )
        if 300 <= status < 400:
            return MetricsUnreadable(f"{said}: it points elsewhere", "set `url` to where it is")
        remedy = _REMEDIES.get(status, "see the store's own log" if status >= 500 else "check `url`")
        return MetricsUnreadable(said, remedy, _pause_s(answer.headers.get("retry-after", "")))

    def _authorization(self) -> dict[str, str]:
        try:
            return self._settings.access.authorization()
        except (OSError, UnicodeError) as error:
            raise MetricsUnreadable(
                f"{self._shown}: a secret of `access` can't be read: {error}", "see its path"
            ) from error


class _Raw(Protocol):
    """The part of urllib3's answers that is read."""

    def read1(self, amt: int, *, decode_content: bool) -> bytes: ...

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


class _Bounded:
    """An answer that ends with an error when it is too long or drips."""

    def __init__(self, raw: _Raw, until_s: float, shown: str) -> None:
        self._raw = raw
        self._until_s = until_s
        self._shown = shown

    def stream(self, _amount: int, *, decode_content: bool = True) -> Iterator[bytes]:
        """Yield what arrives, as it arrives."""
        size, whole = 0, False
        try:
            while part := self._raw.read1(_CHUNK_BYTES, decode_content=decode_content):
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise MetricsUnreadable(
                        f"{self._shown}: an answer has more than {MAX_ANSWER_BYTES >> 20} MiB", "lower `window_s`"
                    )
                if time.monotonic() > self._until_s:
                    raise requests.exceptions.ReadTimeout
                yield part
            whole = True
        finally:
            if not whole:
                self._raw.close()

    def release_conn(self) -> None:
        self._raw.release_conn()

    def close(self) -> None:
        self._raw.close()


def _date(header: str) -> datetime | None:
    try:
        return datetime.strptime(header, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None


def _pause_s(retry_after: str) -> float:
    return min(LONGEST_PAUSE_S, max(PAUSE_S, float(retry_after))) if retry_after.isdecimal() else PAUSE_S
