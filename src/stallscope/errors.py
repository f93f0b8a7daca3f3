"""What can go wrong, as one tree.

    StallscopeError
    ├── UsageError            the command's words do not fit
    ├── NotFoundError         nothing is where the user pointed
    ├── UnreadableError       something is there, but cannot be read
    │   └── UnknownVersionError   written by a version that this one does not know
    ├── UnwritableError       the disk does not take what is to be written
    ├── WouldOverwriteError   a file is there already
    └── MissingExtraError     an optional part of Stallscope is not installed

Every message is one sentence for the user: what, where, what to do. Only the command line turns
errors into exit statuses.
"""

from __future__ import annotations


class StallscopeError(Exception):
    """The root of everything that Stallscope raises on purpose."""


class UsageError(StallscopeError):
    """The command's words do not fit together."""


class NotFoundError(StallscopeError):
    """Nothing is where the user pointed."""


class UnreadableError(StallscopeError):
    """Something is there, but it cannot be read as what it should be."""


class UnknownVersionError(UnreadableError):
    """The file was written in a version of its format that this Stallscope does not know."""


class UnwritableError(StallscopeError):
    """What is to be written cannot be: a full disk, a place where nothing may be written."""


class WouldOverwriteError(StallscopeError):
    """A file exists already, and may not be replaced without --force."""


class MissingExtraError(StallscopeError):
    """A command needs an optional part that is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(
            f"this needs {module}, which is not installed: pip install 'stallscope[{extra}]'"
        )
