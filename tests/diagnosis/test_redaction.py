"""Secrets never reach what is stored or shown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities.blindness import blind
from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, LogLine
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings
from recovery.redaction import MASK, mask_also, redact
from recovery.signatures.catalogue import packaged_catalogue
from workers.cli.looking import print_state
from workers.doctor.checks import failed
from workflows.state import RecoveryState

SECRETS = [
    ("HF_TOKEN=hf_abcdefghijklmnopqrstuv", "hf_abcdefghijklmnopqrstuv"),
    ("password: hunter2222 next", "hunter2222"),
    ("Authorization: Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
    ("pull https://bot:s3cr3t@reg.example/v2", "s3cr3t"),
    ("id AKIAABCDEFGHIJKLMNOP used", "AKIAABCDEFGHIJKLMNOP"),
    ("AWS_SECRET_ACCESS_KEY='abcd/efgh+ijkl'", "abcd/efgh+ijkl"),
    ('{"api_key": "0123456789abcdef"}', "0123456789abcdef"),
    ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl!", "eyJzdWIiOiIxMjM0"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_abcdefghijklmnopqrstuvwxyz0123"),
    ("WANDB_API_KEY=0123456789abcdef0123", "0123456789abcdef0123"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----b3BlbnNzaC1rZXk=", "b3BlbnNzaC1rZXk="),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_masked_and_what_names_it_stays(text: str, secret: str) -> None:
    masked = redact(text)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text", ["KeyError: 'loss_weights'", "consumed tokens: 123456", "step 4 | tokens/s 5123 | key=3"]
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=400))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_evidence_is_masked(text: str, secret: str) -> None:
    lines = ("Traceback (most recent call last):", '  File "/w/train.py", line 3, in main', f"ValueError: {text}")
    incident = Incident(lines=tuple(LogLine(text=line, source="job.out", number=i) for i, line in enumerate(lines, 1)))
    verdict = attribute(incident)
    assert verdict.evidence
    assert secret not in verdict.model_dump_json()


OWN = ("corp-[a-z0-9]{12}", "badge (?P<secret>[0-9]{6})")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def own_patterns() -> Iterator[None]:
    mask_also(OWN)
    yield
    mask_also(())


def test_a_sites_own_pattern_is_masked_whole_or_only_its_group_named_secret(own_patterns: None) -> None:
    said = redact("user corp-0123456789ab of badge 123456, HF_TOKEN=hf_abcdefghijklmnopqrstuv")
    assert said == f"user {MASK} of badge {MASK}, HF_TOKEN={MASK}"
    assert redact(said) == said


def test_patterns_that_are_given_anew_replace_those_before(own_patterns: None) -> None:
    mask_also(["other"])
    assert redact("badge 123456, other") == f"badge 123456, {MASK}"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "is not valid RE2"),
        ("x*", "make it narrower"),
        (r".{10}", "make it narrower"),
        ("x" * 501, "501 characters"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mask_also([pattern])


secrets = st.one_of(
    st.from_regex(r"hf_[A-Za-z0-9]{16,24}", fullmatch=True).map(lambda secret: (secret, secret)),
    st.from_regex(r"[A-Za-z0-9]{8,20}", fullmatch=True).map(lambda secret: (f"DB_PASSWORD={secret}", secret)),
    st.from_regex(r"[A-Za-z0-9._~-]{12,20}", fullmatch=True).map(lambda secret: (f"Bearer {secret}", secret)),
    st.from_regex(r"corp-[a-z0-9]{12}", fullmatch=True).map(lambda secret: (secret, secret)),
    st.from_regex(r"[0-9]{6}", fullmatch=True).map(lambda secret: (f"badge {secret}", secret)),
)
around = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(secret=secrets, before=around, after=around)
def test_no_secret_survives_into_a_verdict_a_watchs_memory_a_page_a_source_or_the_doctor(
    own_patterns: None, capsys: pytest.CaptureFixture[str], secret: tuple[str, str], before: str, after: str
) -> None:
    written, hidden = secret
    line = f"RuntimeError: CUDA error: {before} {written} {after}"
    if hidden in before + after or hidden in MASK:
        return
    verdict = attribute(Incident(lines=(LogLine(text=line, source="job.out", number=1),)))
    monitor = AttemptMonitor(DetectionSettings(), packaged_catalogue().match)
    monitor.feed(line, NOW, source="job.out", number=1)
    found = monitor.look(NOW, log_fresh=True)
    state = RecoveryState(attempt_submitted_at=NOW, verdict=verdict, monitor=monitor.state)
    print_state("alpha/1", state)
    shown = [
        state.model_dump_json(),
        str(found),
        capsys.readouterr().out,
        blind("store", NOW, line).says,
        failed("labels", f"host={before} {written} {after}", f"set {written} {after}").model_dump_json(),
    ]
    assert [text for text in shown if hidden in text] == []
