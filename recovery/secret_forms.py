r"""The forms in which secrets stand in text, as RE2 patterns.

`TOKENS` tell themselves; their forms are those that each service documents. Of the others the first group is what says
that a secret follows, and of the groups after it one is filled: the secret.
"""

from __future__ import annotations

import re2


def any_of(*patterns: str) -> str:
    """Return the pattern that matches what one of `patterns` does."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)


TOKENS = (
    r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:gh[opsru]|gsk|npm|r8|rpa|[rs]k_live)_[A-Za-z0-9]{20,}",
    r"\b(?:github_pat|dckr_[op]at|wandb_v1|glsa|lsv2_[ps][kt])_[A-Za-z0-9_-]{20,}",
    r"\bgl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent|oas)-[A-Za-z0-9_.-]{16,}",
    r"\bnvapi-[A-Za-z0-9_-]{16,}",
    r"\bpypi-[A-Za-z0-9_-]{30,}",
    r"\b(?:xai|pplx)-[A-Za-z0-9]{32,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\bxapp-[0-9]-[A-Za-z0-9-]{10,}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bya29\.[A-Za-z0-9_-]{16,}",
    r"\bGOCSPX-[A-Za-z0-9_-]{20,}",
    r"\bdapi[0-9a-f]{32}",
    r"\bdo[opr]_v1_[0-9a-f]{32,}",
    r"\bhv[brs]\.[A-Za-z0-9_-]{20,}",
    r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)?",
)

_MARK = r"\\{0,4}[\"']"
_IS = rf"(?:{_MARK})?\s{{0,3}}(?:=>|:=|[=:])\s{{0,3}}"


def _given(names: str, bare: str, least: int) -> str:
    """What stands at one of `names`, in quotes or as the characters `bare`, at least so many: ``name=...``,
    ``"name": "..."``, ``--name ...``. A line that was cut lacks the closing quote."""
    in_quoted_text = rf"\\{{1,4}}[\"']([^\"'\\\n]{{{least},}})"
    in_double, in_single = (rf"{mark}((?:[^{mark}\\\n]|\\.){{{least},}})" for mark in "\"'")
    flag = rf"--(?:{names})(?:{_MARK}\s{{0,3}},\s{{0,3}}|\s{{1,3}})"
    value = any_of(in_quoted_text, in_double, in_single, rf"({bare}{{{least},}})")
    return rf"(?i)(\b(?:{names}){_IS}|{flag})(?:{value})"


_ANY = r"[a-z0-9_.-]*"
_PART = rf"{_ANY}[_.-]"
CHOSEN = _given(
    rf"{_ANY}(?:password|passwd|passphrase|passcode|secret|sshpass|bindpw)[0-9]{{0,2}}", r"[^\s\"']", least=3
)
"""What people think up: any character may be in it."""
MADE = _given(
    rf"{_ANY}(?:token|(?:api|access|private|secret|account|encryption|signing|master|shared|ssh)[_-]?key)[0-9]{{0,2}}",
    r"[^\s\"',;&(){}\[\]]",
    least=4,
)
"""What programs make: it ends where a list or a call goes on."""
DOUBTFUL = _given(
    rf"(?:{_PART})?(?:pass|pw|auth)[0-9]{{0,2}}|{_PART}(?:key|pwd)[0-9]{{0,2}}", r"[^\s\"',;&(){}\[\]=]", least=3
)
"""Names that other things have, too: see `is_doubtless`."""

SAID = (
    rf"(?i)(\bauthorization{_IS}(?:{_MARK})?(?:(?:token|basic|bearer|api-?key|negotiate)\s+)?)([^\s\"',;]{{4,}})",
    r"(?i)(\bbearer\s+)([A-Za-z0-9._~+/=-]{8,})",
    r"(?i)(\bbasic\s+)([A-Za-z0-9+/]{8,}={1,2})",
    r"(?i)(\bcookie:\s{0,3}[^\s=;]+=)([^\n\"']{4,})",
    r"(?i)([?&;](?:[a-z0-9_-]*signature|sig|key|code)=)([^\s&\"']{8,})",
    r"(?i)(\b(?:x-[a-z]+-)?signature=)([0-9a-f]{16,})",
    r"(\bhooks\.slack\.com/[a-z]+/)([A-Za-z0-9/_-]{10,})",
    r"(\bwandb\s+login\s[^\n]*?)(\b[0-9a-f]{40}\b)",
    r"(\bmachine\s+[^\s]+\s+login\s+[^\s]+\s+password\s+)([^\s]+)",
    r"(\b(?:docker|podman|nerdctl|helm|oras)\s+login(?:\s[^\n]*?)?\s-p\s+)([^\s]+)",
    r"(\bsshpass\s+-p\s{0,3})([^\s]+)",
    r"(\bmysql(?:dump|admin)?(?:\s[^\n]*?)?\s-p)([^\s]{3,})",
    r"(\bcurl(?:\s[^\n]*?)?\s(?:-u|--user|--proxy-user)[\s=]{1,3}[\"']?[^\s:\"']+:)([^\s\"']+)",
    r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)([^\s/]+)@",
    r"(\b[a-z][a-z0-9+.-]*://)([A-Za-z0-9_-]{20,})@",
)
"""A header, a command line or an address says it."""

_NOTHING = frozenset({"true", "false", "none", "null", "yes", "no", "unset", "empty", "missing", "required"})
_NUMBER = re2.compile(r"[-+]?[0-9][0-9.,:/_]*(?:e[-+]?[0-9]+)?[A-Za-z%/]{0,6}")
_OF_TEXT = re2.compile(
    r"(?:.*[_.-])?(?:bos|eos|eot|pad|unk|sep|cls|mask|image|audio|video|vision|stop|start|end|special|next)_token"
)


def is_nothing(said_by: str, value: str) -> bool:
    """Whether `value` only says whether there is a secret, or is the next flag after one that takes none."""
    next_flag = said_by.startswith("--") and said_by[-1].isspace() and value.startswith("-")
    return next_flag or value.rstrip(",;)}]").lower() in _NOTHING


def is_of_text(name: str, value: str) -> bool:
    """Whether this is a tokenizer's token, or a count of them. A variable of the environment is neither."""
    if not name.endswith("token"):
        return False
    return bool(_NUMBER.fullmatch(value) or value.startswith("<") or _OF_TEXT.fullmatch(name))


def is_doubtless(name: str, value: str) -> bool:
    """Whether a secret is at a doubtful name: a variable of the environment has it, or `value` is no word, no number,
    and no directory."""
    if name.lower().endswith("pwd") and value.startswith("/"):
        return False
    if name.isupper() and "_" in name:
        return True
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return len(value) >= 6 and mixed and not _NUMBER.fullmatch(value)
