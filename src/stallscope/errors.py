"""Define the errors that Stallscope raises.

    StallscopeError
    ├── UsageError            invalid arguments
    ├── NotFoundError         nothing is at the named place
    ├── UnreadableError       something is there, but cannot be read
    │   └── UnknownVersionError   written by a newer version
    ├── UnwritableError       a file cannot be written
    ├── WouldOverwriteError   a file exists already
    └── MissingExtraError     an optional part of Stallscope is not installed

Every message is one sentence for the user: what happened, where, and what to do. Only the command line
converts errors to exit statuses.
"""

from __future__ import annotations


class StallscopeError(Exception):
    """The base class of all errors that Stallscope raises."""


class UsageError(StallscopeError):
    """The arguments are invalid."""


class NotFoundError(StallscopeError):
    """Nothing is at the place that the user named."""


class UnreadableError(StallscopeError):
    """Something is there, but it cannot be read."""


class UnknownVersionError(UnreadableError):
    """A file has a newer version of its format than this Stallscope supports."""


class UnwritableError(StallscopeError):
    """A file cannot be written, because the disk is full or the place is read-only."""


class WouldOverwriteError(StallscopeError):
    """A file exists already; --force replaces it."""


class MissingExtraError(StallscopeError):
    """A command needs an optional part of Stallscope that is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(
            f"this needs {module}, which is not installed: pip install 'stallscope[{extra}]'"
        )
