"""Tests reading committed changes in order while another process writes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

import runstone
from test_backups import Writer, writer
from test_handles import nothing_left

__all__ = ["writer"]


def kinds(changes: runstone.Changes) -> list[str]:
    return [change.kind for change in changes if change.kind != "time"]


def test_all_kinds(tmp_path: Path) -> None:
    join = {"join": lambda key, base, operands: (base or b"") + b"".join(operands)}
    with runstone.open(tmp_path / "db", merge_operators=join) as db:
        with runstone.Changes(db, now=True) as changes:
            apart = db.keyspace("apart", {"merge_operator": "join"})
            before = time.time()
            with db.write_batch() as batch:
                batch.put(b"k", b"v")
                batch.delete(b"gone")
                batch.merge(b"m", b"operand", keyspace=apart)
                batch.delete_range(b"a", b"b", keyspace=apart)
                batch.delete_range(b"x")
            db.put(b"soon", b"v", ttl=60)
            db.drop_keyspace("apart")
            found = [change for change in changes if change.kind != "time"]
            assert [one.kind for one in found] == ["keyspace", "writes", "writes", "dropped"]
            assert found[-1].position == changes.position
            name, options = found[0].keyspaces[0]
            assert name == "apart" and options is not None and "join" in options
            assert found[3].keyspaces == [("apart", None)] and not list(found[3])
            told = [(one.kind, one.keyspace, one.key, one.value, one.stop) for one in found[1]]
            assert told == [
                ("put", "default", b"k", b"v", None),
                ("delete", "default", b"gone", None, None),
                ("merge", "apart", b"m", b"operand", None),
                ("delete-range", "apart", b"a", None, b"b"),
                ("delete-range", "default", b"x", None, None),
            ]
            # A change can be read again.
            assert len(list(found[1])) == 5 and "writes" in repr(found[1])
            (expiring,) = found[2]
            assert expiring.expires is not None and before + 30 < expiring.expires < before + 90
            assert next(changes, None) is None and "soon" in repr(expiring)
        # Reading after a position returns the later changes.
        with runstone.Changes(db, after=found[1].position) as again:
            assert kinds(again) == ["writes", "dropped"]
        with runstone.Changes(str(tmp_path / "db"), after=str(found[2].position)) as again:
            assert kinds(again) == ["dropped"]


def test_a_folded_put(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        sums = db.keyspace("sums", {"merge_operator": "add-i64"})
        with runstone.Changes(db, now=True) as changes:
            for _ in range(100):
                sums.merge(b"m", (1).to_bytes(8, "little"))
            assert sums.get(b"m") == (100).to_bytes(8, "little")
            sums.put(b"k", b"v")
            told = [(write.kind, write.folded) for change in changes for write in change]
            assert told == [("merge", False)] * 100 + [("put", True), ("put", False)]


def test_exactly_once(tmp_path: Path, writer: Writer) -> None:
    """A copy that is killed at any moment has each change once, because each batch has its
    position."""
    counts = {"add": lambda key, base, operands: b"%d" % (int(base or 0) + len(operands))}
    options = {"merge_operator": "add"}
    for words in (["1", "2"], ["3"], []):
        for word in words:
            writer.write(word)
        with runstone.open(tmp_path / "copy", merge_operators=counts, keyspace=options) as copy:
            after = copy.keyspace("places").get(b"after")
            text = after.decode() if after is not None else None
            with runstone.Changes(tmp_path / "db", after=text) as changes:
                for change in changes:
                    with copy.write_batch() as batch:
                        for write in change:
                            batch.merge(write.key, b"1")
                        places = copy.keyspace("places")
                        batch.put(b"after", str(change.position).encode(), keyspace=places)
    with runstone.open(tmp_path / "copy", merge_operators=counts) as copy:
        # Each word is written to two keyspaces.
        assert copy[b"key"] == b"6"


def test_waits(tmp_path: Path, writer: Writer) -> None:
    with runstone.Changes(tmp_path / "db", now=True) as changes:
        assert changes.next() is None and changes.next(0.05) is None
        found: list[runstone.Change] = []

        def work() -> None:
            while change := changes.next(30):
                found.append(change)
                if any(write.value == b"last" for write in change):
                    break

        thread = threading.Thread(target=work)
        thread.start()
        writer.write("first")
        writer.write("last")
        thread.join(60)
        values = [write.value for change in found for write in change]
        assert values[-1] == b"last" and values.count(b"first") == 2
        # Closing ends a wait.
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                while True:
                    changes.next(60)
            except runstone.Closed as closed:
                caught.append(closed)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        changes.close()
        changes.close()
        thread.join(60)
        assert len(caught) == 1
        with pytest.raises(runstone.Closed, match="reader of changes"):
            changes.next()
    nothing_left(tmp_path)


def test_what_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with runstone.open(path) as db:
        with runstone.Changes(db) as changes:
            db[b"key"] = b"value"
            first = next(change for change in changes if change.kind == "writes")
    # No reader keeps the log.
    with runstone.open(path) as db:
        db[b"key"] = b"other"
    with pytest.raises(runstone.HistoryGone, match="keep_log_bytes"):
        runstone.Changes(path, after=first.position)
    other = runstone.Position(f"{first.position.number}@0123456789abcdef")
    with pytest.raises((runstone.HistoryForked, runstone.HistoryGone)):
        runstone.Changes(path, after=other)
    with pytest.raises(runstone.NotAStore):
        runstone.Changes(tmp_path / "none")
    with pytest.raises(runstone.InvalidArgument, match="not both"):
        runstone.Changes(path, after=first.position, now=True)
    with pytest.raises(runstone.InvalidArgument, match="position"):
        runstone.Changes(path, after="yesterday")
    with pytest.raises(TypeError, match="after is a Position"):
        runstone.Changes(path, after=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store is a path"):
        runstone.Changes(7)  # type: ignore[arg-type]
    with runstone.Changes(path) as changes:
        for wait in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="wait"):
                changes.next(wait)


def test_everything(tmp_path: Path) -> None:
    """The log begins after a flush, so a consumer without data begins with the state."""
    path = tmp_path / "db"
    with runstone.open(path) as db:
        db[b"flushed"] = b"1"
        db[b"gone"] = b"1"
        del db[b"gone"]
        db.flush()
        with runstone.Changes(db, everything=True) as changes:
            db[b"later"] = b"2"
            found = [change for change in changes if change.kind != "time"]
        assert [one.kind for one in found] == ["gap", "keyspaces", "state", "gap-end", "writes"]
        assert found[0].gap is not None and found[0].gap[0] == 0
        told = [(write.key, write.value) for change in found for write in change]
        assert told == [(b"flushed", b"1"), (b"later", b"2")]
        # Reading from a position inside the state returns the whole state again.
        with runstone.Changes(db, after=found[2].position) as again:
            assert kinds(again)[:3] == ["gap", "keyspaces", "state"]
        with pytest.raises(runstone.InvalidArgument, match="alone"):
            runstone.Changes(path, everything=True, now=True)


def test_the_state_behind_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "db"
    join = {"join": lambda key, base, operands: (base or b"") + b"".join(operands)}
    options = {"merge_operator": "join"}
    with runstone.open(path, merge_operators=join) as db:
        db[b"old"] = db[b"gone"] = b"1"
        with runstone.Changes(db) as changes:
            assert kinds(changes)
            after = changes.position
        db[b"new"] = b"1"
        db[b"new"] = b"2"
        apart = db.keyspace("apart", options)
        for _ in range(3):
            apart.merge(b"m", b"x")
            db.flush()
        del db[b"gone"]
    with runstone.open(path, merge_operators=join) as db:
        db[b"late"] = b"3"
        with pytest.raises(runstone.HistoryGone):
            runstone.Changes(db, after=after)
        with runstone.Changes(db, after=after, on_gap="state", merge_operators=join) as changes:
            found = [change for change in changes if change.kind != "time"]
            names = [change.kind for change in found]
            assert names == ["gap", "keyspaces", "state", "state", "gap-end"]
            assert found[0].gap is not None and found[0].gap[0] == after.number
            assert [name for name, _ in found[1].keyspaces] == ["default", "apart"]
            writes = [(one.kind, one.keyspace, one.key, one.value) for part in found for one in part]
            assert writes == [
                ("delete", "default", b"gone", None),
                ("put", "default", b"late", b"3"),
                ("put", "default", b"new", b"2"),
                ("put", "apart", b"m", b"xxx"),
            ]
            # A reader that is interrupted inside the gap begins with the gap again.
            assert [change.position for change in found[:4]] == [after] * 4
            assert found[4].position.number >= found[0].gap[1] and found[4].gap is None
            # Then the log continues.
            db[b"last"] = b"4"
            assert kinds(changes) == ["writes"]
        # Reading the state of operands needs the operator.
        with pytest.raises(runstone.Error, match="join"):
            with runstone.Changes(db, after=after, on_gap="state") as changes:
                kinds(changes)
        # If the log reaches back far enough, there is no gap.
        end = found[4].position
        with runstone.Changes(db, after=end, on_gap="state", unsynced=True) as changes:
            assert kinds(changes) == ["writes"]
    with pytest.raises(runstone.InvalidArgument, match="on_gap"):
        runstone.Changes(path, after=after, on_gap="skip")  # type: ignore[arg-type]
    with pytest.raises(runstone.InvalidArgument, match="position"):
        runstone.Changes(path, on_gap="state")
    with pytest.raises(runstone.InvalidArgument, match="memory_budget_bytes.*on_gap"):
        runstone.Changes(path, after=after, memory_budget_bytes="16M")
    with pytest.raises(runstone.InvalidArgument, match="on_gap"):
        runstone.Changes(path, after=after, merge_operators=join)
    with pytest.raises(runstone.InvalidArgument, match="memory"):
        runstone.Changes(path, after=after, on_gap="state", memory=7)
    with pytest.raises(TypeError, match="not callable"):
        runstone.Changes(
            path, after=after, on_gap="state", merge_operators={"join": 7}  # type: ignore[dict-item]
        )


def _in_a_fork(changes: runstone.Changes, change: runstone.Change) -> None:
    refused = 0
    for call in (changes.next, lambda: change.position, lambda: list(change)):
        try:
            call()
        except runstone.OtherProcess:
            refused += 1
    changes.close()
    os._exit(refused)


def test_a_fork(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        with runstone.Changes(db) as changes:
            db[b"key"] = b"value"
            change = next(one for one in changes if one.kind == "writes")
            context = multiprocessing.get_context("fork")
            fork = context.Process(target=_in_a_fork, args=(changes, change))
            fork.start()
            fork.join()
            assert fork.exitcode == 3
            db[b"key"] = b"other"
            assert [write.value for one in changes for write in one] == [b"other"]
