"""Notifications to receivers that fail, refuse and recover."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.receiver import receiver
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.errors import UsageError
from stallscope.watch import delivery as delivering
from stallscope.watch.delivery import Delivery, EventKind, Throttle, WatchEvent
from stallscope.watch.receivers import NotDeliveredError, Receiver, Webhook, form_for, receiver_of

SECRET = "s3cret"


def event(
    text: str, kind: EventKind = "holds", condition: str | None = "stopped", run: str = "a"
) -> WatchEvent:
    at = datetime(2026, 11, 25, 9, tzinfo=UTC)
    return WatchEvent(kind, at, "logs", text, run, run, condition)


def texts(events: list[WatchEvent]) -> list[str]:
    return [event.text for event in events]


@pytest.fixture
def notes() -> list[str]:
    return []


def deliver(to: Receiver, notes: list[str], *sent: str) -> None:
    """Deliver events, and wait for them."""
    delivery = Delivery(to, notes.append, first_pause_seconds=0.01)
    for text in sent:
        delivery.add(event(text))
    delivery.close(PATIENCE_SECONDS)


def test_each_event_is_one_json_object(notes: list[str]) -> None:
    with receiver() as got:
        deliver(receiver_of(got.url), notes, "one")
    (content,) = got.accepted
    assert content["text"] == "one"
    assert (content["event"], content["condition"]) == ("holds", "stopped")
    assert content["run"] == {"id": "a", "name": "a"}
    assert content["time"] == "2026-11-25T09:00:00.000Z"
    assert notes == []


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("hooks.slack.com", "slack"),
        ("HOOKS.slack.com", "slack"),
        ("hooks.slack.com.evil.example", "json"),
        ("evilhooks.slack.com", "json"),
        ("contoso.webhook.office.com", "teams"),
        ("prod-12.westeurope.logic.azure.com", "teams"),
        ("example.com", "json"),
    ],
)
def test_chat_programs_are_known_by_their_hosts(host: str, form: str) -> None:
    assert form_for(host) == form


def test_slack_gets_a_message_without_markup(notes: list[str]) -> None:
    with receiver(503) as got:
        deliver(receiver_of(got.url, "slack"), notes, "rank <1> & <!channel> *hangs*")
    (content,) = got.accepted
    text = "rank &lt;1&gt; &amp; &lt;!channel&gt; *hangs* (logs)"
    assert content == {"text": text, "mrkdwn": False}


def test_teams_get_a_card_without_markup(notes: list[str]) -> None:
    with receiver() as got:
        deliver(receiver_of(got.url, "teams"), notes, "[rank 1](http://evil) *hangs*")
    (attachment,) = got.accepted[0]["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    (block,) = attachment["content"]["body"]
    assert block["text"] == r"\[rank 1\]\(http://evil\) \*hangs\* \(logs\)"


def test_commands_get_json_only() -> None:
    with pytest.raises(UsageError, match="--notify-as: commands get JSON"):
        receiver_of(sys.executable, "slack")


def test_after_failures_they_are_delivered_in_order_and_once(notes: list[str]) -> None:
    with receiver(503, 500) as got:
        deliver(receiver_of(got.url), notes, "one", "two", "three")
    assert [notification["text"] for notification in got.accepted] == ["one", "two", "three"]
    assert len({notification["id"] for notification in got.accepted}) == 3
    first, second = notes
    assert first.endswith("not delivered: it answers with 503; trying again")
    assert second.endswith("delivered again")


def test_a_receiver_that_was_down_gets_them_when_it_is_back(
    notes: list[str], tmp_path: Path
) -> None:
    class Back(Receiver):
        """Unreachable until it is back."""

        name = "back"

        def __init__(self) -> None:
            self.to = Webhook("http://127.0.0.1:1/hook")

        def send(self, body: bytes) -> None:
            self.to.send(body)

    back = Back()
    delivery = Delivery(back, notes.append, first_pause_seconds=0.01)
    delivery.add(event("one"))
    wait_until(lambda: notes, "the first attempt fails")
    delivery.add(event("two"))
    with receiver() as got:
        back.to = Webhook(got.url)
        delivery.close(PATIENCE_SECONDS)
    assert [notification["text"] for notification in got.accepted] == ["one", "two"]
    assert "Connection refused; trying again" in notes[0]


@pytest.mark.parametrize("status", [404, 400, 302])
def test_refused_notifications_are_not_sent_again(notes: list[str], status: int) -> None:
    with receiver(status) as got:
        deliver(receiver_of(got.url), notes, "one", "two")
    assert [notification["text"] for notification in got.accepted] == ["two"]
    assert [path for path, _ in got.requests] == ["/hook", "/hook"]
    assert notes == [
        f"--notify {got.url.removesuffix('/hook')}: not delivered: it answers with {status}"
    ]


def test_a_login_is_sent_and_no_secret_is_printed(notes: list[str]) -> None:
    with receiver(503, 403) as got:
        url = got.url.replace("//", f"//ada:{SECRET}@") + f"/{SECRET}?token={SECRET}"
        deliver(receiver_of(url), notes, "one")
    path, login = got.requests[0]
    assert path == f"/hook/{SECRET}?token={SECRET}"
    assert login == "Basic YWRhOnMzY3JldA=="
    assert len(notes) == 2
    assert SECRET not in "".join(notes)


@pytest.mark.parametrize(
    "url", [f"https://{SECRET}@", f"http://host:{SECRET}/", f"http://[{SECRET}/", "https:///hook"]
)
def test_a_wrong_url_is_an_error_that_does_not_show_it(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        receiver_of(url)
    assert SECRET not in str(raised.value)


def test_a_url_with_spaces_is_not_tried_again(notes: list[str]) -> None:
    deliver(receiver_of(f"http://127.0.0.1:9/{SECRET} hook"), notes, "one")
    assert notes == ["--notify http://127.0.0.1:9: not delivered: its URL is invalid"]


def test_undelivered_notifications_are_counted(notes: list[str]) -> None:
    class Down(Receiver):
        name = "down"

        def send(self, body: bytes) -> None:
            raise NotDeliveredError("it is down", again=True)

    delivery = Delivery(Down(), notes.append)
    delivery.add(event("one"))
    delivery.add(event("two"))
    wait_until(lambda: notes, "the first attempt fails")
    delivery.close(0.0)
    assert notes[-1] == "--notify down: 2 not delivered"


def test_the_oldest_are_dropped_when_too_many_wait(
    notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "_MOST_WAITING", 2)
    with receiver(*[503] * 100_000) as got:
        delivery = Delivery(receiver_of(got.url), notes.append, first_pause_seconds=0.01)
        delivery.add(event("0"))
        wait_until(lambda: got.requests, "the first one is being delivered")
        for number in range(1, 6):
            delivery.add(event(str(number)))
        del got.answers[1:]
        delivery.close(PATIENCE_SECONDS)
    assert [notification["text"] for notification in got.accepted][-2:] == ["4", "5"]
    assert sum("the oldest are dropped" in note for note in notes) == 1


def test_a_command_has_the_json_on_its_standard_input(notes: list[str], tmp_path: Path) -> None:
    out = tmp_path / "got.jsonl"
    program = f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + chr(10))"
    deliver(receiver_of(f'{sys.executable} -c "{program}"'), notes, "one; rm -rf /", "two")
    got = [json.loads(line) for line in out.read_text().splitlines()]
    assert [notification["text"] for notification in got] == ["one; rm -rf /", "two"]
    assert notes == []


def test_a_command_that_fails_runs_once(notes: list[str], tmp_path: Path) -> None:
    out = tmp_path / "runs"
    program = f"import sys; open({str(out)!r}, 'a').write('x'); sys.exit(3)"
    deliver(receiver_of(f'{sys.executable} -c "{program}" {SECRET}'), notes, "one")
    assert out.read_text() == "x"
    assert notes == [f"--notify {sys.executable}: not delivered: it ended with status 3"]


@pytest.mark.parametrize("text", ["", "no-such-command --now", "echo 'open", "ftp://host/place"])
def test_a_command_that_does_not_exist_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="--notify"):
        receiver_of(text)


def test_at_most_one_per_condition_and_minute() -> None:
    throttle = Throttle()
    assert texts(throttle.passed([event("stops"), event("other", condition="x>1")], 0)) == [
        "stops",
        "other",
    ]
    assert throttle.passed([event("goes on", "ceased")], 20) == []
    assert throttle.passed([event("stops again")], 40) == []
    assert texts(throttle.passed([event("another run", run="b")], 50)) == ["another run"]
    # Only the last state counts.
    assert texts(throttle.passed([], 60)) == ["stops again"]
    assert throttle.passed([], 200) == []


def test_the_end_of_a_run_replaces_waiting_notifications() -> None:
    throttle = Throttle()
    throttle.passed([event("stops")], 0)
    ended = [event("goes on", "ceased"), event("completed", "completed", None)]
    assert texts(throttle.passed(ended, 1)) == ["completed"]
    assert throttle.passed([], 100) == []
