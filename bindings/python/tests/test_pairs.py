"""Tests combinations of options: each acts with every other as it does alone. All combinations are
tried, and the expected results come from a model of each option alone."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

import runstone
from runstone import plyvel

KEYS = [b"k%02d" % number for number in range(60)]
KINDS = ("keys", "values", "items", "cursor", "transaction.keys", "transaction.items")


def metric(db: runstone.Store, name: str) -> int:
    found = re.search(rf"^runstone_{name} (\d+)$", db.metrics(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def synced(db: runstone.Store, work: Callable[[], object]) -> int:
    before = metric(db, "wal_syncs_total")
    work()
    return metric(db, "wal_syncs_total") - before


def choices(count: int) -> Iterator[tuple[bool, ...]]:
    return itertools.product((False, True), repeat=count)


def write_batch(db: runstone.Store, part: runstone.Keyspace, sync: Optional[bool]) -> None:
    with db.write_batch(sync=sync) as batch:
        batch.put(b"k", b"v")
        batch.put(b"k", b"v", keyspace=part)


@pytest.mark.parametrize("durability", ["buffered", "sync"])
@pytest.mark.parametrize("sync", [None, False, True])
def test_writes(tmp_path: Path, durability: str, sync: Optional[bool]) -> None:
    """`put` with a time to live once ignored `sync`, so its value did not survive a power loss.
    Both options work now, as in every other write."""
    expected = int(sync or (sync is None and durability == "sync"))
    with runstone.open(tmp_path / "db", durability=durability) as db:
        part = db.keyspace("sums", runstone.to_toml({"merge_operator": "add-u64"}))
        for keyspace in (db, part):
            for ttl in (None, 3600.0, 0.001):
                assert synced(db, lambda: keyspace.put(b"k", b"v", sync=sync, ttl=ttl)) == expected
                while ttl == 0.001 and b"k" in keyspace:
                    time.sleep(0.001)
                assert (b"k" in keyspace) == (ttl != 0.001)
            assert synced(db, lambda: keyspace.delete(b"k", sync=sync)) == expected
            for take in (
                lambda: keyspace.pop_first(sync=sync),
                lambda: keyspace.pop_last(sync=sync),
                lambda: keyspace.drain(most=1, sync=sync),
                lambda: keyspace.compare_and_swap(b"k", b"v", None, sync=sync),
            ):
                keyspace.put(b"k", b"v", sync=False)
                assert synced(db, take) == expected and b"k" not in keyspace
        assert synced(db, lambda: part.merge(b"m", bytes(8), sync=sync)) == expected
        assert synced(db, lambda: write_batch(db, part, sync)) == expected
        assert db[b"k"] == b"v" == part[b"k"]


def test_range_deletes(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        for has_start, has_stop, has_prefix, sync, together in choices(5):
            db.update((key, b"v") for key in KEYS)
            start, stop = b"k20" if has_start else None, b"k40" if has_stop else None
            prefix = b"k3" if has_prefix else None

            def delete() -> None:
                if not together:
                    return db.delete_range(start, stop, prefix=prefix, sync=sync)
                with db.write_batch(sync=sync) as batch:
                    batch.delete_range(start, stop, prefix=prefix)

            if has_prefix and (has_start or has_stop):
                with pytest.raises(runstone.InvalidArgument):
                    delete()
                continue
            assert synced(db, delete) == sync
            left = [key for key in KEYS if not shows(key, start, stop, prefix)]
            assert list(db) == left


def shows(
    key: bytes, start: Optional[bytes], stop: Optional[bytes], prefix: Optional[bytes]
) -> bool:
    is_inside = (start is None or key >= start) and (stop is None or key < stop)
    return is_inside and (prefix is None or key.startswith(prefix))


def test_transactions(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        for serializable, pessimistic, sync in choices(3):

            def begin() -> runstone.Transaction:
                return db.transaction(
                    serializable=serializable, pessimistic=pessimistic, sync=sync
                )

            if serializable and pessimistic:
                with pytest.raises(runstone.InvalidArgument, match="pessimistic"):
                    begin()
                continue
            one = begin()
            one.put(b"k", b"v")
            one.get(b"read")
            if pessimistic:
                assert one.get_for_update(b"k") == b"v"
                with pytest.raises(runstone.LockTimeout):
                    db.compare_and_swap(b"k", db.get(b"k"), b"other")
            db[b"read"] = b"v"
            if serializable:
                with pytest.raises(runstone.Conflict):
                    one.commit()
            else:
                assert synced(db, one.commit) == sync


def read(
    db: runstone.Store, kind: str, reverse: bool, fill_cache: bool, options: dict[str, Any]
) -> list[Any]:
    """The entries that an iteration shows, as keys, values or pairs."""
    if kind == "cursor":
        with db.cursor(fill_cache=fill_cache, **options) as cursor:
            found = []
            is_on = cursor.last() if reverse else cursor.first()
            while is_on:
                found.append((cursor.key, cursor.value))
                is_on = cursor.previous() if reverse else cursor.next()
            return found
    if kind.startswith("transaction"):
        transaction = db.transaction()
        walk = getattr(transaction, kind.split(".")[1])(reverse=reverse, **options)
        found = list(walk)
        transaction.rollback()
        return found
    return list(getattr(db, kind)(reverse=reverse, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_reads(tmp_path: Path, kind: str) -> None:
    value = b"o" * 600
    for has_start, has_stop, has_prefix, reverse, at, fills in choices(6):
        if (at and kind.startswith("transaction")) or (not fills and kind != "cursor"):
            continue
        # The store is new each time, because compactions fill the cache too.
        with runstone.open(tmp_path / "db") as db:
            db.update((key, value) for key in KEYS)
            db.flush()
        with runstone.open(tmp_path / "db") as db:
            with db.snapshot() as snapshot:
                db.delete(KEYS[30])
                db[KEYS[31]] = b"new"
                options: dict[str, Any] = {
                    "start": b"k20" if has_start else None,
                    "stop": b"k40" if has_stop else None,
                    "prefix": b"k3" if has_prefix else None,
                }
                entries = {key: value for key in KEYS if shows(key, **options)}
                if not at:
                    del entries[KEYS[30]]
                    entries[KEYS[31]] = b"new"
                else:
                    options["snapshot"] = snapshot
                expected: list[Any] = list(entries.items())
                if kind.endswith("keys"):
                    expected = list(entries)
                elif kind == "values":
                    expected = list(entries.values())
                before = metric(db, "cache_bytes")
                if has_prefix and (has_start or has_stop):
                    with pytest.raises(runstone.InvalidArgument):
                        read(db, kind, reverse, fills, options)
                else:
                    found = read(db, kind, reverse, fills, options)
                    assert found == (expected[::-1] if reverse else expected)
                    assert (metric(db, "cache_bytes") > before) == fills
        runstone.destroy(tmp_path / "db")


def test_gets(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        with db.snapshot() as before:
            db[b"k"] = b"v"
            for at, has_default in choices(2):
                snapshot, default = before if at else None, b"none" if has_default else None
                expected = default if at else b"v"
                assert db.get(b"k", default, snapshot=snapshot) == expected
                view = runstone.get_view(db, b"k", snapshot=snapshot)
                assert (None if view is None else bytes(view)) == (None if at else b"v")


def test_keyspaces(tmp_path: Path) -> None:
    """`create=False` once ignored the options of an existing keyspace."""
    options = runstone.to_toml({"merge_operator": "add-u64"})
    with runstone.open(tmp_path / "db") as db:
        for number, (creates, has_options, exists) in enumerate(choices(3)):
            name = f"part {number}"
            if exists:
                db.keyspace(name)

            def find() -> runstone.Keyspace:
                return db.keyspace(name, options if has_options else None, create=creates)

            if not creates and not exists:
                with pytest.raises(runstone.UnknownKeyspace):
                    find()
                continue
            part = find()
            if has_options:
                part.merge(b"sum", bytes(8))
            else:
                with pytest.raises(runstone.InvalidArgument):
                    part.merge(b"sum", bytes(8))


def model(db: str, **given: Any) -> list[bytes]:
    """Keys that an iterator of plyvel shows, by a model of each option alone."""
    inner = [key[len(db) :] for key in ALL if key.startswith(db.encode())]
    start, stop, prefix = given.get("start"), given.get("stop"), given.get("prefix")
    if start is not None:
        inner = [key for key in inner if key > start or (given["include_start"] and key == start)]
    if stop is not None:
        inner = [key for key in inner if key < stop or (given["include_stop"] and key == stop)]
    return [key for key in inner if prefix is None or key.startswith(prefix)]


PARTS = (b"a/", b"b/", b"b/x", b"c/")
ALL = sorted(b"%s%d" % (part, number) for part in PARTS for number in range(4))


def seek(walk: Any, keys: list[bytes], target: bytes, reverse: bool) -> None:
    """Seeks to a key, moves on, turns, and returns to its position."""
    behind, before = [k for k in keys if k >= target], [k for k in keys if k < target]
    onward, back = (before[::-1], behind) if reverse else (behind, before[::-1])
    walk.seek(target)
    assert list(walk) == onward
    walk.seek(target)
    for key in back:
        assert walk.prev() == key
    with pytest.raises(StopIteration):
        walk.prev()
    walk.seek(target)
    if onward:
        assert next(walk) == onward[0] and walk.prev() == onward[0]


def test_iterators_of_plyvel(tmp_path: Path) -> None:
    """`seek` of an iterator of a prefixed database once moved to the key without the prefix."""
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as db:
        for key in ALL:
            db.put(key, b"of " + key)
        with db.snapshot() as whole, db.prefixed_db(b"b/").snapshot() as part:
            db.delete(b"b/1")
            db.put(b"b/2", b"new")
            db.put(b"b/9", b"new")
            sources = {"": whole, "b/": part}
            for name, (has_start, has_stop, has_prefix, reverse) in itertools.product(
                sources, choices(4)
            ):
                for first, last, fills, checks in choices(4):
                    bounds: dict[str, Any] = {"include_start": first, "include_stop": last}
                    inside = b"" if name else b"b/"
                    if has_start:
                        bounds["start"] = inside + b"1"
                    if has_stop:
                        bounds["stop"] = inside + b"x2"
                    if has_prefix:
                        bounds["prefix"] = inside + b"x"
                    options = {"fill_cache": fills, "verify_checksums": checks, **bounds}
                    source: Any = sources[name]
                    if has_prefix and (has_start or has_stop):
                        with pytest.raises(TypeError):
                            source.iterator(reverse=reverse, **options)
                        continue
                    keys = model(name, **bounds)
                    shown = keys[::-1] if reverse else keys
                    walk = source.iterator(reverse=reverse, include_value=False, **options)
                    assert list(walk) == shown
                    for target in (b"", b"0", b"1", b"x1", b"x9", b"zz", b"b/1", b"b/x2", b"c/3"):
                        seek(walk, keys, target, reverse)
                    parts = {
                        (True, True): [(key, b"of " + name.encode() + key) for key in shown],
                        (False, True): [b"of " + name.encode() + key for key in shown],
                        (False, False): [None] * len(shown),
                    }
                    for (with_key, with_value), items in parts.items():
                        options.update(include_key=with_key, include_value=with_value)
                        found = source.iterator(reverse=reverse, **options)
                        assert list(found) == items


def test_writes_of_plyvel(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as db:
        for prefixed, sync, transaction, fails in choices(4):
            part = db.prefixed_db(b"p/") if prefixed else db
            assert synced(db._db, lambda: part.put(b"k", b"v", sync=sync)) == sync
            assert synced(db._db, lambda: part.delete(b"k", sync=sync)) == sync

            def together() -> None:
                try:
                    with part.write_batch(transaction=transaction, sync=sync) as batch:
                        batch.put(b"k", b"v")
                        assert not fails
                except AssertionError:
                    assert fails

            is_written = not (fails and transaction)
            assert synced(db._db, together) == (sync and is_written)
            assert part.get(b"k") == (b"v" if is_written else None)
            part.delete(b"k")
