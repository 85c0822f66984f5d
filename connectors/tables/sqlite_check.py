"""Checks of a SQLite database of a stranger, before a library opens it for writing.

MLflow and pyiceberg open a database for reading and writing. SQLite then first rolls back what an interrupted
writer has left in the journal beside it. A journal may name a super-journal, which coordinates several
databases, and SQLite removes the file of that name at the end (https://www.sqlite.org/atomiccommit.html,
sections 5.5 and 5.6): a forged journal removes any file of the user. Views and triggers may run for ever. A
database that is opened for reading alone (``mode=ro``) is not rolled back, and :mod:`sqlite_cursor` stops
its statements.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Collection
from contextlib import closing
from urllib.parse import quote

from connectors.base import ConnectorError

JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The first eight bytes of a journal; a journal that names a super-journal also ends with them."""
MAX_BYTES = 2**20
"""Largest statement of the schema that is read."""
SECONDS = 20
"""Longest wait for a writer."""
FOREIGN = (
    "SELECT type, name FROM sqlite_master WHERE type = 'view' OR sql LIKE 'CREATE VIRTUAL%' "
    "UNION ALL SELECT type, name FROM sqlite_master WHERE type = 'trigger' AND tbl_name NOT IN ({}) LIMIT 1"
)


def check_database_file(path: str, may_trigger: Collection[str] = ()) -> None:
    """Check that opening a database for writing touches its own files alone, and that reading it ends.

    An interrupted writer's journal is rolled back, as by any reader that may write. Whoever can write the
    folder can replace the files after the check.

    Parameters
    ----------
    path : file of the database; nothing is checked if there is none.
    may_trigger : tables that may have triggers, since the caller writes none of them.

    Raises
    ------
    ConnectorError
        The database or a file of its journal is not a regular file, the journal names another file, the
        database has views, virtual tables or triggers, or it is not a SQLite database.
    """
    path = os.path.realpath(path)
    for ending in ("", "-journal", "-wal", "-shm"):
        _check_regular(path + ending)
    if not os.path.exists(path):
        return
    _check_journal(f"{path}-journal")
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=rw", timeout=SECONDS, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            marks = ", ".join("?" * len(may_trigger))
            found = connection.execute(FOREIGN.format(marks), tuple(may_trigger)).fetchone()
    except sqlite3.Error as error:
        raise ConnectorError(
            f"{path} cannot be opened as a SQLite database ({error}). If it is damaged, move it aside."
        ) from None
    if found:
        raise ConnectorError(
            f"{path} has the {found[0]} {found[1]!r}. It is not opened, since views, virtual tables and "
            f"triggers may run for ever or change what is written: remove it, or move the database aside."
        )


def _check_regular(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ConnectorError(
            f"{path} is not a regular file, as the files of a SQLite database are. Remove it, or move the "
            f"database aside."
        )


def _check_journal(path: str) -> None:
    """Raise ConnectorError if a journal names a super-journal, which SQLite would remove."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(JOURNAL_MAGIC), 0))
            forged = size > len(JOURNAL_MAGIC) and file.read() == JOURNAL_MAGIC
    except FileNotFoundError:
        return
    if forged:
        raise ConnectorError(
            f"{path} names another file, which SQLite would remove when it opens the database. No writer of "
            f"one database leaves such a journal: it is forged. Remove it, and ask who can write the folder."
        )
