"""What the demonstration shows: a live table on a terminal, lines elsewhere, and a timeline per job at the end."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from workers.demo.outcome import DemoReport, JobView, milestone_lines

STATE_STYLES = {"RUNNING": "green", "FAILED": "red", "COMPLETED": "bold green", "PENDING": "yellow"}


class Board:
    """Shows the jobs while they run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
        self._told: dict[str, int] = {}

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, views: tuple[JobView, ...]) -> None:
        """Show the newest state of all jobs."""
        if self._live is not None:
            self._live.update(_table(views))
            return
        for view in views:
            entries = view.state.timeline
            for entry in entries[self._told.get(view.name, 0) :]:
                self._console.print(Text(f"{entry.at:%H:%M:%S}  {view.name:10} {entry.kind:11} {entry.text}"))
            self._told[view.name] = len(entries)


def print_report(console: Console, report: DemoReport) -> None:
    """Print each job's timeline and how it was held against what was expected."""
    for view in report.jobs:
        console.print()
        console.print(Text(f"{view.name}  job {view.record.job_id}, {view.state.closed}", style="bold"))
        for entry in view.state.timeline if console.is_terminal else ():
            console.print(Text(f"  {entry.at:%H:%M:%S}  {entry.kind:11} {entry.text}"))
        for line in milestone_lines(view):
            console.print(Text(f"  {line}", style="dim"))
    console.print()
    for check in report.checks:
        mark = Text("ok    ", style="green") if check.met else Text("FAILED", style="bold red")
        console.print(Text.assemble(mark, f"  {check.job:10} {check.expected}"))
    console.print(f"\n{'all as expected' if report.passed else 'not as expected'} in {report.elapsed_s:.0f} s")


def _table(views: tuple[JobView, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column in ("JOB", "SLURM", "NODES", "TRY", "ITERATION", "PHASE"):
        table.add_column(column, no_wrap=True)
    table.add_column("LAST", no_wrap=True, overflow="ellipsis", ratio=1)
    for view in views:
        record, state = view.record, view.state
        table.add_row(
            view.name,
            Text(record.state.value.lower(), style=STATE_STYLES.get(record.state.value, "")),
            " ".join(record.nodes),
            str(record.restart_count),
            "" if view.iteration is None else str(view.iteration),
            state.phase.value.replace("_", " "),
            Text(f"{state.timeline[-1].kind}: {state.timeline[-1].text}" if state.timeline else ""),
        )
    return table
