"""`relight doctor`: looks at what relight depends on, and says what does not work and how to mend it."""

from __future__ import annotations

import typer

from workers.cli import doctor_logs, doctor_services, doctor_slurm

doctor = typer.Typer(help="Look at what relight depends on: what works, what does not, how to mend it.")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    doctor_slurm.add_to(doctor)
    doctor_logs.add_to(doctor)
    doctor_services.add_to(doctor)
    app.add_typer(doctor, name="doctor")
