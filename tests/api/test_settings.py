"""Settings: where they come from, and one sentence for each that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.tables import CreateTable
from tarnlog_server.bootstrap import Service
from tarnlog_server.settings import BadSettings, Settings, is_loopback, load_settings

KEY = {"id": "k", "sha256": "0" * 64, "scope": "read"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("TARNLOG_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults() -> None:
    settings = load_settings()
    assert (settings.warehouse, settings.host, settings.port) == ("./data", "127.0.0.1", 8420)
    assert settings.api_keys == ()


def test_arguments_beat_the_environment_which_beats_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tarnlog.toml").write_text('warehouse = "/file"\nport = 1\nhost = "localhost"\nlocations = ["/x"]\n')
    monkeypatch.setenv("TARNLOG_WAREHOUSE", "/environment")
    monkeypatch.setenv("TARNLOG_PORT", "2")
    settings = load_settings(port=3, warehouse=None)
    assert (settings.warehouse, settings.port, settings.host) == ("/environment", 3, "localhost")
    assert settings.locations == ("/x",)


def test_a_file_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tarnlog.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("port = 2\n")
    assert load_settings("other.toml").port == 2
    monkeypatch.setenv("TARNLOG_CONFIG", str(tmp_path / "other.toml"))
    assert load_settings().port == 2
    assert load_settings("tarnlog.toml").port == 1
    assert os.environ["TARNLOG_CONFIG"] == str(tmp_path / "other.toml")


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARNLOG_API_KEYS", json.dumps([{**KEY, "namespaces": "sales*"}]))
    [key] = load_settings(host="0.0.0.0").api_keys
    assert (key.id, key.scope, key.namespaces) == ("k", "read", "sales*")


@pytest.mark.parametrize("url", ["http://10.0.0.7:8420", "https://replica-1.example.com/", "http://[fd00::7]:8420"])
def test_where_other_replicas_reach_this_one(url: str) -> None:
    settings = load_settings(advertised_url=url, database_url="postgresql://db/tarnlog")
    assert settings.advertised_url == url.rstrip("/")
    for database in ("off", "memory"):
        with pytest.raises(BadSettings, match="TARNLOG_DATABASE_URL"):
            load_settings(advertised_url=url, database_url=database)


@pytest.mark.parametrize(
    "name, value, named",
    [
        ("PORT", "http", "TARNLOG_PORT"),
        ("PORT", "70000", "TARNLOG_PORT"),
        ("LOG_LEVEL", "loud", "TARNLOG_LOG_LEVEL"),
        ("LOG_FORMAT", "xml", "TARNLOG_LOG_FORMAT"),
        ("HEDGE", "maybe", "TARNLOG_HEDGE"),
        ("MAX_WAITING", "0", "TARNLOG_MAX_WAITING"),
        ("COMMIT_DEADLINE_SECONDS", "0", "TARNLOG_COMMIT_DEADLINE_SECONDS"),
        ("CACHE_TTL_SECONDS", "nan", "TARNLOG_CACHE_TTL_SECONDS"),
        ("WAREHOUSE", "", "TARNLOG_WAREHOUSE"),
        ("LOCATIONS", "not json", "TARNLOG_LOCATIONS"),
        ("API_KEYS", "[{}]", "TARNLOG_API_KEYS (0.id)"),
        ("API_KEYS", json.dumps([{**KEY, "sha256": "short"}]), "TARNLOG_API_KEYS (0.sha256)"),
        ("API_KEYS", json.dumps([{**KEY, "scope": "root"}]), "TARNLOG_API_KEYS (0.scope)"),
        ("API_KEYS", json.dumps([{**KEY, "secret": "x"}]), "TARNLOG_API_KEYS (0.secret)"),
        ("API_KEYS", json.dumps([KEY, KEY]), "same id"),
        ("ADVERTISED_URL", "10.0.0.7:8420", "TARNLOG_ADVERTISED_URL"),
        ("ADVERTISED_URL", "http://10.0.0.7:8420/v1", "without a path"),
        ("ADVERTISED_URL", "http://key@10.0.0.7:8420", "TARNLOG_ADVERTISED_URL"),
        ("ADVERTISED_URL", "http://10.0.0.7:8420", "TARNLOG_DATABASE_URL"),
        ("LEASE_SECONDS", "0", "TARNLOG_LEASE_SECONDS"),
        ("FORWARD_TIMEOUT_SECONDS", "0", "TARNLOG_FORWARD_TIMEOUT_SECONDS"),
        ("HOST", "0.0.0.0", "TARNLOG_API_KEYS"),
        ("HOST", "example.com", "TARNLOG_API_KEYS"),
    ],
)
def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str) -> None:
    monkeypatch.setenv(f"TARNLOG_{name}", value)
    with pytest.raises(BadSettings) as caught:
        load_settings()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text, named", [("ports = 1", "TARNLOG_PORTS"), ("port = ", "settings"), ("\0", "settings")])
def test_bad_files_are_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "tarnlog.toml").write_text(text)
    with pytest.raises(BadSettings, match=named):
        load_settings()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(BadSettings, match=r"missing\.toml"):
        load_settings("missing.toml")


def test_other_variables_of_the_prefix_are_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARNLOG_DEV_PYTHON", "python3")
    assert load_settings().port == 8420


@pytest.mark.parametrize(
    "host, loopback",
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("LocalHost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("localhost.example.com", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    "env, said",
    [
        ({"TARNLOG_PORT": "http"}, "TARNLOG_PORT"),
        ({"TARNLOG_HOST": "0.0.0.0"}, "TARNLOG_API_KEYS"),
        ({"TARNLOG_WAREHOUSE": "ftp://x/y"}, "TARNLOG_WAREHOUSE"),
        ({"TARNLOG_LOCATIONS": '["ftp://x/y"]'}, "TARNLOG_LOCATIONS"),
        ({"TARNLOG_HOST": "127.0.0.1", "TARNLOG_PORT": "1"}, "TARNLOG_PORT"),
    ],
)
def test_the_process_says_one_sentence_and_ends_with_2(tmp_path: Path, env: dict[str, str], said: str) -> None:
    if env.get("TARNLOG_PORT") == "1" and os.geteuid() == 0:
        import socket

        taken = socket.create_server(("127.0.0.1", 0))
        env = {**env, "TARNLOG_PORT": str(taken.getsockname()[1])}
    done = subprocess.run(
        [sys.executable, "-m", "tarnlog_server"],
        env={**os.environ, **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


# ---- every setting, with values that cannot be used

WRONG: dict[str, list[str]] = {
    "warehouse": ["", "s3:/lake", "s3//lake", "S3:/x", "S3://x", "s3:lake", "file:/x", "gs:/x"],
    "locations": ["", "x", "{}", "1", '["s3:/x"]', "[1]"],
    "allowed_hosts": ["", "x", "[1]", '["a b"]'],
    "database_url": [""],
    "host": [""],
    "log_level": ["", "loud"],
    "log_format": ["xml"],
    "s3_endpoint": ["", "localhost:9000"],
    "s3_client": ["aws"],
    "api_keys": ["", " ", "etl", "{}", "[1]", "[{}]", "null", json.dumps([{**KEY, "sha256": "x"}]), "[" * 5000],
    "table_defaults": [
        "",
        "x",
        "[]",
        '{"checkpoint.intervall": 5}',
        '{"Checkpoint.Interval": 5}',
        '{"checkpoint.interval": 0}',
        '{"checkpoint.interval": null}',
        '{"checkpoint.interval": [1]}',
        '{"owner": "me"}',
        '{"checkpoint.retention": 5}',
        '{"commit.dedupe.duration": "60d"}',
    ],
    "hedge": ["maybe"],
    "advertised_url": ["", "10.0.0.7:8420"],
}
JARGON = ("Source", "pydantic", "error parsing", "validation", "Input should", "Value error", "Error", "str", "tuple")


def wrong_values() -> list[tuple[str, str]]:
    cases = []
    for name, field in Settings.model_fields.items():
        values = WRONG.get(name)
        if values is None:
            assert field.annotation in (int, float, bool), f"what is wrong for {name}?"
            values = ["", "many"] if field.annotation is bool else ["many", "nan", "-1", "9" * 30]
        cases += [(name, value) for value in values]
    return cases


@pytest.mark.parametrize("name, value", wrong_values())
def test_a_value_that_cannot_be_used_is_one_plain_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TARNLOG_{name.upper()}", value)
    with pytest.raises(BadSettings) as caught:
        load_settings()
    said = str(caught.value)
    assert said.startswith(f"TARNLOG_{name.upper()}")
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 400
    assert not [word for word in JARGON if word in said.replace("string", "")], said
    assert any(
        hint in said for hint in ("write", "must", "did you mean", "case counts", "does nothing", "no table prop")
    )


@pytest.mark.parametrize(
    "text, said",
    [
        ("prot = 1", "TARNLOG_PROT is not a setting; did you mean port?"),
        ('ware_house = "x"', "TARNLOG_WARE_HOUSE is not a setting; did you mean warehouse?"),
        ("zebra = 1", "TARNLOG_ZEBRA is not a setting; remove it or correct its name."),
        ('[[api_keys]]\nid = "a"\nsha265 = "b"', "TARNLOG_API_KEYS (0.sha256) is not valid: must be set."),
        ("port = ", "The settings file tarnlog.toml cannot be read: "),
        ("port = [1]", "TARNLOG_PORT is not valid: must be a whole number from 0 to 65535."),
        ("api_keys = 5", 'TARNLOG_API_KEYS is not valid: must be a JSON list such as [{"id"'),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tarnlog.toml").write_text(text)
    with pytest.raises(BadSettings) as caught:
        load_settings()
    assert str(caught.value).startswith(said)


def test_properties_of_all_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = {"checkpoint.interval": "50", "commit.coalesce": "false", "state.format": "json"}
    monkeypatch.setenv(
        "TARNLOG_TABLE_DEFAULTS", '{"checkpoint.interval": 50, "commit.coalesce": false, "state.format": "json"}'
    )
    assert load_settings().table_defaults == wanted
    monkeypatch.delenv("TARNLOG_TABLE_DEFAULTS")
    file = tmp_path / "tarnlog.toml"
    file.write_text('[table_defaults]\ncheckpoint.interval = 50\n"commit.coalesce" = false\nstate.format = "json"\n')
    assert load_settings().table_defaults == wanted


async def test_properties_of_all_tables_reach_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARNLOG_TABLE_DEFAULTS", '{"checkpoint.interval": 50}')
    service = Service(load_settings(warehouse="memory://defaults", database_url="off"))
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    asked = CreateTable(name="db.t", schema={"type": "struct", "fields": fields})
    view = await service.coordinator.tables.create(asked)
    assert view.defaults == {"checkpoint.interval": "50"}
    table = await service.coordinator.open_tables.get(TableName.parse("db.t"))
    assert table.live.setting("checkpoint.interval") == 50
    await service.coordinator.close(0)
