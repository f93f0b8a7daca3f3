"""Details of Azure: its clients' logins, Spark's URLs, placeholders of folders."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from support.places import refusal
from support.stores import SECRET, Bucket

from stallscope.collector.source_kinds import open_source
from stallscope.errors import UsageError

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("one_attempt")]


def put(bucket: Bucket, name: str, data: bytes = b"123", **facts: str) -> None:
    """Write a blob as other programs do, with a name and properties unknown to adlfs."""
    from azure.storage.blob import BlobClient

    connection = bucket.store.service.connection_string
    with BlobClient.from_connection_string(connection, bucket.name, name) as blob:
        blob.upload_blob(data, metadata=facts)


def test_placeholders_of_folders_do_no_harm(az_bucket: Bucket) -> None:
    put(az_bucket, "run-a/rank-0.csv")
    put(az_bucket, "run-a", b"", hdi_isfolder="true")
    put(az_bucket, "run-a/plots", b"", hdi_isfolder="true")
    files = {file.name: file for file in open_source(az_bucket.url("run-a")).files()}
    assert list(files) == ["rank-0.csv"]
    put(az_bucket, "run-a/notes/", b"")
    files = {file.name: file for file in open_source(az_bucket.url("run-a")).files()}
    assert sorted(files) == ["notes", "rank-0.csv"]
    assert files["notes"].read() == b""


@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
def test_all_names_of_the_protocol_mean_the_same(az_bucket: Bucket, scheme: str) -> None:
    put(az_bucket, "run-a/rank-0.csv")
    account = az_bucket.store.service.account
    for place in (az_bucket.name, f"{az_bucket.name}@{account}.dfs.core.windows.net"):
        (file,) = open_source(f"{scheme}://{place}/run-a").files()
        assert (file.name, file.read()) == ("rank-0.csv", b"123")
        assert file.where == f"{scheme}://{place}/run-a/rank-0.csv"


def test_a_shared_access_signature_is_a_login(
    az_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    put(az_bucket, "run-a/rank-0.csv")
    service = az_bucket.store.service

    def use(ends: datetime) -> str:
        words = (service.account, az_bucket.name, service.key)
        may = ContainerSasPermissions(read=True, list=True)
        signature = generate_container_sas(*words, permission=may, expiry=ends)
        text = (
            f"BlobEndpoint={service.endpoint}/{service.account};SharedAccessSignature={signature}"
        )
        az_bucket.store.use(monkeypatch, AZURE_STORAGE_CONNECTION_STRING=text)
        return signature.rpartition("sig=")[2]

    use(datetime.now(UTC) + timedelta(days=1))
    (file,) = open_source(az_bucket.url("run-a")).files()
    assert file.read() == b"123"
    secret = use(datetime.now(UTC) - timedelta(days=1))
    sentence = refusal(az_bucket.url("run-a"), "cannot be opened: ")
    assert "access denied (AuthorizationFailure)" in sentence
    assert secret not in sentence


@pytest.mark.parametrize("text", ["", f"AccountKey={SECRET}", SECRET])
def test_no_account_is_an_error_of_one_sentence(
    az_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    az_bucket.store.use(monkeypatch, AZURE_STORAGE_CONNECTION_STRING=text)
    assert "the storage account is missing or invalid" in refusal(
        az_bucket.url("a"), "cannot be opened: "
    )
    with pytest.raises(UsageError):
        open_source(az_bucket.url("a")).files()


def test_an_invalid_key_is_an_error_of_one_sentence(
    az_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = az_bucket.store.service
    text = service.connection_string.replace(service.key, SECRET)
    az_bucket.store.use(monkeypatch, AZURE_STORAGE_CONNECTION_STRING=text)
    assert "the key or login is invalid (" in refusal(az_bucket.url("a"), "cannot be opened: ")


def test_no_login_is_an_error_of_one_sentence(
    az_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    az_bucket.store.use(monkeypatch)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    sentence = refusal(
        f"abfss://logs@{az_bucket.store.service.account}.dfs.core.windows.net/a",
        "cannot be opened: ",
    )
    assert "the key or login is invalid (" in sentence
    assert "'az login'" in sentence


def test_an_unknown_host_is_an_error_of_one_sentence(
    az_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = az_bucket.store.service
    key = base64.b64encode(SECRET.encode()).decode()
    text = (
        f"AccountName={service.account};AccountKey={key};"
        f"BlobEndpoint=http://no-such-account.invalid/{service.account}"
    )
    az_bucket.store.use(monkeypatch, AZURE_STORAGE_CONNECTION_STRING=text)
    assert "Cannot connect to host no-such-account.invalid" in refusal(
        az_bucket.url("a"), "cannot be opened: "
    )
