"""A finding put into words: the verdict with redacted evidence, victims, and a fingerprint."""

from __future__ import annotations

from collections.abc import Iterable

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.locate import victims
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.words import in_words
from recovery.model import (
    MAX_EVIDENCE,
    MAX_EVIDENCE_CHARS,
    Action,
    Category,
    Confidence,
    Evidence,
    SymptomKind,
    Verdict,
)
from recovery.redaction import redact
from recovery.signatures.catalogue import Role

_NUMBERS = re2.compile(r"0x[0-9a-fA-F]+|\d+")
_EVERYBODYS = frozenset(
    {Category.USER_CODE, Category.DATA, Category.NUMERICAL, Category.SCHEDULER, Category.INFRA_TRANSIENT}
)
_MAX_RULED_OUT = 6
_NOT_WORTH_A_WORD = frozenset({"store_gone", "process_exit", "ib_link_up", "filesystem_restored", "self_recovered"})


def verdict_of(finding: Finding, symptom: SymptomKind, scene: Scene) -> Verdict:
    """Build the verdict of a finding."""
    return Verdict(
        symptom=symptom,
        category=finding.category,
        cause=finding.cause,
        culprits=finding.culprits,
        victims=_victims(finding, symptom, scene),
        confidence=finding.confidence,
        suggested=finding.action,
        summary=_sentence(finding),
        unlocated_because=finding.unlocated_because,
        ruled_out=(*finding.ruled_out, *_ruled_out(finding, scene))[:_MAX_RULED_OUT],
        evidence=_evidence(finding),
        fingerprint=_fingerprint(finding),
    )


def healthy_verdict(scene: Scene) -> Verdict:
    """Nothing is wrong; alarming lines that training survived are listed as ruled out. Where nothing tells of
    a training run, nothing can be said of one."""
    if not scene.is_of_training:
        return _nothing_to_judge()
    survived = [r for r in scene.readings if r.is_a(Role.ROOT)]
    noise = [r for r in scene.readings if r.is_a(Role.NOISE)]
    causes = dict.fromkeys(r.cause for r in (*survived, *noise))
    return Verdict(
        symptom=SymptomKind.NONE,
        category=Category.NONE,
        cause=next(iter(causes), "healthy"),
        confidence=Confidence.LIKELY,
        suggested=Action.NONE,
        summary="nothing is wrong",
        ruled_out=tuple(f"{in_words(cause)}: training went on" for cause in list(causes)[:_MAX_RULED_OUT]),
        evidence=evidence_of((*survived[:3], *noise[:3])),
    )


def _nothing_to_judge() -> Verdict:
    return Verdict(
        symptom=SymptomKind.NONE,
        category=Category.NONE,
        cause="no_training_seen",
        suggested=Action.NONE,
        summary="nothing here speaks of a training run",
    )


def evidence_of(readings: Iterable[Reading]) -> tuple[Evidence, ...]:
    """Quote lines, redacted and cut, each one once."""
    unique = {reading.order: reading for reading in readings}
    return tuple(_quote(unique[order]) for order in sorted(unique))[:MAX_EVIDENCE]


def _quote(reading: Reading) -> Evidence:
    return Evidence(
        source=reading.line.source or reading.line.stream or "log",
        text=redact(reading.line.text.strip()[: 2 * MAX_EVIDENCE_CHARS])[:MAX_EVIDENCE_CHARS],
        line=reading.line.number,
        at=reading.at,
        host=reading.node or reading.line.host,
        signature=reading.signature.id,
    )


def _evidence(finding: Finding) -> tuple[Evidence, ...]:
    metrics = tuple(
        Evidence(source="metrics", text=redact(text[:MAX_EVIDENCE_CHARS])[:MAX_EVIDENCE_CHARS])
        for text in finding.metric_evidence
    )
    return (*evidence_of(finding.evidence), *metrics)[:MAX_EVIDENCE]


def _victims(finding: Finding, symptom: SymptomKind, scene: Scene) -> tuple[str, ...]:
    if symptom not in (SymptomKind.CRASH, SymptomKind.HANG) or finding.category in _EVERYBODYS:
        return ()
    return tuple(node for node in scene.nodes if node not in finding.culprits)


def _sentence(finding: Finding) -> str:
    how = f": {finding.located_by}" if finding.located_by and finding.confidence is not Confidence.ESTABLISHED else ""
    where = f" (on {', '.join(finding.culprits)}{how})" if finding.culprits else ""
    text = redact(finding.summary)
    return f"{text[:1].upper()}{text[1:]}{where}."


def _fingerprint(finding: Finding) -> str:
    """The same for the same failure at the same place, however many ranks told of it and on whatever nodes."""
    cause = finding.cause.removesuffix("_one_rank").removesuffix("_all_ranks")
    return f"{finding.category}/{cause}/{_NUMBERS.sub('#', finding.place)}"


def _ruled_out(finding: Finding, scene: Scene) -> tuple[str, ...]:
    """The nodes that shout without being at fault, and the alarming lines that mean nothing here."""
    shouting = sorted(victims(scene) - set(finding.culprits))
    lines = []
    if shouting and finding.culprits:
        names = ", ".join(shouting[:4]) + (f" and {len(shouting) - 4} more" if len(shouting) > 4 else "")
        lines.append(f"{names}: network errors and timeouts there are the echo of a fault elsewhere")
    noisy: dict[str, set[str]] = {}
    for r in scene.readings:
        if r.is_a(Role.NOISE) and r.cause not in _NOT_WORTH_A_WORD:
            noisy.setdefault(r.cause, set()).add(r.node or "some node")
    lines += [f"{', '.join(sorted(nodes)[:4])}: {in_words(cause)} means nothing here" for cause, nodes in noisy.items()]
    return tuple(lines)
