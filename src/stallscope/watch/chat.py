"""Notifications in the forms that chat programs take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

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
