"""Files of servers are fetched once per machine, whoever asks and however often."""

from __future__ import annotations

from pathlib import Path

import pytest
import server_files


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MOORLINE_TEST_SERVERS", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetch(made: Path) -> None:
    made.mkdir()
    (made / "server").write_text("whole")


def test_what_is_there_is_not_fetched_again():
    fetched: list[Path] = []
    for _ in range(2):
        found = server_files._fetched("server-1", lambda made: (fetched.append(made), fetch(made)))
        assert (found / "server").read_text() == "whole"
    assert len(fetched) == 1


def test_what_was_interrupted_is_fetched_again():
    def interrupted(made: Path) -> None:
        made.mkdir()
        raise server_files.NotFetched("the line is down")

    with pytest.raises(server_files.NotFetched):
        server_files._fetched("server-1", interrupted)
    assert (server_files._fetched("server-1", fetch) / "server").read_text() == "whole"


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path: Path):
    def environment(made: Path) -> None:
        (made / "bin").mkdir(parents=True)
        (made / "bin" / "python").symlink_to(tmp_path / "python")

    (tmp_path / "python").touch()
    found = server_files._fetched("moto", environment)
    (found / "server").touch()
    (tmp_path / "python").unlink()
    assert not (server_files._fetched("moto", environment) / "server").exists()


def test_a_failing_command_is_told_with_what_it_said():
    with pytest.raises(server_files.NotFetched, match="no such package"):
        server_files._run(["sh", "-c", "echo no such package >&2; exit 1"])
