"""Run a store with S3's API (moto), which checks keys, signatures and permissions like the real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from .server import ENVIRONMENT, answers_http, free_port, running

REGION = "us-east-1"
#: The only user may do anything with buckets whose names start with this, and nothing with others.
BUCKETS = "stallscope"
_ALLOWED = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{BUCKETS}*", f"arn:aws:s3:::{BUCKETS}*/*"],
        }
    ],
}
_IAM = "{https://iam.amazonaws.com/doc/2010-05-08/}"


@dataclass(frozen=True)
class S3:
    """A store with one user and one empty bucket."""

    endpoint: str
    key_id: str
    secret: str
    bucket: str = BUCKETS

    def settings(self) -> dict[str, str]:
        """Return the environment variables by which every client of S3 finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": REGION,
        }


@contextmanager
def s3_server(folder: Path, port: int | None = None) -> Iterator[S3]:
    """Run a store for the duration of the block; it starts empty, as all is in memory."""
    port = port or free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [
        ENVIRONMENT / "bin" / "moto_server",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with running(command, folder, lambda: answers_http(f"{endpoint}/moto-api/")):
        yield _with_a_user(endpoint)


def _with_a_user(endpoint: str) -> S3:
    """Create a user: without one, the store checks no credentials."""
    _iam(endpoint, Action="CreateUser", UserName="trainer")
    policy = {"PolicyName": BUCKETS, "PolicyDocument": json.dumps(_ALLOWED)}
    _iam(endpoint, Action="PutUserPolicy", UserName="trainer", **policy)
    key = _iam(endpoint, Action="CreateAccessKey", UserName="trainer")
    s3 = S3(endpoint, _text(key, "AccessKeyId"), _text(key, "SecretAccessKey"))
    _ask(Request(f"{endpoint}/{s3.bucket}", method="PUT"), "s3")
    headers = {"Content-Type": "text/plain"}
    _ask(Request(f"{endpoint}/moto-api/reset-auth", b"0", headers), "s3")
    return s3


def _iam(endpoint: str, **words: str) -> ElementTree.Element:
    data = urlencode({"Version": "2010-05-08", **words}).encode()
    return ElementTree.fromstring(_ask(Request(f"{endpoint}/", data=data), "iam"))


def _text(answer: ElementTree.Element, name: str) -> str:
    text = answer.findtext(f".//{_IAM}{name}")
    assert text, f"the S3 server's answer has no {name}"
    return text


def _ask(request: Request, service: str) -> bytes:
    """Send a request; the server takes the service from the scope of the signature."""
    scope = f"Credential=setup/20200101/{REGION}/{service}/aws4_request"
    request.add_header("Authorization", f"AWS4-HMAC-SHA256 {scope}")
    with urlopen(request, timeout=60) as answer:
        return bytes(answer.read())
