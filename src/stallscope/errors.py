"""Define the errors that Stallscope raises.

    StallscopeError
    ├── UsageError            invalid arguments
    ├── NotFoundError         nothing is at the named place
    ├── UnreadableError       something is there, but cannot be read
    │   ├── UnansweredError       the server answers nothing
    │   └── UnknownVersionError   written by a newer version
    ├── UnwritableError       a file cannot be written
    ├── WouldOverwriteError   a file exists already
    └── MissingExtraError     an optional part of Stallscope is not installed

Every message is one sentence for the user: what happened, where, and what to do. Only the command line
converts errors to exit statuses.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Exceptions of clients about time-outs: the built-in one, and those of requests, urllib3, botocore and
#: Azure's client, whose classes need an extra. The names of base classes count.
TIMEOUTS_BY_NAME = {
    "TimeoutError",
    "Timeout",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "ServiceRequestTimeoutError",
    "ServiceResponseTimeoutError",
}
# urllib3's error for a refused connection or an unknown host is a time-out only by its base class.
_NO_TIMEOUTS = {"NewConnectionError"}


class StallscopeError(Exception):
    """The base class of all errors that Stallscope raises."""


class UsageError(StallscopeError):
    """The arguments are invalid."""


class NotFoundError(StallscopeError):
    """Nothing is at the place that the user named."""


class UnreadableError(StallscopeError):
    """Something is there, but it cannot be read."""


class UnansweredError(UnreadableError):
    """A server answers nothing, so that another attempt would only wait again."""


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


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which schedulers send, has ended a command; it passes through like Ctrl-C."""


def causes(error: BaseException | None, *, with_contexts: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first; None has none.

    Args:
        error: the error.
        with_contexts: whether an error that was being handled is a cause, too, as tracebacks show it.
    """
    while error is not None:
        yield error
        handled = with_contexts and not error.__suppress_context__
        error = error.__cause__ or (error.__context__ if handled else None)


def timed_out(error: BaseException | None) -> bool:
    """Whether an error is a time-out, or was raised because of one."""
    for cause in causes(error, with_contexts=True):
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & TIMEOUTS_BY_NAME and not names & _NO_TIMEOUTS:
            return True
    return False
