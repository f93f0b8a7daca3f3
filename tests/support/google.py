"""Google's sign-in before the emulator of its store, which checks no credentials.

No emulator of its store checks a login, so this proxy does: it exchanges a service account's signed
request for a token, and refuses others with Google's messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from .door import Answer, Request, door

TOKEN = "ya29.a-token-that-no-message-may-hold"
ACCOUNT = "train@stallscope.iam.gserviceaccount.com"


@dataclass(frozen=True)
class Google:
    """The store's address, and the file for its clients' login."""

    endpoint: str
    key_file: Path

    def settings(self) -> dict[str, str]:
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.key_file),
            # Clients must not check whether this is a machine of Google.
            "NO_GCE_CHECK": "true",
        }


@contextmanager
def signed_in(endpoint: str, folder: Path, bucket: str) -> Iterator[Google]:
    """Run a proxy before a store: one service account may read buckets with this prefix."""
    with door(endpoint) as front:
        key_file = folder / "service-account.json"
        public = write_key_file(key_file, front.url)
        front.answers = lambda request: _answer(request, public, bucket)
        yield Google(front.url, key_file)


def write_key_file(path: Path, endpoint: str) -> str:
    """Write the file that Google gives the owner of a service account; return its new public key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    content = {
        "type": "service_account",
        "project_id": "stallscope",
        "private_key_id": "4711",
        "private_key": private.decode(),
        "client_email": ACCOUNT,
        "client_id": "42",
        "token_uri": f"{endpoint}/token",
    }
    path.write_text(json.dumps(content))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def _answer(request: Request, public: str, bucket: str) -> Answer | None:
    if request.path == "/token":
        return _token(request, public)
    denied = f"does not have storage.objects.list access to {request.path.split('?')[0]}."
    login = request.headers.get("Authorization")
    if login is None:
        return _refused(401, f"Anonymous caller {denied}")
    if login != f"Bearer {TOKEN}":
        return _refused(401, "Invalid Credentials")
    if "/b/" in request.path and f"/b/{bucket}" not in request.path:
        return _refused(403, f"{ACCOUNT} {denied}")
    return None


def _token(request: Request, public: str) -> Answer:
    from google.auth import exceptions, jwt

    (signed,) = parse_qs(request.body.decode())["assertion"]
    try:
        jwt.decode(signed, {"4711": public})
    except (ValueError, exceptions.GoogleAuthError):
        refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        return 400, json.dumps(refusal).encode()
    return 200, json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode()


def _refused(status: int, message: str) -> Answer:
    return status, json.dumps({"error": {"code": status, "message": message}}).encode()
