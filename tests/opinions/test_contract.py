"""What docs/attribution-services.md and the example settings show works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from activities.attribution.contract import Answer, Request, schema
from activities.attribution.settings import HttpSettings, NvrxSettings
from tests.docs.blocks import REPOSITORY, blocks, commands
from workers.settings import SettingsError, load_settings

DOCUMENT = "docs/attribution-services.md"
SCHEMA = REPOSITORY / "docs" / "attribution-service.schema.json"


def test_the_published_schema_is_what_is_sent_and_understood() -> None:
    now = json.dumps(schema(), indent=1) + "\n"
    assert SCHEMA.read_text() == now, "write it anew: python -m tests.opinions.publish"


def test_the_question_and_the_answer_of_the_document_are_as_the_schema_says() -> None:
    asked, answered = blocks(DOCUMENT, "json")
    assert Request.model_validate_json(asked).phase == "slow"
    assert Answer.model_validate_json(answered).nodes == ["node02"]
    known = schema()["$defs"]
    assert isinstance(known, dict)
    assert set(json.loads(asked)) == set(known["Request"]["properties"])  # type: ignore[index, call-overload, arg-type]
    assert set(json.loads(answered)) == set(known["Answer"]["properties"])  # type: ignore[index, call-overload, arg-type]


def test_the_settings_of_the_document_are_settings(tmp_path: Path) -> None:
    kinds = []
    for block in blocks(DOCUMENT, "yaml"):
        (tmp_path / "relight.yaml").write_text(block)
        service = load_settings(tmp_path / "relight.yaml").clusters[0].attribution
        assert service is not None
        kinds.append(service.kind)
    assert kinds == ["nvrx", "http"]


def test_the_command_of_the_document_is_the_one_that_test_doctor_runs() -> None:
    assert commands(DOCUMENT) == ["relight doctor attribution"]


@pytest.mark.parametrize(("kind", "model"), [("nvrx", NvrxSettings), ("http", HttpSettings)])
def test_the_example_settings_show_every_key_with_its_default(
    kind: str, model: type[NvrxSettings | HttpSettings], tmp_path: Path
) -> None:
    example = (REPOSITORY / "deploy" / "relight.example.yaml").read_text()
    section = re.search(rf"^    # attribution:\n    #   kind: {kind}\b.*\n((?:    #   .*\n)+)", example, re.MULTILINE)
    assert section is not None
    shown = "".join(line[6:] + "\n" for line in section.group(0).splitlines())
    indented = re.sub("^", "    ", shown, flags=re.MULTILINE)
    (tmp_path / "relight.yaml").write_text(f"clusters:\n  - name: alpha\n{indented}")
    service = load_settings(tmp_path / "relight.yaml").clusters[0].attribution
    assert service is not None
    assert service == model.model_validate({"kind": kind, "url": service.url})
    assert set(re.findall(r"^  (\w+):", shown, re.MULTILINE)) == set(model.model_fields)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{kind: nvrx}", "clusters.0.attribution.url"),
        ("{kind: nvrx, url: 'localhost:8000'}", "clusters.0.attribution.url"),
        ("{kind: oracle, url: 'http://x'}", "clusters.0.attribution"),
        ("{kind: http, url: 'http://x', fast_s: 60}", "clusters.0.attribution.fast_s"),
        ("{kind: http, url: 'http://x', copydir: /x}", "is not a known key"),
        ("{kind: nvrx, url: 'http://x', access: {username: me}}", "username and password_file belong together"),
    ],
)
def test_a_bad_section_is_named(section: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "relight.yaml").write_text(f"clusters:\n  - name: alpha\n    attribution: {section}\n")
    with pytest.raises(SettingsError, match=re.escape(words)):
        load_settings(tmp_path / "relight.yaml")


def test_without_a_section_nobody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "relight.yaml").write_text("clusters:\n  - name: alpha\n")
    assert load_settings(tmp_path / "relight.yaml").clusters[0].attribution is None
