"""Logs of the processes: one structured line each on stderr, Temporal's own included."""

from __future__ import annotations

import logging
import sys

import structlog


def set_up_logging(*, debug: bool, quiet: bool = False) -> None:
    """Send all logs to stderr, coloured on a terminal only; warnings only from libraries unless `debug`.

    `quiet`: only errors, for commands that answer and end.
    """
    level = logging.DEBUG if debug else logging.ERROR if quiet else logging.INFO
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Rich's tracebacks import modules when they are made, which the workflow sandbox forbids.
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                ),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("temporalio", "httpx", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.DEBUG if debug else logging.WARNING)
