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


TOLD = [
    "DB_PASS={}",
    "SMTP_PASS: {}",
    "MYSQL_PWD={}",
    "export SSHPASS={} && run",
    "LDAP_BINDPW={}",
    "db.pass = {}",
    "password => {}",
    "--password {}",
    "--db-passwd={} --epochs 3",
    "['--api-key', '{}']",
    "--api-key {} --model x",
    "hub_token={}, revision=main",
    "OPENAI_KEY={}",
    "accessToken: {}",
    "AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
    '{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}',
    r'body: "{{\"clientSecret\": \"{}\", \"n\": 1}}"',
    "Authorization: token {}",
    "Authorization: Basic {}",
    'headers={{"Authorization": "{}"}}',
    "curl -u bot:{} https://reg.example.org",
    "docker login -u bot -p {} nvcr.io",
    "sshpass -p {} ssh node1",
    "mysql -h db -p{} runs",
    "mysqldump -p{} runs",
    "wandb login --relogin {}",
    "machine api.wandb.ai login user password {}",
    "Set-Cookie: session={}; Path=/",
    "redis://:{}@cache:6379/0",
    "git clone https://{}@git.example.org/x",
    "GET https://b.blob.core.windows.net/c?sv=2022&sig={}&se=2026",
    "PUT /b/k?X-Amz-Expires=60&X-Amz-Signature={}&x-id=PutObject",
    "X-Goog-Signature={}",
    "https://hooks.slack.com/services/{}",
]


@pytest.mark.parametrize("told", TOLD)
@settings(max_examples=10)
@given(secret=st.from_regex(r"[0-9][a-f][0-9a-f]{38}", fullmatch=True))
def test_what_a_name_a_flag_a_header_or_an_address_tells_is_masked(told: str, secret: str) -> None:
    masked = redact(told.format(secret))
    assert masked.startswith(told.partition("{}")[0].format())
    assert secret not in masked
    assert masked == redact(masked)


FORMS = [
    r"hf_[A-Za-z0-9]{34}",
    r"npm_[A-Za-z0-9]{36}",
    r"dckr_pat_[A-Za-z0-9_-]{27}",
    r"gsk_[A-Za-z0-9]{52}",
    r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{80}",
    r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    r"glpat-[A-Za-z0-9_-]{20}",
    r"gldt-[A-Za-z0-9_-]{20}",
    r"xoxb-[0-9]{12}-[A-Za-z0-9]{24}",
    r"xapp-1-A[0-9]{10}-[a-f0-9]{32}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"ya29\.[A-Za-z0-9_-]{40}",
    r"GOCSPX-[A-Za-z0-9_-]{28}",
    r"sk-proj-[A-Za-z0-9_-]{40}",
    r"sk-ant-api03-[A-Za-z0-9_-]{40}",
    r"sk_live_[A-Za-z0-9]{24}",
    r"ASIA[A-Z0-9]{16}",
    r"eyJ[A-Za-z0-9_-]{20}\.eyJ[A-Za-z0-9_-]{20}\.[A-Za-z0-9_-]{20}",
    r"dapi[0-9a-f]{32}",
    r"dop_v1_[0-9a-f]{64}",
    r"hvs\.[A-Za-z0-9_-]{24}",
    r"[A-Za-z0-9]{3}8Q~[A-Za-z0-9_~.-]{34}",
    r"r8_[A-Za-z0-9]{37}",
    r"wandb_v1_[A-Za-z0-9_]{77}",
    r"github_pat_[A-Za-z0-9_]{82}",
    r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}",
    r"nvapi-[A-Za-z0-9_-]{64}",
    r"xai-[A-Za-z0-9]{80}",
]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_token_tells_itself_wherever_it_stands(form: str, data: st.DataObject) -> None:
    token = data.draw(st.from_regex(form, fullmatch=True))
    for written in (f"got {token} there", f"f('{token}')", f"[{token}]", f"/x/{token}/y"):
        assert token not in redact(written)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password='my pass word' of bob", f"password='{MASK}' of bob"),
        ('passphrase: "it\'s \\"mine\\" now", x', f'passphrase: "{MASK}", x'),
        ("password=ab;cdefgh bob", f"password={MASK} bob"),
        ("password='my pass wo", f"password='{MASK}"),
        ("postgres://u:p@ss@host/db", f"postgres://u:{MASK}@host/db"),
        ("--password a=b --token abcdefgh", f"--password {MASK} --token {MASK}"),
    ],
)
def test_a_password_is_masked_to_its_end(text: str, masked: str) -> None:
    assert redact(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'loss_weights'",
        "consumed tokens: 123456",
        "tokens per second: 1234",
        "step 4 | tokens/s 5123 | key=3",
        "token_id=5 pad_token_id: 0 num_tokens=4096 max_new_tokens: 2048",
        "next_token: 50256, loss_per_token=2.3456, time_per_token: 12.3ms",
        "bos_token='<s>' eos_token: </s> pad_token=[PAD] unk_token='unknown word'",
        "pass 1 of 3, passed: 3, bypass=1, compass: north1",
        "forward_pass: 12.345ms backward_pass=0.0213s first_pass: compiling",
        "PASS: test_all_reduce, 12 tests pass: yes",
        "sort_key: loss, text_key=content, monitor_key: val_loss, key=value",
        "PWD=/home/bob/run OLDPWD=/home/bob OLD_PWD=/scratch/v2",
        "hf_token=None api_key: null password=None, use_auth_token=False",
        "--skip_special_token --password --token",
        "Basic training of the tokenizer starts: basic configuration",
        "ssh login1 srun -p a100 train.py; mysql --port=3306; docker run -u 1000:1000 x",
        "see https://docs.example.org:8080/a@v2 and tcp://10.0.0.1:29500, s3://bucket/key=7/part",
        "bob@login1:/home/bob$ scp a bob@node2:x",
        "npm_config_registry_of_the_site=x, task-0123456789abcdef0123, pypi-mirror",
        "author: bob, authority=local, auth/munge plugin loaded, AuthType=auth/munge",
        "git 0123456789abcdef0123456789abcdef01234567, signature=def f(x)",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


pieces = [
    "password",
    "token=",
    "--",
    "pass",
    "_key",
    "=",
    ":",
    " ",
    "'",
    '"',
    "\\",
    ";",
    "hunter22",
    "abcd",
    "://",
    "@",
    MASK,
]


@given(st.lists(st.sampled_from(pieces), max_size=14).map("".join))
def test_masking_pieces_of_secrets_twice_is_masking_them_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


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
    print_state("alpha/1", state, reads=())
    shown = [
        state.model_dump_json(),
        str(found),
        capsys.readouterr().out,
        blind("store", NOW, line).says,
        failed("labels", f"host={before} {written} {after}", f"set {written} {after}").model_dump_json(),
    ]
    assert [text for text in shown if hidden in text] == []
