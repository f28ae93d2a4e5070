"""Tests backups, archives, restores, repairs, and stores to which another process writes."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

import runstone
from test_handles import nothing_left

# This process writes a value on command and reports each write.
WRITER = """
import runstone, sys
db = runstone.open(sys.argv[1], keep_log_bytes="1M")
print("open", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "drop":
        db.drop_keyspace("apart")
    else:
        db.keyspace("apart")[b"key"] = word.encode()
        db.put(b"key", word.encode(), sync=True)
    print(word, flush=True)
db.close()
"""


class Writer:
    """Another process that writes to a store."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(path)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self._told() == "open"

    def _told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        assert self._told() == word

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    process = Writer(tmp_path / "db")
    yield process
    process.close()


def value_in(path: Path) -> bytes:
    with runstone.open(path, create_if_missing=False) as db:
        db.verify()
        return db[b"key"]


def test_nightly(tmp_path: Path, writer: Writer) -> None:
    """Backs up while another process writes, then restores a backup and a moment in between."""
    path = tmp_path / "db"
    writer.write("one")
    with runstone.Backups(tmp_path / "backups") as backups:
        assert backups.list() == [] and backups.archives() == []
        with pytest.raises(runstone.InvalidArgument, match="no backup"):
            backups.restore(tmp_path / "none")
        before = time.time()
        first = backups.create(path)
        writer.write("two")
        second = backups.create(str(path))
        assert [first, second] == backups.list() and (first.number, second.number) == (1, 2)
        assert before - 1 <= first.time <= second.time <= time.time() + 1
        assert second.last_number > first.last_number and first.bytes >= first.added_bytes > 0
        backups.verify()
        backups.verify(1)
        backups.restore(tmp_path / "first", 1)
        backups.restore(tmp_path / "newest")
        assert value_in(tmp_path / "first") == b"one" and value_in(tmp_path / "newest") == b"two"

        with backups.archive(path) as archiver:
            began = archiver.advance()
            assert began.backup is not None and began.backup.number == 3 and began.lacks is None
            writer.write("good")
            assert archiver.advance(10).changes >= 1
            good = archiver.position
            writer.write("bad")
            archiver.advance()
            end = archiver.position
            assert good.history == end.history and end.number > good.number
            assert runstone.Position(str(good)) == good and len({good, end}) == 2
            with pytest.raises(runstone.InUse):
                backups.archive(path)
        (archive,) = backups.archives()
        assert archive.after_number <= good.number and archive.end == end
        assert archive.begin_time is not None and archive.end_time is not None
        backups.verify_archives()
        made = backups.restore_to(tmp_path / "good", number=good.number)
        assert made.backup == 3 and made.changes >= 1 and made.last_number == good.number
        there = backups.restore_to(tmp_path / "position", position=good)
        assert there == made and value_in(tmp_path / "position") == b"good"
        other = runstone.Position(f"{good.number}@{good.history ^ 1:016x}")
        with pytest.raises(runstone.InvalidArgument, match="no position"):
            backups.restore_to(tmp_path / "none", position=other)
        backups.restore_to(tmp_path / "end")
        backups.restore_to(tmp_path / "time", time=archive.end_time)
        at = datetime.datetime.fromtimestamp(archive.end_time, datetime.timezone.utc)
        backups.restore_to(tmp_path / "datetime", time=at)
        assert value_in(tmp_path / "good") == b"good" and value_in(tmp_path / "end") == b"bad"
        assert value_in(tmp_path / "time") == value_in(tmp_path / "datetime") == b"bad"
        assert backups.prune(1) == 2 and [one.number for one in backups.list()] == [3]
        with pytest.raises(runstone.InvalidArgument, match="no backup 1"):
            backups.restore(tmp_path / "none", 1)
    # While no archiver is open, the store keeps its log.
    writer.write("later")
    with runstone.Backups(tmp_path / "backups", create=False) as backups:
        with backups.archive(path) as archiver:
            assert archiver.advance().backup is None
        backups.restore_to(tmp_path / "later")
    assert value_in(tmp_path / "later") == b"later" and backups.path == tmp_path / "backups"


def test_a_store_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    db = runstone.open("db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with runstone.Backups(tmp_path / "backups") as backups:
        assert backups.create(db).number == 1
    with runstone.Changes(db) as changes:
        db[b"k"] = b"v"
        assert any(write.key == b"k" for change in changes for write in change)
    db.close()


def test_bad_places(tmp_path: Path) -> None:
    db = runstone.open(tmp_path / "db")
    db[b"key"] = b"value"
    with pytest.raises(runstone.ForeignFiles, match="empty or new"):
        runstone.Backups(tmp_path / "db")
    with pytest.raises(runstone.Storage, match="check the path"):
        runstone.Backups(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "letters").mkdir()
    with pytest.raises(runstone.InvalidArgument, match="no backups"):
        runstone.Backups(tmp_path / "letters", create=False)
    (tmp_path / "letters" / "letter.txt").write_text("dear")
    with pytest.raises(runstone.ForeignFiles, match="letter.txt"):
        runstone.Backups(tmp_path / "letters")
    with runstone.Backups(tmp_path / "backups") as backups:
        with backups.archive(db) as archiver:
            archiver.advance()
            end = archiver.position
        for wrong in (None, 7, object()):
            with pytest.raises(TypeError, match="store is a path"):
                backups.create(wrong)  # type: ignore[arg-type]
        with pytest.raises(runstone.NotAStore):
            backups.create(tmp_path / "none")
        with runstone.open(tmp_path / "other") as other:
            with pytest.raises(runstone.InvalidArgument, match="another store"):
                backups.create(other)
        with pytest.raises(runstone.ForeignFiles):
            backups.restore(tmp_path / "other")
        with pytest.raises(runstone.ForeignFiles):
            backups.restore_to(tmp_path / "db")
        for moment in ({"number": end.number + 1}, {"time": 1.0}):
            with pytest.raises(runstone.InvalidArgument, match="no such moment"):
                backups.restore_to(tmp_path / "none", **moment)
        with pytest.raises(runstone.InvalidArgument, match="give one of"):
            backups.restore_to(tmp_path / "none", time=1, number=1)
        for time_ in ("noon", object()):
            with pytest.raises(TypeError, match="datetime"):
                backups.restore_to(tmp_path / "none", time=time_)  # type: ignore[arg-type]
        for time_ in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="since 1970"):
                backups.restore_to(tmp_path / "none", time=time_)
        for keep, kind in ((0, ValueError), (-1, OverflowError), (1.5, TypeError)):
            with pytest.raises(kind):
                backups.prune(keep)  # type: ignore[arg-type]
        for text in ("", "7", "7@x", "-1@0123456789abcdef"):
            with pytest.raises(runstone.InvalidArgument, match="position"):
                runstone.Position(text)
        # Damages a table, and then a description.
        for table in (tmp_path / "backups").glob("*.pack"):
            with table.open("r+b") as file:
                file.seek(3)
                file.write(b"?")
        with pytest.raises(runstone.Corruption, match="pack"):
            backups.verify()
        with pytest.raises(runstone.Corruption, match="pack"):
            backups.restore(tmp_path / "none")
        (description,) = (tmp_path / "backups").glob("*.backup")
        description.write_bytes(description.read_bytes()[:-1])
        ((number, what),) = backups.damaged()
        assert number == 1 and what and backups.list() == []
    db.close()


def test_merge_operators_and_keyspaces(tmp_path: Path) -> None:
    """A store with the merge operators can read the operands that an archive replays."""
    join = {"join": lambda key, base, operands: (base or b"") + b"".join(operands)}
    path = tmp_path / "db"
    with runstone.open(path, merge_operators=join) as db:
        joined = db.keyspace("joined", {"merge_operator": "join"})
        joined.merge(b"k", b"a")
        with runstone.Backups(tmp_path / "backups") as backups:
            with backups.archive(db) as archiver:
                joined.merge(b"k", b"b")
                db.keyspace("later")[b"k"] = b"v"
                db.delete_range(b"a", b"b")
                archiver.advance()
            backups.restore_to(tmp_path / "restored")
    with runstone.open(tmp_path / "restored", merge_operators=join) as restored:
        assert restored.keyspaces() == ["default", "joined", "later"]
        assert restored.keyspace("joined")[b"k"] == b"ab"
        assert restored.keyspace("later")[b"k"] == b"v"


def test_ends(tmp_path: Path) -> None:
    """A store, its backups and its archiver are closed in any order, and twice."""
    db = runstone.open(tmp_path / "db")
    backups = runstone.Backups(tmp_path / "backups")
    archiver = backups.archive(db)
    archiver.advance()
    caught: list[BaseException] = []
    waits = threading.Event()

    def wait() -> None:
        try:
            waits.set()
            archiver.advance(60)
        except runstone.Closed as closed:
            caught.append(closed)

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(60)
    # Other threads run during the call, and the archiver outlives the store and the object of its
    # directory.
    db[b"key"] = b"value"
    thread.join(60)
    assert not caught and not thread.is_alive()
    db.close()
    db.close()
    backups.close()
    backups.close()
    assert archiver.advance().backup is None
    waits.clear()
    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(60)
    archiver.close()
    archiver.close()
    thread.join(60)
    assert len(caught) == 1 and "archiver is closed" in str(caught[0])
    with pytest.raises(runstone.Closed):
        archiver.advance()
    with pytest.raises(runstone.Closed):
        _ = archiver.position
    with pytest.raises(runstone.Closed, match="directory of backups"):
        backups.list()
    for end in (db.refresh, lambda: db.age):
        with pytest.raises(runstone.Closed):
            end()
    nothing_left(tmp_path)


def test_a_wait_ends_with_a_signal(tmp_path: Path) -> None:
    """Ctrl-C interrupts an archiver that waits."""
    # A shell makes its background jobs ignore the signal, and Python inherits this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runstone.open(tmp_path / "db").close()
    with runstone.Backups(tmp_path / "backups") as backups:
        with backups.archive(tmp_path / "db") as archiver:
            archiver.advance()
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                archiver.advance(600)
            timer.join()
            assert archiver.advance().changes == 0


def _in_a_fork(backups: runstone.Backups, archiver: runstone.Archiver, path: Path) -> None:
    refused = 0
    for call in (lambda: backups.create(path), backups.list, archiver.advance):
        try:
            call()
        except runstone.OtherProcess:
            refused += 1
    archiver.close()
    backups.close()
    os._exit(refused)


def test_a_fork(tmp_path: Path) -> None:
    """A fork can use none of the objects, and leaves those of its parent intact."""
    with runstone.open(tmp_path / "db") as db:
        with runstone.Backups(tmp_path / "backups") as backups:
            with backups.archive(db) as archiver:
                arguments = (backups, archiver, tmp_path / "db")
                context = multiprocessing.get_context("fork")
                fork = context.Process(target=_in_a_fork, args=arguments)
                fork.start()
                fork.join()
                assert fork.exitcode == 3
                db[b"key"] = b"value"
                assert archiver.advance().changes >= 1


def test_refresh(tmp_path: Path, writer: Writer) -> None:
    writer.write("1")
    with runstone.open(tmp_path / "db", read_only=True) as db:
        apart = db.keyspace("apart", create=False)
        snapshot, items, cursor = db.snapshot(), db.items(), db.cursor()
        walk = iter(items)
        assert db[b"key"] == apart[b"key"] == b"1" and db.age >= 0
        writer.write("2")
        assert db[b"key"] == b"1"
        assert db.refresh() and not db.refresh()
        assert db[b"key"] == apart[b"key"] == db.keyspace("apart", create=False)[b"key"] == b"2"
        # Each keeps its moment, but a view shows the present state at each call.
        assert db.get(b"key", snapshot=snapshot) == apart.get(b"key", snapshot=snapshot) == b"1"
        assert list(db.items(snapshot=snapshot)) == list(walk) == [(b"key", b"1")]
        assert len(apart.keys(snapshot=snapshot)) == 1 and list(items) == [(b"key", b"2")]
        assert cursor.first() and cursor.value == b"1"
        at = db.cursor(snapshot=snapshot)
        assert at.first() and at.value == b"1"
        with pytest.raises(runstone.ReadOnly):
            db[b"key"] = b"x"
        time.sleep(0.02)
        assert db.age >= 0.02
        writer.write("3")
        db.checkpoint(tmp_path / "copy")
        assert value_in(tmp_path / "copy") == b"3" and db[b"key"] == b"2"
        writer.write("drop")
        assert db.refresh()
        with pytest.raises(runstone.UnknownKeyspace, match="apart"):
            apart[b"key"]
        writer.write("4")
        assert db.refresh() and apart[b"key"] == b"4"
    with pytest.raises(runstone.Closed):
        apart[b"key"]
    assert writer.process.poll() is None
    nothing_left(tmp_path)


def test_refresh_while_others_read(tmp_path: Path, writer: Writer) -> None:
    writer.write("0")
    with runstone.follow(tmp_path / "db") as db:
        is_over = threading.Event()
        failures: list[BaseException] = []

        def work(refreshes: bool) -> None:
            try:
                before = 0
                while not is_over.is_set():
                    if refreshes:
                        db.refresh()
                    found = int(db.keyspace("apart", create=False)[b"key"])
                    assert found >= before
                    before = found
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(at % 2 == 0,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for number in range(1, 100):
            writer.write(str(number))
            db.refresh()
            assert int(db[b"key"]) == number
        is_over.set()
        for thread in threads:
            thread.join()
        assert not failures


def test_followers_come_and_go(tmp_path: Path) -> None:
    """A follower does not prevent writing, and survives the kill of the writer."""
    with pytest.raises(runstone.NotAStore):
        runstone.follow(tmp_path / "db")
    with runstone.open(tmp_path / "db") as db:
        db[b"key"] = b"0"
        for call in (db.refresh, lambda: db.age):
            with pytest.raises(runstone.InvalidArgument, match="open for writing"):
                call()
    with runstone.open(tmp_path / "db", read_only=True) as db:
        assert not db.refresh() and db.age == 0
    with runstone.follow(tmp_path / "db") as db:
        writer = Writer(tmp_path / "db")
        writer.write("1")
        assert db.refresh() and db[b"key"] == b"1"
        writer.process.kill()
        writer.close()
        assert not db.refresh() and db[b"key"] == b"1"
        again = Writer(tmp_path / "db")
        again.write("2")
        assert db.refresh() and db[b"key"] == b"2"
        again.close()
        assert db[b"key"] == b"2"


def test_leases_end(tmp_path: Path) -> None:
    """A writer that cannot wait any longer drops the files that it kept, and reports this."""
    with runstone.open(tmp_path / "db", follower_keep_seconds=0) as db:
        db[b"key"] = b"0"
        db.flush()
        with runstone.follow(tmp_path / "db") as reader:
            with pytest.raises(runstone.LeaseRevoked, match="follow the store again"):
                for number in range(1000):
                    db[b"key"] = b"%d" % number
                    db.flush()
                    db.compact()
                    time.sleep(0.01)
                    reader.refresh()
        with runstone.follow(tmp_path / "db") as reader:
            assert reader[b"key"] == db[b"key"]


def test_repair(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with runstone.open(path) as db:
        db.update((b"%04d" % number, b"v" * 100) for number in range(5000))
        with pytest.raises(runstone.InUse):
            runstone.repair(path, tmp_path / "new")
        db.flush()
    healthy = runstone.repair(path, tmp_path / "new")
    assert healthy.healthy and not (tmp_path / "new").exists() and "healthy" in repr(healthy)
    for manifest in path.glob("*.manifest"):
        manifest.unlink()
    report = runstone.repair(path, tmp_path / "new")
    assert not report.healthy and report.basis == "tables" and report.keyspaces == ["default"]
    assert report.entries == 5000 and report.tables >= 1 and report.last_number >= 5000
    assert report.carried_tables == 0
    assert report.lost and report.doubts[0].reason == "may-be-back"
    doubt = report.doubts[0]
    assert doubt.covers("default", b"0007") and (doubt.first, doubt.last) == (b"", None)
    assert not doubt.covers("other", b"0007") and doubt.message
    with runstone.open(tmp_path / "new", create_if_missing=False) as db:
        assert len(db) == 5000 and db.verify() > 0
    with pytest.raises(runstone.Storage, match="empty or new"):
        runstone.repair(path, tmp_path / "new")
    with pytest.raises(runstone.NotAStore):
        runstone.repair(tmp_path / "none", tmp_path / "newer")
    with pytest.raises(TypeError, match="merge_operators"):
        runstone.repair(path, tmp_path / "newer", merge_operators={"m": 7})  # type: ignore[dict-item]
