"""The back-end on a real server: a private one that the tests start themselves."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from envs.db import server
from envs.db.backend import Database, SqlError, SqlTimeout, Table
from envs.db.env import make
from envs.db.mysql import MySql
from harness.core import EnvOptions
from harness.errors import SandboxError, SetupError

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.skipif(
        server.binary() is None or find_spec("pymysql") is None,
        reason="this machine has neither mysqld nor mariadbd, or no pymysql",
    ),
    pytest.mark.asyncio(loop_scope="module"),
]
ROOT = Path(server.__file__).resolve().parents[2]
TOWNS = Table(
    name="Old Towns",
    columns=("Name", "Size", "Rank", "No."),
    rows=(("Ulm", "12", "1", "a"), ("Bonn", "7", "2", None), ("Köln", "N/a", "3", "it's \\ % `b`")),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend() -> AsyncIterator[MySql]:
    backend = MySql()
    await backend.open()
    yield backend
    await backend.close()


@pytest_asyncio.fixture(loop_scope="module")
async def database(backend: MySql) -> AsyncIterator[Database]:
    database = await backend.database([TOWNS])
    yield database
    await database.close()


async def asked(database: Database, sql: str, seconds: float = 30) -> object:
    try:
        return await database.execute(sql, seconds=seconds)
    except SqlError as error:
        return str(error).replace(database.schema, "db")


async def test_values_are_what_mysqls_connector_gives(database: Database) -> None:
    assert await asked(database, "SELECT * FROM `Old Towns` WHERE Name = 'ULM'") == [("Ulm", "12", "1", "a")]
    assert await asked(database, "SELECT `No.` FROM `Old Towns`") == [("a",), (None,), ("it's \\ % `b`",)]
    assert await asked(database, "SELECT COUNT(*), SUM(Size), 1.50, 1 = 1 FROM `Old Towns`") == [
        (3, 19.0, Decimal("1.50"), 1)
    ]
    assert await asked(database, "SELECT DATE('2020-02-01'), CAST('10:00' AS TIME), b'101' + 0, NULL") == [
        (datetime.date(2020, 2, 1), datetime.timedelta(hours=10), 5, None)
    ]
    assert await asked(database, "DESCRIBE `Old Towns`") == [
        (name, "text", "YES", "", None, "") for name in TOWNS.columns
    ]
    assert await asked(database, "UPDATE `Old Towns` SET Size = '8' WHERE Name = 'Bonn'") == []
    assert await asked(database, "SHOW CREATE TABLE `Old Towns`") == [
        (
            "Old Towns",
            "CREATE TABLE `Old Towns` (\n  `Name` text,\n  `Size` text,\n  `Rank` text,\n  `No.` text\n) "
            "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci",
        )
    ]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT x FROM `Old Towns`", "1054 (42S22): Unknown column 'x' in 'field list'"),
        ("SELECT Name FROM `Old Towns` WHERE x = 1", "1054 (42S22): Unknown column 'x' in 'where clause'"),
        ("SELECT Name FROM `Old Towns` ORDER BY x", "1054 (42S22): Unknown column 'x' in 'order clause'"),
        ("SELECT Name FROM `Old Towns` GROUP BY x", "1054 (42S22): Unknown column 'x' in 'group statement'"),
        ("SELECT COUNT(*) FROM `Old Towns` HAVING x > 1", "1054 (42S22): Unknown column 'x' in 'having clause'"),
        ("UPDATE `Old Towns` SET x = 1", "1054 (42S22): Unknown column 'x' in 'field list'"),
        ("INSERT INTO `Old Towns` (x) VALUES (1, 2)", "1054 (42S22): Unknown column 'x' in 'field list'"),
        (
            "INSERT INTO `Old Towns` (Name) VALUES (1, 2)",
            "1136 (21S01): Column count doesn't match value count at row 1",
        ),
        ("SELECT * FROM towns", "1146 (42S02): Table 'db.towns' doesn't exist"),
        (
            "SELECT a.Name FROM `Old Towns` a, `Old Towns` b WHERE Size = 1",
            "1052 (23000): Column 'Size' in where clause is ambiguous",
        ),
        ("ALTER TABLE `Old Towns` DROP COLUMN x", "1091 (42000): Can't DROP 'x'; check that column/key exists"),
        (";", "1065 (42000): Query was empty"),
        ("", "1065 (42000): Query was empty"),
        ("-- nothing", "1065 (42000): Query was empty"),
        (
            "SELECT Name, COUNT(*) FROM `Old Towns`",
            "1140 (42000): In aggregated query without GROUP BY, expression #1 of SELECT list contains nonaggregated "
            "column 'db.Old Towns.Name'; this is incompatible with sql_mode=only_full_group_by",
        ),
        (
            "SELECT Size, Name FROM `Old Towns` GROUP BY Size",
            "1055 (42000): Expression #2 of SELECT list is not in GROUP BY clause and contains nonaggregated column "
            "'db.Old Towns.Name' which is not functionally dependent on columns in GROUP BY clause; this is "
            "incompatible with sql_mode=only_full_group_by",
        ),
        (
            "UPDATE `Old Towns` SET Size = (SELECT MAX(Size) FROM `Old Towns`)",
            "1093 (HY000): You can't specify target table 'Old Towns' for update in FROM clause",
        ),
        (
            "SELECT Size, COUNT(*) FROM `Old Towns` t GROUP BY Size ORDER BY Size, Name",
            "1055 (42000): Expression #2 of ORDER BY clause is not in GROUP BY clause and contains nonaggregated "
            "column 'db.t.Name' which is not functionally dependent on columns in GROUP BY clause; this is "
            "incompatible with sql_mode=only_full_group_by",
        ),
        (
            "SELECT DISTINCT Size FROM `Old Towns` ORDER BY Name",
            "3065 (HY000): Expression #1 of ORDER BY clause is not in SELECT list, references column "
            "'db.Old Towns.Name' which is not in SELECT list; this is incompatible with DISTINCT",
        ),
        ("SELECT * FROM (SELECT 1)", "1248 (42000): Every derived table must have its own alias"),
        (
            "SELECT Name FROM `Old Towns` WHERE Name IN (SELECT Name FROM `Old Towns` LIMIT 1)",
            "1235 (42000): This version of MySQL doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'",
        ),
    ],
)
async def test_errors_are_said_as_mysql_says_them(database: Database, sql: str, text: str) -> None:
    assert await asked(database, sql) == text


@pytest.mark.parametrize(
    ("sql", "near"),
    [
        ("SELEC 1", "SELEC 1"),
        ("SELECT 1; SELECT 2;", "SELECT 2"),
        ("SELECT Name FROM `Old Towns` WHERE Rank = 2;", "= 2"),
        ("UPDATE `Old Towns` SET Size = '1', Rank = 2", "Rank = 2"),
        ("INSERT INTO `Old Towns` (Name, Rank) VALUES (1, 2)", "Rank) VALUES (1, 2)"),
        ("SELECT Size AS rank FROM `Old Towns`", "rank FROM `Old Towns`"),
        ("SELECT MAX(Rank) FROM `Old Towns`", ") FROM `Old Towns`"),
        ("SELECT Name FROM Groups", "Groups"),
    ],
)
async def test_syntax_errors_point_where_mysql_points(database: Database, sql: str, near: str) -> None:
    assert await asked(database, sql) == (
        "1064 (42000): You have an error in your SQL syntax; check the manual that corresponds to your MySQL server "
        f"version for the right syntax to use near '{near}' at line 1"
    )


async def test_reserved_words_are_no_obstacle_where_mysql_takes_them(database: Database) -> None:
    assert await asked(database, "SELECT t.Rank, `Rank` FROM `Old Towns` t WHERE t.Rank = 1") == [("1", "1")]
    assert await asked(database, "SELECT RANK() OVER (ORDER BY Size) FROM `Old Towns` LIMIT 1") == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT Size, COUNT(*) AS n FROM `Old Towns` GROUP BY Size ORDER BY n, MAX(Name), 1",
        "SELECT DISTINCT Name AS who FROM `Old Towns` ORDER BY who DESC, LENGTH(who)",
        "SELECT DISTINCT * FROM `Old Towns` ORDER BY Name",
        "SELECT Size FROM `Old Towns` WHERE Name = 'Ulm' GROUP BY Size ORDER BY Name",
        "UPDATE `Old Towns` SET Size = (SELECT m FROM (SELECT MAX(Size) AS m FROM `Old Towns`) AS t)",
        "INSERT INTO `Old Towns` SELECT * FROM `Old Towns` WHERE Size IN (SELECT Size FROM `Old Towns`)",
    ],
)
async def test_what_mysql_takes_is_not_refused(database: Database, sql: str) -> None:
    assert not isinstance(await asked(database, sql), str)


async def test_regexp_like_is_understood(database: Database) -> None:
    sql = "SELECT Name FROM `Old Towns` WHERE REGEXP_LIKE(CONCAT(Name, ','), '^(u|b)') AND NOT REGEXP_LIKE(Name, 'L')"
    assert await asked(database, sql) == [("Bonn",)]
    assert await asked(database, "SELECT REGEXP_LIKE(REGEXP_LIKE('a', '(,)'), '0')") == [(1,)]
    assert (
        str(await asked(database, "SELECT REGEXP_LIK('a', 'b')"))
        == "1305 (42000): FUNCTION db.REGEXP_LIK does not exist"
    )


async def test_text_is_read_as_a_number_silently_in_a_write(database: Database) -> None:
    assert await asked(database, "UPDATE `Old Towns` SET Name = 'Aachen' WHERE Size = 12") == []
    assert await asked(database, "SELECT Name FROM `Old Towns` WHERE Size = 12") == [("Aachen",)]
    assert "STRICT_TRANS_TABLES" in str(await asked(database, "SELECT @@sql_mode"))
    assert str(await asked(database, "UPDATE `Old Towns` SET Size = CAST(Size AS SIGNED)")).startswith("1292 (22007)")


async def test_each_call_commits_or_rolls_back(database: Database) -> None:
    await asked(database, "START TRANSACTION")
    await asked(database, "DELETE FROM `Old Towns` WHERE Name = 'Ulm'")
    await asked(database, "ROLLBACK")
    assert await asked(database, "SELECT COUNT(*) FROM `Old Towns`") == [(2,)]


async def test_a_slow_statement_is_stopped_and_undone(database: Database) -> None:
    begun = time.monotonic()
    with pytest.raises(SqlTimeout):
        await database.execute("UPDATE `Old Towns` SET Size = SLEEP(20)", seconds=0.3)
    assert time.monotonic() - begun < 5
    assert await asked(database, "SELECT Size FROM `Old Towns` WHERE Name = 'Ulm'") == [("12",)]


async def test_a_cancelled_statement_is_stopped_at_close(backend: MySql) -> None:
    database = await backend.database([TOWNS])
    waiting = asyncio.create_task(database.execute("SELECT SLEEP(50)", seconds=60))
    await asyncio.sleep(0.3)
    waiting.cancel()
    begun = time.monotonic()
    await database.close()
    assert time.monotonic() - begun < 5
    assert await backend.errand(f"SHOW DATABASES LIKE '{database.schema}'") == []


async def test_an_endless_result_is_read_no_further_than_anyone_looks(database: Database) -> None:
    begun = time.monotonic()
    rows = await database.execute("SELECT * FROM seq_1_to_100000000000", seconds=30)
    assert rows[:2] == [(1,), (2,)]
    assert len(rows) <= 10_000
    assert time.monotonic() - begun < 10
    assert await asked(database, "SELECT 1") == [(1,)]


async def test_a_session_that_kills_its_own_connection_gets_another(database: Database) -> None:
    assert await asked(database, "KILL CONNECTION_ID()") in (
        "1317 (70100): Query execution was interrupted",
        "1927 (70100): Connection was killed",
        "2013 (HY000): Lost connection to MySQL server during query",
    )
    assert await asked(database, "SELECT 1") == [(1,)]


async def test_a_statement_beyond_the_packet_limit_is_refused(database: Database) -> None:
    sql = "SELECT '" + "x" * (10 << 20) + "'"
    assert await asked(database, sql) == "1153 (08S01): Got a packet bigger than 'max_allowed_packet' bytes"
    assert await asked(database, "SELECT '" + "x" * (3 << 20) + "' = ''") == [(0,)]


async def test_a_row_beyond_all_bounds_is_not_read(database: Database) -> None:
    wide = ", ".join(["REPEAT('x', 4000000)"] * 30)
    assert await asked(database, f"SELECT {wide}") == (
        "2020 (HY000): Got packet bigger than 'max_allowed_packet' bytes"
    )
    assert await asked(database, "SELECT 1") == [(1,)]


async def test_tables_that_have_outgrown_the_limit_are_full(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.db.mysql.WEIGHED_EVERY", -1)
    assert await asked(database, "SELECT 1") == [(1,)]
    monkeypatch.setattr("envs.db.mysql.LARGEST_SCHEMA", 1000)
    assert await asked(database, "SELECT 1") == "1114 (HY000): The table is full"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM mysql.user",
        "SELECT User FROM mysql.global_priv",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT 1 INTO OUTFILE '/tmp/harness-db-test'",
        "SELECT 1 INTO DUMPFILE '/tmp/harness-db-test'",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE `Old Towns`",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE `Old Towns`",
        "SET GLOBAL max_connections = 1",
        "SET GLOBAL local_infile = 1",
        "CREATE DATABASE elsewhere",
        "CREATE USER intruder",
        "GRANT ALL ON *.* TO CURRENT_USER()",
        "SHUTDOWN",
        "INSTALL SONAME 'ha_connect'",
        "FLUSH PRIVILEGES",
        "CREATE FUNCTION sys_exec RETURNS INT SONAME 'udf.so'",
        "CREATE TABLE t (a TEXT) DATA DIRECTORY = '/tmp'",
        "CREATE TABLE t (a TEXT) ENGINE=MyISAM DATA DIRECTORY = '/tmp' INDEX DIRECTORY = '/tmp'",
    ],
)
async def test_a_session_reaches_nothing_but_its_schema(database: Database, sql: str) -> None:
    reply = await asked(database, sql)
    harmless = [[(None,)], []]
    assert isinstance(reply, str) or reply in harmless
    assert not Path("/tmp/harness-db-test").exists()
    if reply == []:
        assert sql.startswith("CREATE TABLE")  # the option is ignored
        assert not Path("/tmp", database.schema).exists()
        assert not list(Path("/tmp").glob("t.[iM]*"))


async def test_sessions_do_not_see_one_another(backend: MySql, database: Database) -> None:
    other = await backend.database([TOWNS])
    assert other.schema not in str(await asked(database, "SHOW DATABASES"))
    assert str(await asked(database, f"SELECT * FROM `{other.schema}`.`Old Towns`")).startswith("1142 (42000)")
    assert str(await asked(database, f"DROP DATABASE `{other.schema}`")).startswith("1044 (42000)")
    assert len(list(await asked(database, "SHOW PROCESSLIST"))) == 1  # type: ignore[call-overload]
    await other.close()


async def test_dump_is_text_without_the_agents_locks_and_views(database: Database) -> None:
    await asked(database, "ALTER TABLE `Old Towns` MODIFY `Rank` INT")
    await asked(database, "LOCK TABLES `Old Towns` WRITE")
    found = await database.dump("Old Towns")
    assert found is not None
    assert found[0] == TOWNS.columns
    assert found[1][0] == ("Ulm", "12", "1", "a")
    await asked(database, "DROP TABLE `Old Towns`")
    assert await database.dump("Old Towns") is None
    await asked(database, f"DROP DATABASE {database.schema}")
    assert await database.dump("Old Towns") is None
    assert str(await asked(database, "SELECT 1")).startswith("1049 (42000)")


async def test_nothing_is_left_of_a_session(backend: MySql) -> None:
    database = await backend.database([TOWNS])
    await asked(database, "CREATE PROCEDURE p() SELECT 1")
    await asked(database, "CREATE VIEW v AS SELECT 1")
    await database.close()
    assert await backend.errand("SHOW DATABASES LIKE 'dbbench%'") == []
    assert await backend.errand("SELECT User FROM mysql.user WHERE User LIKE 'agent%'") == []
    assert await backend.errand("SELECT ID FROM information_schema.PROCESSLIST WHERE USER LIKE 'agent%'") == []


async def test_sessions_cancelled_while_they_are_made_leave_nothing(backend: MySql) -> None:
    dice = random.Random(3)

    async def one() -> None:
        making = asyncio.create_task(backend.database([TOWNS]))
        await asyncio.sleep(dice.random() * 0.04)
        making.cancel()
        try:
            database = await making
        except asyncio.CancelledError:
            return
        await database.close()

    await asyncio.gather(*(one() for _ in range(40)))
    assert await backend.errand("SHOW DATABASES LIKE 'dbbench%'") == []
    assert await backend.errand("SELECT User FROM mysql.user WHERE User LIKE 'agent%'") == []


async def test_many_sessions_at_once(backend: MySql) -> None:
    async def one(number: int) -> object:
        database = await backend.database([TOWNS])
        try:
            await asked(database, f"UPDATE `Old Towns` SET Size = '{number}'")
            return await asked(database, "SELECT DISTINCT Size FROM `Old Towns`")
        finally:
            await database.close()

    assert await asyncio.gather(*map(one, range(40))) == [[(str(number),)] for number in range(40)]


async def test_a_running_server_is_used_by_address(backend: MySql) -> None:
    env = make(EnvOptions(settings={"db_url": f"mysql://root@localhost?unix_socket={backend.access.unix_socket}"}))
    await env.open()
    assert env.backend.name == "mysql"
    assert await env.healthy()
    await env.close()
    assert await backend.healthy()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://root@127.0.0.1:1", "cannot use the database server"),
        ("postgres://localhost", "mysql://user:password@host:port"),
        ("mysql://localhost:port", "not an address"),
    ],
)
async def test_an_unusable_address_is_said_in_a_sentence(url: str, words: str) -> None:
    backend = MySql(url)
    with pytest.raises(SetupError, match=words):
        await backend.open()
    assert not await backend.healthy()


async def test_a_killed_server_is_a_sandbox_error_and_leaves_nothing() -> None:
    env = make(EnvOptions(settings={"backend": "mysql", "server": "private"}))
    await env.open()
    assert isinstance(env.backend, MySql)
    folder = Path(str(env.backend.access.unix_socket)).parent
    database = await env.backend.database([TOWNS])
    pid = int((folder / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SandboxError):
        await database.execute("SELECT 1", seconds=5)
    with pytest.raises(SandboxError):
        await database.dump("Old Towns")
    assert not await env.healthy()
    await env.close()
    assert not folder.exists()


OWNER = """
import asyncio, sys, time
from envs.db.mysql import MySql
async def main():
    backend = MySql(server="private")
    await backend.open()
    print(backend.access.unix_socket, flush=True)
    time.sleep(60)
asyncio.run(main())
"""


async def test_the_server_ends_when_its_owner_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip()).parent
    pid = int((folder / "pid").read_text())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 10
    while (folder.exists() or _alive(pid)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not folder.exists()
    assert not _alive(pid)


STARTING = """
import asyncio, sys
from envs.db.mysql import MySql
async def start():
    await MySql(server="private").open()
    await asyncio.sleep(60)  # a signal that comes late finds it still there
try:
    asyncio.run(start())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="starts-"))  # pytest's own are too long for a socket's path
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGTERM], [signal.SIGKILL], [signal.SIGINT], [signal.SIGINT, signal.SIGINT]],
    ids=["TERM", "KILL", "INT", "INT-INT"],
)
async def test_an_owner_that_ends_while_the_database_is_made_leaves_nothing(
    temporary: Path, signals: list[signal.Signals]
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert owner.stderr is not None
    await _within(30, lambda: bool(list(temporary.glob("harness-db-*/data/*"))))
    assert _processes(temporary) > 1
    begun = time.monotonic()
    for number in signals:
        owner.send_signal(number)
        await asyncio.sleep(0.05)
    await _within(30, lambda: owner.poll() is not None)
    took, said = time.monotonic() - begun, owner.stderr.read()
    owner.stderr.close()
    await _within(10, lambda: _processes(temporary) == 0 and not list(temporary.iterdir()))
    assert took < 10
    if signals == [signal.SIGINT]:
        assert (owner.returncode, said) == (130, "")


async def test_a_start_that_is_cancelled_leaves_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    dice = random.Random(5)
    for _ in range(4):
        backend = MySql(server="private")
        opening = asyncio.create_task(backend.open())
        await asyncio.sleep(dice.random() * 1.5)
        opening.cancel()
        try:
            await opening
        except asyncio.CancelledError:
            pass
        else:  # it was quicker
            await backend.close()
        assert list(temporary.iterdir()) == []
        await _within(5, lambda: _processes(temporary) == 0)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho starting; echo '[ERROR] no room' >&2; echo bye; exit 3\n", r"status 3: \[ERROR\] no room"),
        ("#!/bin/sh\nexit 0\n", "(mysqld|mariadbd) ended with status 1: .*ERROR"),
    ],
    ids=["installation", "server"],
)
async def test_why_a_private_server_does_not_start_is_said(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    """A broken installer, or one that makes nothing, so that the server finds no data."""
    program = server.binary()
    assert program is not None
    if not await server.is_mariadb(program):
        pytest.skip("this machine's server is not MariaDB")
    tools = temporary / "tools"
    tools.mkdir()
    (tools / "mariadb-install-db").write_text(script)
    (tools / "mariadb-install-db").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(SetupError, match=f"did not start: .*{words}"):
        await MySql(server="private").open()
    assert list(temporary.iterdir()) == [tools]


async def _within(seconds: float, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def _processes(folder: Path) -> int:
    """Count the processes that were started for something in this folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return sum(str(folder) in line for line in listed.stdout.splitlines())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
