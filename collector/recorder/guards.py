"""What keeps a recorder's own mistakes out of training."""

from __future__ import annotations

import functools
from typing import Any, Callable

Method = Callable[..., None]


def never_raises(method: Method) -> Method:
    """Whatever fails in a method of a recording ends that with one warning (``fail``), nothing else."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # whatever it is, it may not reach training
            self.fail(error)

    return guarded


def while_running(method: Method) -> Method:
    """The same of a method that does nothing unless the recording runs (``running``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.running:
            try:
                method(self, *args, **kwargs)
            except Exception as error:  # whatever it is, it may not reach training
                self.fail(error)

    return guarded
