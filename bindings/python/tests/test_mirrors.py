"""Tests a store that follows another store, and the reports of a writer to its followers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable

import pytest

import runstone
from test_backups import Writer, writer
from test_handles import nothing_left

__all__ = ["writer"]


def test_a_mirror_goes_on(tmp_path: Path, writer: Writer) -> None:
    writer.write("one")
    source, target = tmp_path / "db", tmp_path / "mirror"
    with runstone.mirror(source, target) as mirror:
        with runstone.follow(target) as shown:
            assert shown[b"key"] == b"one"
            writer.write("two")
            round = mirror.advance(wait=30)
            assert round.changes >= 1 and round.is_drained and "changes=" in repr(round)
            assert shown.refresh() and shown[b"key"] == b"two"
        with pytest.raises(runstone.InUse):
            runstone.mirror(source, target)
        place = mirror.position
    assert place.number > 0
    with pytest.raises(runstone.Closed, match="mirror"):
        mirror.advance()
    with pytest.raises(runstone.Closed, match="mirror"):
        mirror.position
    mirror.close()
    writer.write("three")
    with runstone.mirror(source, target) as mirror:
        assert mirror.position == place and mirror.advance().changes >= 1
    with runstone.open(target) as db:
        assert db[b"key"] == b"three"
    with runstone.open(tmp_path / "other"):
        pass
    with pytest.raises(runstone.InvalidArgument, match="no mirror"):
        runstone.mirror(source, tmp_path / "other")
    with pytest.raises(runstone.NotAStore):
        runstone.mirror(tmp_path / "none", tmp_path / "new")
    with pytest.raises(TypeError, match="store is a path"):
        runstone.mirror(7, target)  # type: ignore[arg-type]
    nothing_left(tmp_path)


def test_rounds_say_whether_there_is_more(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        backups = runstone.Backups(tmp_path / "backups")
        with runstone.mirror(db, tmp_path / "mirror") as mirror, backups.archive(db) as archiver:
            assert archiver.advance().is_drained
            for number in range(40):
                db[b"key"] = bytes([number]) * (1 << 20)
            first, second = mirror.advance(), archiver.advance()
            assert not first.is_drained and 16 <= first.changes < 40 and first.bytes >= 16 << 20
            assert not second.is_drained and 16 <= second.changes < 40 and "more" in repr(second)
            while not mirror.advance().is_drained:
                pass
            while not archiver.advance().is_drained:
                pass
            # The writer may have recorded the time since, which is also a change.
            assert mirror.advance().bytes == 0 and archiver.advance().changes <= 1
            with runstone.follow(tmp_path / "mirror") as shown:
                assert shown[b"key"] == db[b"key"]


def test_it_needs_the_programs_of_the_other_store(tmp_path: Path) -> None:
    join = {"join": lambda key, base, operands: (base or b"") + b"".join(operands)}
    keyspace = {"merge_operator": "join"}
    with runstone.open(tmp_path / "db", merge_operators=join, keyspace=keyspace) as db:
        with runstone.mirror(db, tmp_path / "mirror", merge_operators=join) as mirror:
            db.merge(b"key", b"a")
            db.merge(b"key", b"b")
            mirror.advance()
            with runstone.follow(tmp_path / "mirror", merge_operators=join) as shown:
                assert shown[b"key"] == b"ab"


def test_a_filter_that_closes_its_mirror(tmp_path: Path) -> None:
    """A filter of the mirror once closed the mirror. The close waited for the running round, which
    could wait for the filter, and then the mirror was lost without having been closed."""
    refused: set[int] = set()

    def keep(level: int, key: bytes, value: bytes) -> bool:
        calls: list[Callable[[], object]] = [
            mirror.close,
            mirror.advance,
            lambda: mirror.position,
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except runstone.InsideCallback:
                refused.add(number)
            except runstone.Closed:
                # At the end, by the other thread.
                assert is_closing
        return True

    is_closing = False
    options = {"compaction_filter": "keep", "write_buffer_bytes": "64K"}
    keeps = {"keep": lambda level, key, value: True}
    with runstone.open(tmp_path / "db", compaction_filters=keeps, keyspace=options) as db:
        mirror = runstone.mirror(db, tmp_path / "mirror", compaction_filters={"keep": keep})
        number = 0
        while len(refused) < 3:
            db.update((b"%d" % (key % 1000), b"v" * 100) for key in range(number, number + 1000))
            number += 1000
            mirror.advance()
        mirror.advance()
        is_closing = True
        mirror.close()
        with runstone.follow(tmp_path / "mirror") as shown:
            assert shown == db


def test_a_close_ends_a_wait(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        mirror = runstone.mirror(db, tmp_path / "mirror")
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                while True:
                    mirror.advance(60)
            except runstone.Closed as closed:
                caught.append(closed)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        mirror.close()
        thread.join(60)
        assert len(caught) == 1
        for wait_time in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="wait"):
                mirror.advance(wait_time)
    nothing_left(tmp_path)


def test_a_mirror_that_nobody_closes(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        mirror = runstone.mirror(db, tmp_path / "mirror")
        del mirror
        gc.collect()
        runstone.open(tmp_path / "mirror").close()
    # A mirror whose store calls Python from its threads does not prevent Python from ending.
    program = """
import runstone, sys
join = {"join": lambda key, base, operands: b"".join([base or b"", *operands])}
keyspace = {"merge_operator": "join", "write_buffer_bytes": "64K"}
db = runstone.open(sys.argv[1], merge_operators=join, keyspace=keyspace)
mirror = runstone.mirror(db, sys.argv[2], merge_operators=join)
for number in range(20000):
    db.merge(b"%d" % (number % 50), b"x" * 20)
while not mirror.advance().is_drained:
    pass
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "a"), str(tmp_path / "b")]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


def _in_a_fork(mirror: runstone.Mirror, shown: runstone.Store) -> None:
    refused = 0
    for call in (mirror.advance, lambda: mirror.position, shown.live, shown.refresh):
        try:
            call()
        except runstone.OtherProcess:
            refused += 1
    mirror.close()
    os._exit(refused)


def test_a_fork(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db, runstone.Resources() as shared:
        with runstone.mirror(db, tmp_path / "mirror") as mirror:
            with runstone.follow(tmp_path / "db", resources=shared) as shown:
                context = multiprocessing.get_context("fork")
                fork = context.Process(target=_in_a_fork, args=(mirror, shown))
                fork.start()
                fork.join(60)
                assert fork.exitcode == 4
                db[b"key"] = b"other"
                assert mirror.advance().changes >= 1 and shown.refresh()


def told(store: runstone.Store) -> runstone.LiveState:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        state = store.live()
        if state is not None and state.is_current:
            return state
        time.sleep(0.01)
    raise AssertionError("the writer told nothing")


def counter(text: str, name: str) -> float:
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    (value,) = [float(line[1]) for line in lines if line[0] == name]
    return value


def test_what_a_writer_tells(tmp_path: Path, writer: Writer) -> None:
    for word in ("1", "2", "3"):
        writer.write(word)
    with runstone.follow(tmp_path / "db") as db:
        state = told(db)
        assert state.process == writer.process.pid and 0 <= state.age < 10
        assert str(state.process) in repr(state)
        written = counter(state.metrics, "runstone_writes_total")
        assert written >= 3 and counter(db.metrics(), "runstone_writes_total") == 0
    with pytest.raises(runstone.Closed):
        db.live()
    with runstone.open(tmp_path / "own") as own:
        with pytest.raises(runstone.InvalidArgument, match="open for writing"):
            own.live()
    with runstone.follow(tmp_path / "own") as alone:
        assert alone.live() is None
    with runstone.open(tmp_path / "own", read_only=True) as alone:
        assert alone.live() is None
