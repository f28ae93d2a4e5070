"""Tests the use and misuse of the store from Python."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import MutableMapping
from pathlib import Path
from typing import Iterator

import pytest

import runstone


@pytest.fixture
def db(tmp_path: Path) -> Iterator[runstone.Store]:
    with runstone.open(tmp_path / "db") as store:
        yield store


def test_a_store_is_a_mapping(db: runstone.Store) -> None:
    assert isinstance(db, MutableMapping)
    assert not db and len(db) == 0
    db[b"b"] = b"2"
    db.update({b"a": b"1", b"c": b"3"})
    db.update([(b"d", b"")])
    assert db and len(db) == 4 and list(db) == [b"a", b"b", b"c", b"d"]
    assert db[b"d"] == b"" and db.get(b"x") is None and db.get(b"x", 7) == 7
    assert b"a" in db and b"x" not in db
    assert db.setdefault(b"a", b"other") == b"1" and db.setdefault(b"e", b"5") == b"5"
    assert db.pop(b"e") == b"5" and db.pop(b"e", None) is None
    del db[b"d"]
    for missing in (lambda: db[b"d"], lambda: db.pop(b"d"), lambda: db.__delitem__(b"d")):
        with pytest.raises(KeyError):
            missing()
    assert db.popitem() == (b"a", b"1")
    db.clear()
    with pytest.raises(KeyError):
        db.popitem()


def test_buffers_go_in_and_bytes_come_out(db: runstone.Store) -> None:
    db.put(bytearray(b"k"), memoryview(b"value")[1:3])
    assert db[b"k"] == b"al" and db.get(memoryview(b"k")) == b"al"
    large = os.urandom(100_000)
    db[b"large"] = large
    view = runstone.get_view(db, b"large")
    assert view is not None and view.readonly and len(view) == 100_000
    db[b"large"] = b"replaced"
    db.flush()
    gc.collect()
    assert bytes(view) == large
    assert runstone.get_view(db, b"x") is None
    for wrong in ("text", 7, None):
        with pytest.raises(TypeError):
            db[b"k"] = wrong  # type: ignore[assignment]
    assert db.multi_get([b"k", b"x"]) == [b"al", None]


def test_iterators(db: runstone.Store) -> None:
    keys = [b"%04d" % number for number in range(2000)]
    db.update((key, key * 2) for key in keys)
    assert list(db.keys()) == keys
    assert list(db.items(reverse=True)) == [(key, key * 2) for key in reversed(keys)]
    assert list(db.values()) == [key * 2 for key in keys]
    assert list(db.values(b"0010", b"0013")) == [b"00100010", b"00110011", b"00120012"]
    assert list(db.keys(prefix=b"199")) == keys[1990:]
    walk = db.keys()
    assert next(walk) == b"0000"
    walk.seek(b"0500")
    assert next(walk) == b"0500"
    assert len(list(walk)) == 1499 and list(walk) == []
    walk.seek(b"1999")
    assert list(walk) == [b"1999"] and list(walk) == []
    back = db.keys(reverse=True)
    back.seek(b"0500x")
    assert [next(back), next(back)] == [b"0500", b"0499"]
    # Later writes are not shown.
    seen = 0
    for key in db.keys():
        db.put(b"new" + key, b"")
        seen += 1
    assert seen == 2000
    walk.close()
    with pytest.raises(runstone.Closed):
        walk.seek(b"")
    with pytest.raises(runstone.InvalidArgument):
        db.keys(b"a", prefix=b"a")
    with db.cursor(prefix=b"000") as cursor:
        assert cursor.last() and cursor.key == b"0009" and cursor.previous()
        assert cursor.seek(b"0003") and cursor.value == b"00030003"
        assert not cursor.seek(b"001") and not cursor.valid and cursor.key is None


def test_batches_snapshots_and_ranges(db: runstone.Store) -> None:
    log = db.keyspace("log")
    with db.write_batch(sync=True) as batch:
        batch.put(b"a", b"1")
        batch.put(b"0001", b"a is 1", keyspace=log)
        assert len(batch) == 2 and b"a" not in db
    assert db[b"a"] == b"1" and log[b"0001"] == b"a is 1"
    with pytest.raises(ZeroDivisionError):
        with db.write_batch() as batch:
            batch[b"a"] = b"%d" % (1 // 0)
    with db.snapshot() as before:
        db.delete_range(b"a", b"b")
        assert b"a" not in db and db.get(b"a", snapshot=before) == b"1"
        assert list(db.keys(snapshot=before)) == [b"a"]
    with pytest.raises(runstone.Closed):
        db.get(b"a", snapshot=before)
    db.update((bytes([number, 255]), b"") for number in range(256))
    db.delete_range(prefix=b"\xff")
    assert len(db) == 255
    with pytest.raises(runstone.InvalidArgument):
        db.delete_range(b"b", b"a")
    assert db.keyspaces() == ["default", "log"]
    db.drop_keyspace("log")
    with pytest.raises(runstone.UnknownKeyspace):
        log.get(b"0001")
    with pytest.raises(runstone.UnknownKeyspace):
        db.keyspace("log", create=False)


def test_transactions(db: runstone.Store) -> None:
    db[b"alice"] = b"10"
    with db.transaction() as transfer:
        assert transfer.get(b"alice") == b"10"
        transfer.put(b"alice", b"7")
        transfer[b"bob"] = b"3"
        assert list(transfer.items()) == [(b"alice", b"7"), (b"bob", b"3")]
        assert b"bob" not in db
    assert db[b"bob"] == b"3"
    with pytest.raises(runstone.Closed):
        transfer.get(b"bob")
    late = db.transaction()
    late.put(b"bob", b"4")
    db[b"bob"] = b"5"
    with pytest.raises(runstone.Conflict, match="bob"):
        late.commit()
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as failed:
            failed.put(b"bob", b"%d" % (1 // 0))
    assert db[b"bob"] == b"5"
    with db.transaction(pessimistic=True) as locking:
        assert locking.get_for_update(b"bob") == b"5"
        locking.set_savepoint()
        locking.delete(b"bob")
        locking.rollback_to_savepoint()
    assert db.compare_and_swap(b"bob", b"5", None) and b"bob" not in db
    assert not db.compare_and_swap(b"bob", b"5", b"6")


def test_entries_are_taken_from_both_ends(db: runstone.Store) -> None:
    db.update({key: key * 2 for key in (b"a", b"b", b"c", b"d", b"e")})
    assert db.pop_first(sync=True) == (b"a", b"aa") and db.pop_last() == (b"e", b"ee")
    assert db.drain(b"c", most=9, sync=True) == [(b"c", b"cc"), (b"d", b"dd")]
    assert db.drain(most=0) == [] and db.drain(prefix=b"x", most=1) == []
    assert db.popitem() == (b"b", b"bb")
    assert db.pop_first() is None and db.pop_last() is None and db.drain(most=1) == []
    with pytest.raises(KeyError):
        db.popitem()
    with pytest.raises(OverflowError):
        db.drain(most=-1)
    with pytest.raises(runstone.Error):
        db.drain(b"b", b"a", most=1)


def test_expiry(db: runstone.Store) -> None:
    db.put(b"kept", b"", ttl=3600.0)
    assert b"kept" in db
    for wrong in (-1.0, float("nan"), 1e300):
        with pytest.raises(ValueError):
            db.put(b"k", b"", ttl=wrong)
    with pytest.raises(runstone.InvalidArgument):
        db.put(b"k", b"", ttl=0.0)


def join(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
    if key == b"bad":
        raise ValueError("this key is bad")
    if key == b"odd":
        return "no bytes"  # type: ignore[return-value]
    return b",".join(([] if base is None else [base]) + operands)


def tidy(level: int, key: bytes, value: bytes) -> bool | bytes:
    if key == b"raises":
        raise ValueError("a filter that raises")
    return b"changed" if value == b"change" else value != b"remove"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_programs(tmp_path: Path) -> None:
    with runstone.open(
        tmp_path / "db",
        merge_operators={"join": join},
        compaction_filters={"tidy": tidy},
        keyspace={"merge_operator": "join", "compaction_filter": "tidy"},
    ) as db:
        for operand in (b"1", b"2"):
            db.merge(b"k", operand)
        db.merge(b"bad", b"1")
        db.merge(b"odd", b"1")
        assert db[b"k"] == b"1,2"
        with pytest.raises(runstone.MergeFailed, match="this key is bad"):
            db.get(b"bad")
        with pytest.raises(runstone.MergeFailed):
            db.get(b"odd")
        db.update({b"a": b"remove", b"b": b"change", b"raises": b"remove"})
        db.compact()
        assert b"a" not in db and db[b"b"] == b"changed" and b"raises" in db


def test_an_error_comes_at_its_place(db: runstone.Store) -> None:
    """An unreadable key anywhere in the next page once raised its error before the entries in front
    of it were shown. They were then lost, or followed the error."""
    sums = db.keyspace("sums", runstone.to_toml({"merge_operator": "add-u64"}))
    keys = [b"%02d" % number for number in range(20)]
    sums.update((key, b"no number") for key in keys)
    sums.merge(keys[10], bytes(8))
    transaction = db.transaction()
    for reverse in (False, True):
        for walk in (
            sums.items(reverse=reverse),
            transaction.items(reverse=reverse, keyspace=sums),
        ):
            shown = []
            with pytest.raises(runstone.MergeFailed):
                for key, _ in walk:
                    shown.append(key)
            assert shown == (keys[:10:-1] if reverse else keys[:10])


def test_options(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db", memory_budget_bytes="256M", durability="sync") as db:
        db.keyspace("counters", runstone.to_toml({"merge_operator": "add-u64"}))
    for wrong in ({"memory": 5}, {"memory_budget_bytes": 5}, {"keyspace": {"policy": "nice"}}):
        with pytest.raises(runstone.InvalidArgument):
            runstone.open(tmp_path / "other", **wrong)
    with pytest.raises(TypeError, match="durability"):
        runstone.open(tmp_path / "other", durability=object())
    assert not (tmp_path / "other").exists()


def test_options_of_a_keyspace_are_a_dict_as_those_of_a_store(db: runstone.Store) -> None:
    sums = db.keyspace("sums", {"merge_operator": "add-u64", "values": {"placement": "inline"}})
    for _ in range(2):
        sums.merge(b"k", (3).to_bytes(8, "little"))
    assert sums[b"k"] == (6).to_bytes(8, "little")
    with pytest.raises(runstone.InvalidArgument, match="polcy"):
        db.keyspace("other", {"polcy": "leveling"})
    with pytest.raises(TypeError, match="options are"):
        db.keyspace("other", 7)  # type: ignore[arg-type]
    assert "other" not in db.keyspaces()


def test_after_close(tmp_path: Path) -> None:
    db = runstone.open(tmp_path / "db")
    batch, transaction, walk = db.write_batch(), db.transaction(), db.items()
    batch.put(b"k", b"v")
    transaction.put(b"k", b"v")
    db.close()
    db.close()
    for late in (
        lambda: db.get(b"k"),
        lambda: db.put(b"k", b"v"),
        lambda: db.items(),
        lambda: db.keyspace("more"),
        batch.write,
        transaction.commit,
        lambda: db.transaction(),
        lambda: db.drop_keyspace("more"),
        lambda: list(walk),
    ):
        with pytest.raises(runstone.Closed):
            late()
    walk.close()
    with runstone.open(tmp_path / "db") as db:
        assert len(db) == 0


def _in_a_fork(db: runstone.Store) -> None:
    try:
        db.put(b"k", b"from a fork")
    except runstone.OtherProcess:
        os._exit(17)
    os._exit(1)


def test_processes_and_directories(tmp_path: Path) -> None:
    db = runstone.open(tmp_path / "db")
    with pytest.raises(runstone.InUse):
        runstone.open(tmp_path / "db")
    db[b"before"] = b"v"
    with runstone.open(tmp_path / "db", read_only=True) as view:
        db[b"after"] = b"v"
        assert view[b"before"] == b"v" and b"after" not in view
    fork = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(db,))
    fork.start()
    fork.join()
    assert fork.exitcode == 17
    db[b"k"] = b"v"
    db.flush()
    db.checkpoint(tmp_path / "linked")
    db.checkpoint(tmp_path / "copy", copy=True)
    links = [
        max(file.stat().st_nlink for file in (tmp_path / name).iterdir())
        for name in ("linked", "copy")
    ]
    assert links == [2, 1]
    assert db.verify() >= 0 and "runstone_" in db.metrics()
    db.close()
    with runstone.open(tmp_path / "copy", read_only=True) as copy:
        assert copy[b"k"] == b"v"
        with pytest.raises(runstone.ReadOnly):
            copy[b"k"] = b""
    with pytest.raises(runstone.NotAStore):
        runstone.open(tmp_path / "none", create_if_missing=False)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "CURRENT").write_text("MANIFEST-000002\n")
    with pytest.raises(runstone.ForeignFiles, match="runstone import"):
        runstone.open(tmp_path / "theirs")
    runstone.destroy(tmp_path / "db")
    with pytest.raises(runstone.NotAStore):
        runstone.destroy(tmp_path / "db")


def test_a_program_that_forgets_to_close_ends(tmp_path: Path) -> None:
    program = (
        "import runstone, sys\n"
        "db = runstone.open(sys.argv[1], merge_operators={'m': lambda k, b, o: b''.join(o)},\n"
        "                   keyspace={'merge_operator': 'm'})\n"
        "for at in range(50_000): db.merge(b'%d' % (at % 100), b'x')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    subprocess.run(command, check=True, timeout=60)
    with runstone.open(tmp_path / "db", merge_operators={"m": join}) as db:
        assert db.keyspaces() == ["default"]


def test_threads(db: runstone.Store) -> None:
    def work(thread: int) -> None:
        for at in range(2000):
            db[b"%d/%04d" % (thread, at)] = b"v"
            assert db[b"%d/%04d" % (thread, at)] == b"v"

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db) == 8000


def test_nothing_leaks(db: runstone.Store) -> None:
    value = b"v" * 1000

    def work() -> None:
        for at in range(500):
            key = b"%d" % at
            db[key] = value
            assert db[key] == value and runstone.get_view(db, key) is not None
            assert list(db.items(key, key + b"\0")) == [(key, value)]
            with pytest.raises(KeyError):
                db[b"none"]
        with db.write_batch() as batch:
            batch.put(b"k", value)
        with db.transaction() as transaction:
            transaction.put(b"k", value)

    work()
    count = sys.getrefcount(value)
    tracemalloc.start()
    for _ in range(3):
        work()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(10):
        work()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 50_000 and sys.getrefcount(value) == count
