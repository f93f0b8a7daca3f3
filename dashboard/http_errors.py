"""Map errors to HTTP responses, for addresses that return data instead of a page."""

from __future__ import annotations

import logging

from stallscope.errors import NotFoundError, StallscopeError, UsageError

_log = logging.getLogger(__name__)


def message_and_status(error: Exception, subject: str) -> tuple[str, int]:
    """Return the message and the HTTP status of an error; log those that should not happen.

    Args:
        subject: the missing response, for the log.
    """
    if isinstance(error, StallscopeError):
        missing, invalid = isinstance(error, NotFoundError), isinstance(error, UsageError)
        return str(error), 404 if missing else 400 if invalid else 500
    _log.error("%s failed", subject, exc_info=error)
    return "Stallscope failed here; the terminal that it runs in shows where", 500
