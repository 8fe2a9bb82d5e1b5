"""`relight eval`: run all cases of a labelled corpus and print how good the diagnoses are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.context import Json, Options
from workers.cli.output import CliError, console, print_json

if TYPE_CHECKING:
    from recovery.attribution.score import Label, Prediction, Score
    from recovery.signatures.catalogue import Catalogue


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("eval")(evaluate)


def evaluate(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A folder of cases, one JSON file each; .json.gz is read too.")],
    predictions: Annotated[
        Path | None, typer.Option("--predictions", help="Write what was said of each case to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Diagnose every case of a folder and compare with its labels."""
    from recovery.attribution.score import score
    from workers.site_signatures import site_catalogue

    options: Options = context.obj
    pairs = _pairs(folder, site_catalogue(options.settings().signatures))
    if predictions:
        _write(predictions, [said for _, said in pairs])
    labelled = [(label, said) for label, said in pairs if label is not None]
    if not labelled:
        raise CliError(f"{folder}: no case has a label", "a labelled case has the key expected")
    figures = score(labelled)
    if as_json:
        print_json(figures)
    else:
        _print(figures)


def _pairs(folder: Path, catalogue: Catalogue) -> list[tuple[Label | None, Prediction]]:
    from activities.casefile import UnreadableInput, read_cases
    from recovery.attribution.attribute import attribute
    from recovery.attribution.score import Prediction

    try:
        return [
            (case.expected, Prediction.of(case.id, attribute(case.incident(str(path)), catalogue)))
            for path, case in read_cases(folder)
        ]
    except UnreadableInput as error:
        raise CliError(str(error), "give a folder with corpus cases") from error


def _write(path: Path, predictions: list[Prediction]) -> None:
    import json

    document = [said.model_dump(mode="json") for said in predictions]
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", "give a file that can be written") from error


def _print(figures: Score) -> None:
    from rich.text import Text

    out = console()
    for name in ("cases", "outcome", "category", "action", "all", "culprit_precision", "culprit_recall"):
        out.print(Text(f"{name:18} {getattr(figures, name)}"))
    for kind in type(figures.wrong).model_fields:
        ids: tuple[str, ...] = getattr(figures.wrong, kind)
        out.print(Text(f"  {kind:16} {len(ids):3}  {' '.join(ids)}"))
