"""What a job's comment asks for: every spelling, every kind of bad input, and never more than it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recovery.detection.progress import ProgressPattern
from recovery.model import Mode
from recovery.optin import MAX_COMMENT_CHARS, OptIn, parse_comment


def warned(comment: str) -> str:
    """The warning of a comment that speaks to us and can't be used: watched in observe mode, and nothing else of it."""
    optin = parse_comment(comment)
    assert optin is not None
    assert optin == OptIn(mode=Mode.OBSERVE, warning=optin.warning)
    assert optin.warning.startswith("the job's comment can't be used: ")
    assert optin.warning.endswith("; the job is watched in observe mode")
    return optin.warning


# --- spellings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "optin"),
    [
        ({"relight": {}}, OptIn()),
        ({"relight": {"mode": "observe"}}, OptIn()),
        ({"relight": {"mode": "act"}}, OptIn(mode=Mode.ACT)),
        ({"relight": {"mode": "action"}}, OptIn(mode=Mode.ACT)),
        (
            {
                "relight": {
                    "mode": "act",
                    "environment": "prod",
                    "hang_after_s": 900,
                    "progress_pattern": "step (?P<iteration>[0-9]+)",
                    "max_restarts": 0,
                }
            },
            OptIn(
                mode=Mode.ACT,
                environment="prod",
                hang_after_s=900,
                progress_pattern="step (?P<iteration>[0-9]+)",
                max_restarts=0,
            ),
        ),
        ({"nvidia-recovery": {}}, OptIn()),
        (
            {"nvidia-recovery": {"environment": "prod", "mode": "action"}},
            OptIn(mode=Mode.ACT, environment="prod"),
        ),
        ({"APS": {"auto_resume_mode": "requeue"}}, OptIn(mode=Mode.ACT)),
        ({"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}, OptIn(mode=Mode.ACT, max_restarts=1)),
        ({"relight": {"mode": "act"}, "billing": {"team": 7}, "mode": "off"}, OptIn(mode=Mode.ACT)),
    ],
)
def test_each_spelling_is_understood_without_a_warning(comment: dict[str, Any], optin: OptIn) -> None:
    assert parse_comment(json.dumps(comment)) == optin
    assert parse_comment(json.dumps(comment, indent=3)) == optin


@pytest.mark.parametrize(
    ("sections", "optin"),
    [
        ({"relight": {"mode": "act"}, "nvidia-recovery": {"mode": "observe"}}, OptIn()),
        ({"relight": {}, "APS": {"auto_resume_mode": "requeue"}}, OptIn()),
        (
            {
                "relight": {"mode": "act", "max_restarts": 5, "hang_after_s": 60},
                "APS": {"auto_resume_mode": "requeue", "max_requeue_times": 2},
                "nvidia-recovery": {"mode": "act", "environment": "prod"},
            },
            OptIn(mode=Mode.ACT, max_restarts=2, hang_after_s=60, environment="prod"),
        ),
    ],
)
def test_of_several_spellings_in_one_comment_the_strictest_wins(sections: dict[str, Any], optin: OptIn) -> None:
    assert parse_comment(json.dumps(sections)) == optin


def test_one_spelling_that_cannot_be_used_makes_the_whole_comment_observe() -> None:
    optin = parse_comment('{"relight": {"mode": "act"}, "APS": {"auto_resume_mode": "always"}}')

    assert optin is not None
    assert optin.mode is Mode.OBSERVE
    assert "APS.auto_resume_mode" in optin.warning


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "llama run 17",
        "please ask alice about relight before you touch this",
        "ask about relight: alice knows",
        "{}",
        "[]",
        "null",
        '{"billing": "relight"}',
        '{"tool": {"note": "APS of 3"}}',
        '{"tool": {"note": "x, relight: y"}}',
        '{"tool": {"apps": 1, "lapse": 2}}',
        '{"broken": ',
        "{" * 10_000,
        "relight " * 5_000,
        "collapse: maps: relighting: 3",
        "\x00\x1b[31m",
    ],
)
def test_a_comment_that_does_not_speak_to_us_is_no_opt_in(comment: str) -> None:
    assert parse_comment(comment) is None


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comment",
    [
        '{"relight": {"mode": "act"}',
        '{"relight": {"mode": "act",}}',
        "{'relight': {'mode': 'act'}}",
        "{relight:{mode:act}}",
        '{"relight": {"mode": "act"}} and more',
        '{"relight": {"mode": "act", "hang_after_s": 09}}',
        "relight: act",
        '{"relight": ' + "[" * 3_000,
        "APS :",
        r"{\"relight\":{\"mode\":\"act\"}}",
    ],
)
def test_broken_json_is_told(comment: str) -> None:
    assert "it is not JSON" in warned(comment)


@pytest.mark.parametrize("comment", ['[{"relight": {"mode": "act"}}]', '["relight", {"mode": "act"}]', '["APS"]'])
def test_json_that_is_no_object_is_told(comment: str) -> None:
    assert "it is a JSON list, not an object" in warned(comment)


@pytest.mark.parametrize("section", ['"act"', "true", "null", "1", '["mode", "act"]'])
def test_a_section_that_is_no_object_is_told(section: str) -> None:
    for word in ("relight", "nvidia-recovery", "APS"):
        assert f'"{word}" must hold an object' in warned(f'{{"{word}": {section}}}')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "ACT"),
        ("mode", "yes"),
        ("mode", True),
        ("mode", None),
        ("mode", ["act"]),
        ("environment", 7),
        ("environment", None),
        ("environment", "x" * 65),
        ("hang_after_s", "900"),
        ("hang_after_s", True),
        ("hang_after_s", 0),
        ("hang_after_s", -1),
        ("hang_after_s", 1e12),
        ("hang_after_s", float("nan")),
        ("hang_after_s", float("inf")),
        ("max_restarts", "3"),
        ("max_restarts", True),
        ("max_restarts", 2.5),
        ("max_restarts", -1),
        ("max_restarts", 10**30),
        ("progress_pattern", 5),
        ("progress_pattern", "x" * 301),
    ],
)
def test_a_value_of_the_wrong_type_or_size_is_told_by_its_key(key: str, value: object) -> None:
    assert f'"relight.{key}": ' in warned(json.dumps({"relight": {"mode": "act"} | {key: value}}))


@pytest.mark.parametrize("pattern", ["(", "[a-", "step [0-9]+", "(?P<step>[0-9]+)", "(?=x)(?P<iteration>.)", "", "a**"])
def test_a_progress_pattern_that_would_fail_the_watch_is_told_at_once(pattern: str) -> None:
    with pytest.raises(ValueError):
        ProgressPattern(pattern)
    assert '"relight.progress_pattern": the progress pattern' in warned(
        json.dumps({"relight": {"progress_pattern": pattern}})
    )


@pytest.mark.parametrize(
    ("comment", "unknown", "nearest"),
    [
        ('{"relight": {"mod": "act"}}', "relight.mod", "mode"),
        ('{"relight": {"mode": "act", "hang_after": 900}}', "relight.hang_after", "hang_after_s"),
        ('{"relight": {"mode": "act", "restarts": 3}}', "relight.restarts", "max_restarts"),
        ('{"relight": {"Environment": "prod"}}', "relight.Environment", "environment"),
        ('{"nvidia-recovery": {"env": "prod"}}', "nvidia-recovery.env", "environment"),
        ('{"APS": {"auto_resume_mode": "requeue", "max_requeues": 3}}', "APS.max_requeues", "max_requeue_times"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_known_one(comment: str, unknown: str, nearest: str) -> None:
    assert f'"{unknown}" is not known; the nearest key is "{nearest}"' in warned(comment)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("Relight", "relight"),
        ("relight ", "relight"),
        ("RELIGHT", "relight"),
        ("nvidia_recovery", "nvidia-recovery"),
        ("NVIDIA-Recovery", "nvidia-recovery"),
        ("aps", "APS"),
    ],
)
def test_a_misspelt_word_of_ours_is_told_with_the_right_one(key: str, nearest: str) -> None:
    assert f'its key "{key}" is not known; the nearest is "{nearest}"' in warned(json.dumps({key: {"mode": "act"}}))


@pytest.mark.parametrize(
    "comment",
    [
        '{"relight": {"mode": "observe"}, "relight": {"mode": "act"}}',
        '{"relight": {"mode": "observe", "mode": "act"}}',
        '{"relight": {"max_restarts": 0, "mode": "act", "max_restarts": 9}}',
    ],
)
def test_a_key_that_stands_there_twice_does_not_undo_the_stricter_one(comment: str) -> None:
    assert "stands there twice" in warned(comment)


def test_an_old_comment_that_does_not_ask_for_requeues_gets_none() -> None:
    assert "APS.auto_resume_mode" in warned('{"APS": {}}')


def test_a_job_of_a_chain_opts_in_to_acts_on_the_chain_also_beside_another_of_our_keys() -> None:
    aps = '"APS": {"auto_resume_mode": "singleton_dependency", "max_requeue_times": 3}'

    assert parse_comment("{" + aps + "}") == OptIn(mode=Mode.ACT, chain=True)
    assert parse_comment('{"relight": {"mode": "observe"}, ' + aps + "}") == OptIn(mode=Mode.OBSERVE, chain=True)


@pytest.mark.parametrize("filling", ["x", "\u00fc", "\\n"])
def test_ten_kilobytes_are_not_parsed(filling: str) -> None:
    comment = json.dumps({"relight": {"mode": "act"}, "note": filling * 10_000})

    assert f"it is {len(comment)} characters long, more than {MAX_COMMENT_CHARS}" in warned(comment)


@pytest.mark.parametrize(
    "comment",
    [
        r'{"relight": {"\ud800": 1}}',
        r'{"relight\udfff": {"mode": "act"}, "relight": 1}',
        r'{"a": ", relight: b", "Relight\ud800": {"mode": "act"}}',
        r'{"relight": {"mode": "\ud800"}}',
        r'{"relight": {"environment": "\ud800"}}',
        r'{"relight": {"progress_pattern": "\ud800(?P<iteration>.)"}}',
        '{"relight": "\ud800"}',
    ],
)
def test_half_a_surrogate_pair_does_no_harm(comment: str) -> None:
    warned(comment).encode()


def test_control_characters_of_a_key_are_not_shown_as_they_are() -> None:
    warning = warned(json.dumps({"relight": {"\x1b[2Jmode\n": "act"}}))

    assert warning.isprintable()


# --- in general -------------------------------------------------------------------------------------------------------

words = st.sampled_from(["relight", "nvidia-recovery", "APS", "Relight", "other", "relight "])
keys = st.sampled_from(
    ["mode", "environment", "hang_after_s", "progress_pattern", "max_restarts", "auto_resume_mode", "max_requeue_times"]
)
values = st.one_of(
    st.sampled_from(["act", "action", "observe", "requeue", "singleton_dependency", "prod", "(?P<iteration>x)", "("]),
    st.none(),
    st.booleans(),
    st.integers(-2, 2_000),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
)
sections = st.one_of(values, st.dictionaries(st.one_of(keys, st.text(max_size=6)), values, max_size=4))
documents = st.dictionaries(words, sections, max_size=3)


@given(st.one_of(st.text(), st.text().map(lambda text: '{"relight": ' + text), st.binary().map(repr)))
@example('{"relight":' * 300)
@example('"relight"' + " " * 4_000)
def test_no_text_at_all_raises_or_makes_us_act(text: str) -> None:
    optin = parse_comment(text)

    assert optin is None or optin.mode is Mode.OBSERVE or says_act(text)


@given(documents)
def test_only_a_comment_that_asks_for_it_makes_us_act(document: dict[str, Any]) -> None:
    comment = json.dumps(document)
    optin = parse_comment(comment)

    if optin is not None:
        assert len(optin.warning) < 800
        assert optin.mode is Mode.OBSERVE or (says_act(comment) and not optin.warning)


@given(documents, words, sections)
def test_another_section_can_only_make_a_comment_stricter(document: dict[str, Any], word: str, section: object) -> None:
    fewer = parse_comment(json.dumps({key: value for key, value in document.items() if key != word}))
    more = parse_comment(json.dumps(document | {word: section}))

    if fewer is not None and more is not None:
        assert not (fewer.mode is Mode.OBSERVE and more.mode is Mode.ACT and not fewer.warning)
        if fewer.max_restarts is not None and more.mode is Mode.ACT:
            assert more.max_restarts is not None
            assert more.max_restarts <= fewer.max_restarts


def says_act(comment: str) -> bool:
    """Whether the JSON says so in each section of ours that it has: told anew, without the parser's models."""
    document = json.loads(comment)
    ours = [document[word] for word in ("relight", "nvidia-recovery") if word in document]
    old = [document["APS"]] if "APS" in document else []
    return (
        bool(ours or old)
        and all(section.get("mode") in ("act", "action") for section in ours)
        and all(section.get("auto_resume_mode") == "requeue" for section in old)
    )
