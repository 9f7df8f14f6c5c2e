"""The repository keeps its own rules: lint, types, import direction, and scripts that work from a clean clone.

One xdist group: mypy and the import graph are built once, on one worker.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tarnlog_server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.xdist_group("repo")


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it wrote is in the result."""
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True
    )


def must_pass(*command: str | Path) -> None:
    """Run a checker and fail with everything that it said."""
    result = run(*command)
    assert result.returncode == 0, f"{command[0]} found something:\n{result.stdout}\n{result.stderr}"


def test_ruff_check() -> None:
    must_pass(sys.executable, "-m", "ruff", "check", ".")


def test_ruff_format() -> None:
    must_pass(sys.executable, "-m", "ruff", "format", "--check", "--diff", ".")


@pytest.mark.timeout(900)
def test_mypy_strict() -> None:
    must_pass(sys.executable, "-m", "mypy")


def test_import_contracts() -> None:
    must_pass(BIN / "lint-imports")


def test_mypy_covers_every_package() -> None:
    """A checker that is pointed at the wrong folders passes for ever."""
    from mypy.main import process_options

    sources, options = process_options(["--config-file", str(ROOT / "pyproject.toml")])
    checked = {source.module for source in sources}
    assert {"tarnlog.protocol.ids", "tarnlog_server.core", "tarnlog_spark", "tests.test_repo"} <= checked
    assert options.disallow_untyped_defs
    assert options.warn_return_any


@pytest.mark.parametrize(
    "module, line, broken",
    [
        ("service/src/tarnlog_server/core/rule.py", "import time", "Core and codec"),
        ("service/src/tarnlog_server/codec/bytes.py", "import asyncio", "Core and codec"),
        ("service/src/tarnlog_server/core/rule.py", "import tarnlog_server.usecases", "Rooms of the service"),
        ("service/src/tarnlog_server/api/route.py", "import tarnlog_server.adapters", "Rooms of the service"),
        ("service/src/tarnlog_server/extras.py", "", "Rooms of the service"),
        ("service/src/tarnlog_server/adapters/disk.py", "import tarnlog_server.core", "Adapters know ports"),
        ("service/src/tarnlog_server/usecases/verb.py", "import fastapi", "Use cases know no framework"),
        ("client/src/tarnlog/protocol/word.py", "import httpx", "The protocol knows nothing"),
        ("client/src/tarnlog/protocol/word.py", "import tarnlog.sdk", "The protocol knows nothing"),
        ("client/src/tarnlog/protocol/word.py", "from tarnlog import anything", "The protocol does not import"),
        ("client/src/tarnlog/sdk.py", "import tarnlog_server", "The client needs no service"),
        ("spark_connector/src/tarnlog_spark/write.py", "import tarnlog_server", "The client needs no service"),
        ("client/src/tarnlog/sdk.py", "import tarnlog_spark", "Nothing depends on the Spark connector"),
    ],
)
def test_import_contracts_catch(tmp_path: Path, module: str, line: str, broken: str) -> None:
    """Each contract sees the import that it is there to forbid, in a skeleton of the packages."""
    rooms = ["api", "jobs", "adapters", "usecases", "ports", "codec", "core"]
    packages = [f"service/src/tarnlog_server/{room}" for room in rooms]
    for package in ["service/src/tarnlog_server", *packages, "client/src/tarnlog", "client/src/tarnlog/protocol"]:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "client/src/tarnlog/sdk.py").touch()
    (tmp_path / "spark_connector/src/tarnlog_spark").mkdir(parents=True)
    (tmp_path / "spark_connector/src/tarnlog_spark/__init__.py").touch()
    path = os.pathsep.join(str(tmp_path / part / "src") for part in ("client", "service", "spark_connector"))
    command: list[str | Path] = [BIN / "lint-imports", "--no-cache", "--config", ROOT / "pyproject.toml"]

    clean = run(*command, cwd=tmp_path, env={"PYTHONPATH": path})
    assert clean.returncode == 0, clean.stdout + clean.stderr
    (tmp_path / module).write_text(line + "\n")
    result = run(*command, cwd=tmp_path, env={"PYTHONPATH": path})
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(rf"^{broken}.* BROKEN$", result.stdout, re.MULTILINE), result.stdout


def test_dev_help_names_every_command() -> None:
    result = run(ROOT / "dev", "help")
    assert result.returncode == 0
    for command in ("demo", "test", "serve", "bench", "lint", "openapi"):
        assert re.search(rf"^  {command}\b", result.stdout, re.MULTILINE), command


def test_dev_refuses_an_unknown_command() -> None:
    result = run(ROOT / "dev", "sevre")
    assert result.returncode != 0
    assert "there is no command 'sevre'" in result.stderr


@pytest.fixture
def bare_clone(tmp_path: Path) -> Path:
    """What ./dev looks at, in a folder with a space; its uv notes each call, its Python prints its arguments."""
    clone = tmp_path / "a clone"
    for name in ("pyproject.toml", "uv.lock", "client/pyproject.toml", "service/pyproject.toml", "dev", ".ci/run"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "spark_connector").mkdir()
    shutil.copy(ROOT / "spark_connector/pyproject.toml", clone / "spark_connector")
    tools = tmp_path / "tools"
    tools.mkdir()
    shown = tools / "shown"
    shown.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\necho "long=$TARNLOG_TEST_LONG"\nexit 7\n')
    shown.chmod(0o755)
    uv = tools / "uv"
    uv.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then exit 0; fi\n'
        f'echo "$@" >> "{tmp_path}/uv calls"\n'
        f'mkdir -p .venv/bin && cp "{shown}" .venv/bin/python\n'
    )
    uv.chmod(0o755)
    return clone


def run_in(clone: Path, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run from another folder, with the clone's stand-in tools first on the PATH."""
    path = f"{clone.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"
    return run(*command, cwd=clone.parent, env={"PATH": path, "TARNLOG_TEST_LONG": "", **env})


def uv_calls(clone: Path) -> int:
    return len((clone.parent / "uv calls").read_text().splitlines())


def test_dev_installs_once_and_again_when_the_lock_changes(bare_clone: Path) -> None:
    first = run_in(bare_clone, bare_clone / "dev", "demo", "two words")
    assert first.stdout.splitlines()[:3] == ["[-m]", "[tarnlog_spark.demo]", "[two words]"], first.stderr
    assert "installing into .venv with uv" in first.stderr
    second = run_in(bare_clone, bare_clone / "dev", "demo")
    assert second.stderr == ""
    assert uv_calls(bare_clone) == 1
    with (bare_clone / "uv.lock").open("a") as lock:
        lock.write("\n")
    third = run_in(bare_clone, bare_clone / "dev", "demo")
    assert "the dependencies changed" in third.stderr
    assert uv_calls(bare_clone) == 2


def test_dev_makes_a_moved_environment_anew(bare_clone: Path) -> None:
    run_in(bare_clone, bare_clone / "dev", "demo")
    (bare_clone / ".venv/leftover").touch()
    moved = bare_clone.rename(bare_clone.parent / "moved")
    result = run_in(moved, moved / "dev", "demo")
    assert "in another place" in result.stderr
    assert not (moved / ".venv/leftover").exists()


def test_dev_says_what_to_do_when_the_install_fails(bare_clone: Path) -> None:
    (bare_clone.parent / "tools/uv").write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    result = run_in(bare_clone, bare_clone / "dev", "demo")
    assert result.returncode == 1
    assert "TARNLOG_DEV_INSTALLER=pip ./dev demo" in result.stderr
    assert result.stdout == ""


def test_dev_says_what_to_do_without_a_usable_python(bare_clone: Path) -> None:
    tools = bare_clone.parent / "tools"
    for name in ("python", "python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        (tools / name).write_text("#!/bin/sh\necho Python 3.9.1\nexit 1\n")
        (tools / name).chmod(0o755)
    result = run_in(bare_clone, bare_clone / "dev", "demo", TARNLOG_DEV_INSTALLER="pip")
    assert result.returncode == 1
    assert "needs Python 3.11 or later" in result.stderr
    assert "Python 3.9.1" in result.stderr
    assert not (bare_clone / ".venv").exists()


def test_dev_test_passes_arguments_and_the_long_switch(bare_clone: Path) -> None:
    result = run_in(bare_clone, bare_clone / "dev", "test", "--long", "-k", "a and b")
    assert result.returncode == 7
    words = result.stdout.splitlines()
    assert words[:2] == ["[-m]", "[pytest]"]
    assert words[-3:] == ["[-k]", "[a and b]", "long=1"]
    assert "[--long]" not in words
    assert int(words[words.index("[-n]") + 1].strip("[]")) >= 2


def test_dev_openapi_leaves_the_file_alone_when_the_generator_fails(bare_clone: Path) -> None:
    (bare_clone / "openapi.yaml").write_text("as it was")
    result = run_in(bare_clone, bare_clone / "dev", "openapi")
    assert result.returncode == 1
    assert (bare_clone / "openapi.yaml").read_text() == "as it was"
    assert list(bare_clone.glob(".openapi*")) == []


def test_ci_runs_dev_test_and_passes_its_exit_code(bare_clone: Path) -> None:
    (bare_clone / "dev").write_text('#!/bin/sh\necho "$@"\nexit 5\n')
    result = run_in(bare_clone, bare_clone / ".ci/run")
    assert (result.stdout, result.returncode) == ("test\n", 5)


def test_compose_demo_key_is_the_one_in_its_comment() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    services = yaml.safe_load(text)["services"]
    assert {"replica-1", "replica-2", "proxy", "s3", "postgres", "prometheus"} <= services.keys()
    (key,) = json.loads(services["replica-1"]["environment"]["TARNLOG_API_KEYS"])
    shown = re.search(r"Bearer (\w+)\.([\w-]+)", text)
    assert shown is not None
    assert key["id"] == shown[1]
    assert key["sha256"] == hashlib.sha256(shown[2].encode()).hexdigest()
    scrape = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["authorization"]["credentials"] == f"{shown[1]}.{shown[2]}"


def test_compose_replicas_share_everything_but_their_address() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    replicas = {name: dict(one["environment"]) for name, one in services.items() if name.startswith("replica-")}
    assert len(replicas) == 2
    for name, environment in replicas.items():
        assert environment.pop("TARNLOG_ADVERTISED_URL") == f"http://{name}:8420"
        assert environment["TARNLOG_DATABASE_URL"].startswith("postgresql")
        assert environment["AWS_ACCESS_KEY_ID"]
        known = {f"TARNLOG_{setting.upper()}" for setting in Settings.model_fields}
        assert {key for key in environment if key.startswith("TARNLOG_")} <= known
    first, second = replicas.values()
    assert first == second
    addresses = sorted(f"{name}:8420" for name in replicas)
    scrape = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"][0]
    assert sorted(scrape["static_configs"][0]["targets"]) == addresses
    proxy = (ROOT / "deploy/nginx.conf").read_text()
    assert sorted(re.findall(r"^ +server (\S+) ", proxy, re.MULTILINE)) == addresses
    assert proxy.count("{") == proxy.count("}")
    assert services["proxy"]["volumes"] == ["./deploy/nginx.conf:/etc/nginx/conf.d/default.conf:ro"]
    published = {port.rsplit(":", 1)[1] for port in services["proxy"]["ports"]}
    assert all("ports" not in services[name] for name in replicas), "only the proxy is reached from outside"
    assert f"listen {published.pop()};" in proxy


def test_compose_opens_no_port_to_the_network() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_compose_file_is_valid() -> None:
    if shutil.which("docker") is None or run("docker", "compose", "version").returncode != 0:
        pytest.skip("docker compose is not installed here")
    must_pass("docker", "compose", "config", "--quiet")


def repository_files() -> list[Path]:
    """Every file that is or would be committed."""
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_one_machine() -> None:
    """Paths of whoever wrote a file do not exist for anyone else."""
    homes = re.compile(rb"(?<![\w.$}-])/(?:work|root|home/[a-z]+|Users/[A-Za-z]+)/[\w.]")
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in repository_files()
        for match in homes.finditer(path.read_bytes())
    ]
    assert found == []


def test_lock_file_names_public_hosts_only() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
