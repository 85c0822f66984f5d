"""A stranger's SQLite database removes no file of whoever opens it, and a reader comes to an end."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connectors import ConnectorError, open_source
from connectors.tables.sqlite_check import check_database_file
from tests.tables import forge_journal


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shared" / "catalog.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (k int)")
        connection.execute("insert into t values (1)")
    return path


def rows(database: Path) -> list[tuple[int]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("select * from t").fetchall()


def test_sqlite_removes_what_a_journal_names(database: Path, tmp_path: Path) -> None:
    """The reason for the check: if SQLite no longer does this, the check can go."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    forge_journal(database, victim)
    assert rows(database) == [(1,)]
    assert not victim.exists()


def test_a_journal_that_names_another_file_is_refused(database: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    journal = forge_journal(database, victim)
    link = tmp_path / "link.db"  # SQLite looks for the journal beside the file itself
    link.symlink_to(database)
    for path in (database, link):
        with pytest.raises(ConnectorError, match=r"catalog.db-journal names another file"):
            check_database_file(str(path))
    assert victim.read_text() == "precious"
    journal.unlink()
    check_database_file(str(database))


def test_an_interrupted_writer_is_rolled_back(database: Path) -> None:
    forge_journal(database, None)
    check_database_file(str(database))
    assert rows(database) == [(1,)]


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("create view v as with recursive c(x) as (select 1 union all select x from c) select 1", "'v'"),
        ("create trigger g after insert on t begin delete from t; end", "trigger 'g'"),
        ("create virtual table f using fts5(a)", "'f'"),
    ],
)
def test_what_may_run_for_ever_is_refused(statement: str, shown: str, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
    with pytest.raises(ConnectorError, match=shown):
        check_database_file(str(database))
    if "trigger" in statement:
        check_database_file(str(database), may_trigger={"t"})


@pytest.mark.parametrize("ending", ["", "-journal", "-wal"])
def test_pipes_and_folders_are_refused(ending: str, database: Path) -> None:
    file = database.with_name(database.name + ending)
    for make in (os.mkfifo, os.mkdir):
        file.unlink(missing_ok=True)
        make(file)
        with pytest.raises(ConnectorError, match=f"catalog.db{ending} is not a regular file"):
            check_database_file(str(database))
        if make is os.mkfifo:
            file.unlink()


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database, but long enough for a header of SQLite" * 100)
    with pytest.raises(ConnectorError, match=r"x.db cannot be opened as a SQLite database"):
        check_database_file(str(tmp_path / "x.db"))
    check_database_file(str(tmp_path / "none.db"))
    assert not (tmp_path / "none.db").exists()


def test_sources_remove_nothing(database: Path, tmp_path: Path) -> None:
    """A source is opened for reading alone, and an Iceberg catalog is checked."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    forge_journal(database, victim)
    with pytest.raises(ConnectorError):
        open_source(f"sqlite:///{database}", options={"table": "t", "key": "k"}).list()
    assert victim.read_text() == "precious"
    pytest.importorskip("pyiceberg")
    for uri in (f"sqlite:///{database}", f"sqlite:///{database}?timeout=1", f"sqlite:///file:{database}"):
        with pytest.raises(ConnectorError, match=r"names another file|without options"):
            open_source("a.b", format="iceberg", options={"catalog": {"type": "sql", "uri": uri}}).list()
    assert victim.read_text() == "precious"
