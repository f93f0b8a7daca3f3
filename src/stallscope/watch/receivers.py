"""Receivers of notifications: a URL that takes POST requests, a chat, or a command."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from http.client import HTTPException, InvalidURL
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from stallscope import __version__
from stallscope.errors import UsageError

_TIMEOUT_SECONDS = 10.0
# Commands may send mail, which takes longer.
_COMMAND_SECONDS = 60.0
# Statuses after which another attempt may succeed.
_PASSING = (408, 425, 429, *range(500, 600))

Form = Literal["json", "slack", "teams"]
#: The ends of the host names of incoming webhooks.
_HOSTS: Mapping[str, Form] = {
    "hooks.slack.com": "slack",
    ".webhook.office.com": "teams",
    ".logic.azure.com": "teams",
    ".powerplatform.com": "teams",
}
# Markdown of Teams' cards. Text from logs shows as itself.
_TEAMS_SPECIAL = re.compile(r"([\\`*_\[\]()#])")


class NotDeliveredError(Exception):
    """A notification could not be delivered; the message is the reason."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        #: Whether another attempt may succeed.
        self.again = again


class Receiver(ABC):
    """Takes notifications."""

    #: For messages, without secrets.
    name: str

    @abstractmethod
    def send(self, body: bytes) -> None:
        """Deliver one JSON object.

        Raises:
            NotDeliveredError: if it was not delivered.
        """


def receiver_of(text: str, form: Form | None = None) -> Receiver:
    """Return the receiver of ``--notify``.

    Args:
        form: the form that a URL takes; default: that of its host.

    Raises:
        UsageError: if it is neither a URL nor a command on this machine.
    """
    if text.lower().startswith(("http://", "https://")):
        return Webhook(text, form)
    if form is not None:
        raise UsageError("--notify-as: commands get JSON; give it with a URL")
    return Command(text)


class Webhook(Receiver):
    """POSTs to a URL. Its path and query may be secrets, and so may its user name."""

    def __init__(self, url: str, form: Form | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host:
            raise UsageError("--notify: this is not a URL; give https://HOST/PATH, or a command")
        place = f"[{host}]" if ":" in host else host
        netloc = place if port is None else f"{place}:{port}"
        self.name = f"{parts.scheme}://{netloc}"
        self._url = urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, ""))
        self._form = form or form_for(host)
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"stallscope/{__version__}",
            **_login(parts),
        }
        self._opener = urllib.request.build_opener(_NoRedirects)

    def send(self, body: bytes) -> None:
        try:
            body = in_form(self._form, body)
            request = urllib.request.Request(self._url, body, self._headers, method="POST")
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS):
                return
        except urllib.error.HTTPError as error:
            error.close()
            again = error.code in _PASSING
            raise NotDeliveredError(f"it answers with {error.code}", again=again) from None
        except urllib.error.URLError as error:
            raise NotDeliveredError(_reason(error.reason), again=True) from None
        except (ValueError, InvalidURL):
            # The message may contain the URL.
            raise NotDeliveredError("its URL is invalid", again=False) from None
        except (OSError, HTTPException) as error:
            raise NotDeliveredError(_reason(error), again=True) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the request would become a GET without the notification."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _login(parts: SplitResult) -> dict[str, str]:
    """Return the header for a user name and password in the URL."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT_SECONDS:.0f} s"
    return getattr(error, "strerror", None) or type(error).__name__


class Command(Receiver):
    """Runs a command without a shell, with the JSON on its standard input.

    It runs once per notification, because a command that fails may have done part of its work.
    """

    def __init__(self, text: str) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--notify: the command cannot be split into words: {error}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            name = self._words[0] if self._words else ""
            raise UsageError(
                f"--notify: there is no command {name!r}; give a command, or https://HOST/PATH"
            )
        self.name = self._words[0]

    def send(self, body: bytes) -> None:
        try:
            # Its output must not mix with the events on standard output.
            done = subprocess.run(
                self._words,
                input=body,
                stdout=subprocess.DEVNULL,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {_COMMAND_SECONDS:.0f} s"
            raise NotDeliveredError(reason, again=False) from None
        except OSError as error:
            raise NotDeliveredError(_reason(error), again=False) from None
        if done.returncode:
            raise NotDeliveredError(f"it ended with status {done.returncode}", again=False)


# -- Notifications in the forms that chat programs take -------------------------------------------


def form_for(host: str) -> Form:
    """Return the form that a host takes: JSON, unless it is known as a chat program's."""
    forms = (
        form for end, form in _HOSTS.items() if f".{host.lower()}".endswith(f".{end.lstrip('.')}")
    )
    return next(forms, "json")


def in_form(form: Form, body: bytes) -> bytes:
    """Return a notification as a chat program takes it.

    Args:
        body: the notification as JSON, which is returned unchanged for ``json``.
    """
    if form == "json":
        return body
    content = json.loads(body)
    return json.dumps(_FORMS[form](f"{content['text']} ({content['source']})")).encode()


def _slack(text: str) -> dict[str, Any]:
    # https://docs.slack.dev/messaging/formatting-message-text: these three are special.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": escaped, "mrkdwn": False}


def _teams(text: str) -> dict[str, Any]:
    block = {"type": "TextBlock", "text": _TEAMS_SPECIAL.sub(r"\\\1", text), "wrap": True}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [block],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


_FORMS: Mapping[str, Callable[[str], dict[str, Any]]] = {"slack": _slack, "teams": _teams}
