"""Tests the calls that programs for plyvel make."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Callable

import pytest

import runstone
from runstone import plyvel


def test_a_program_of_plyvel(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with pytest.raises(plyvel.Error):
        plyvel.DB(path)
    db = plyvel.DB(path, create_if_missing=True, bloom_filter_bits=10, block_size=8192)
    db.put(b"key-a", b"1")
    db.put(b"key-b", b"2", sync=True)
    assert db.get(b"key-a") == b"1" and db.get(b"x", b"d") == b"d" and not db.closed
    with db.write_batch() as batch:
        batch.put(b"key-c", b"3")
        batch.delete(b"key-a")
    assert list(db) == [(b"key-b", b"2"), (b"key-c", b"3")]
    with pytest.raises(ZeroDivisionError):
        with db.write_batch(transaction=True) as batch:
            batch.put(b"key-d", b"%d" % (1 // 0))
    snapshot = db.snapshot()
    db.delete(b"key-b")
    assert snapshot.get(b"key-b") == b"2" and db.get(b"key-b") is None
    snapshot.close()
    part = db.prefixed_db(b"key-")
    assert list(part.iterator(include_value=False)) == [b"c"] and part.get(b"c") == b"3"
    db.close()
    assert db.closed
    with pytest.raises(plyvel.Error):
        plyvel.DB(path, create_if_missing=True, error_if_exists=True)
    plyvel.repair_db(path)
    plyvel.destroy_db(path)
    assert not (tmp_path / "db").exists()


def test_iterators_of_plyvel(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as db:
        for letter in b"abcdef":
            db.put(bytes([letter]), bytes([letter]).upper())

        def keys(**bounds: Any) -> bytes:
            return b"".join(db.iterator(include_value=False, **bounds))

        assert keys() == b"abcdef" and keys(reverse=True) == b"fedcba"
        assert keys(start=b"b", stop=b"d") == b"bc"
        assert keys(start=b"b", stop=b"d", include_start=False, include_stop=True) == b"cd"
        assert list(db.iterator(prefix=b"c")) == [(b"c", b"C")]
        with pytest.raises(TypeError):
            db.iterator(prefix=b"c", start=b"a")
        walk = db.iterator(include_value=False)
        assert [next(walk), next(walk)] == [b"a", b"b"]
        assert walk.prev() == b"b" and walk.prev() == b"a"
        with pytest.raises(StopIteration):
            walk.prev()
        assert next(walk) == b"a"
        walk.seek(b"cc")
        assert next(walk) == b"d" and walk.prev() == b"d" and walk.prev() == b"c"
        walk.seek_to_stop()
        assert walk.prev() == b"f"
        walk.seek_to_start()
        assert next(walk) == b"a"
        raw = db.raw_iterator()
        raw.seek_to_first()
        shown = []
        while raw.valid():
            shown.append(raw.item())
            raw.next()
        assert shown[0] == (b"a", b"A") and len(shown) == 6
        with pytest.raises(plyvel.Error):
            raw.key()


def open_db(path: Path) -> plyvel.DB:
    return plyvel.DB(str(path), create_if_missing=True)


def test_names_and_attributes(tmp_path: Path) -> None:
    assert plyvel.__leveldb_version__ == "1.23" and plyvel.__version__ == "1.5.1"
    assert issubclass(plyvel.IOError, OSError) and issubclass(plyvel.IOError, plyvel.Error)
    name = str(tmp_path / "db")
    with open_db(tmp_path / "db") as db:
        assert db.name == name and name in repr(db) and "closed" not in repr(db)
        with pytest.raises(AttributeError):
            db.name = "other"  # type: ignore[misc]
        part = db.prefixed_db(b"a/")
        inner = part.prefixed_db(b"b/")
        assert part.db is db and inner.db is db and inner.prefix == b"a/b/"
        assert "a/b/" in repr(inner)
    assert "closed" in repr(db)
    with plyvel.DB(name.encode()) as again, pytest.raises(plyvel.Error):
        assert again.name == name.encode()
        plyvel.DB(tmp_path / "db")


def test_batches(tmp_path: Path) -> None:
    """A batch once could not be appended, had no size, and was empty after it was written."""
    with open_db(tmp_path / "db") as db:
        part = db.prefixed_db(b"p/")
        one, other = part.write_batch(), db.write_batch()
        sizes = [one.approximate_size()]
        adds: list[Callable[[], None]] = [
            lambda: one.put(b"a", bytearray(b"1")),
            lambda: one.delete(b"b"),
            lambda: other.put(b"b", memoryview(b"2")),
            lambda: other.append(one),
            lambda: other.append(other),
        ]
        for add in adds:
            add()
            sizes.append(max(one.approximate_size(), other.approximate_size()))
        assert sizes == sorted(sizes) and sizes[0] < sizes[1] < sizes[2] < sizes[-1]
        for wrong in (None, b"bytes", db):
            with pytest.raises(TypeError, match="source"):
                one.append(wrong)  # type: ignore[arg-type]
        other.write()
        assert list(db) == [(b"b", b"2"), (b"p/a", b"1")]
        db.delete(b"b")
        other.write()
        assert db.get(b"b") == b"2"
        other.clear()
        assert other.approximate_size() == sizes[0]
        with db.write_batch() as batch:
            batch.put(b"c", b"3")
        db.delete(b"c")
        batch.write()
        assert db.get(b"c") is None


def test_properties_and_sizes(tmp_path: Path) -> None:
    with open_db(tmp_path / "db") as db:
        for number in range(2000):
            db.put(b"%04d" % number, bytes(100))
        db.compact_range()
        names = ["stats", "sstables", "num-files-at-level0", "approximate-memory-usage"]
        for name in names:
            found = db.get_property(b"leveldb." + name.encode())
            assert isinstance(found, bytes) and found
        assert b"runstone_" in (db.get_property(b"runstone.metrics") or b"")
        assert db.get_property(b"none") is None and db.get_property(b"\xff") is None
        for wrong in (None, 42, "leveldb.stats"):
            with pytest.raises(TypeError, match="name"):
                db.get_property(wrong)  # type: ignore[arg-type]
        assert db.approximate_size(b"0", b"2") > 0 == db.approximate_size(b"2", b"0")
        assert db.approximate_sizes() == []
        assert len(db.approximate_sizes((b"0", b"1"), (b"", b"\xff"))) == 2
        for start, stop in ((None, b""), (b"", None), ("0", b"1"), (1, 2)):
            with pytest.raises(TypeError, match="st[ao]"):
                db.approximate_size(start, stop)  # type: ignore[arg-type]
            if start is not None and stop is not None:
                with pytest.raises(TypeError, match="start"):
                    db.compact_range(start=start, stop=stop)  # type: ignore[arg-type]


def test_what_is_closed(tmp_path: Path) -> None:
    """The exception was once an Error; programs for plyvel expect a RuntimeError."""
    with open_db(tmp_path / "db") as db:
        db.put(b"k", b"v")
        walk, raw, snapshot = db.iterator(), db.raw_iterator(), db.snapshot()
        with walk, raw, snapshot:
            raw.seek_to_first()
            assert next(walk) == raw.item() == (b"k", snapshot.get(b"k"))
        calls: list[Callable[[], object]] = [
            walk.__next__, walk.prev, walk.seek_to_start, walk.seek_to_stop,
            lambda: walk.seek(b"k"), raw.valid, raw.key, raw.value, raw.item, raw.next, raw.prev,
            raw.seek_to_first, raw.seek_to_last, lambda: raw.seek(b"k"),
            lambda: snapshot.get(b"k"), snapshot.iterator, snapshot.raw_iterator,
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="closed"):
                call()
        for closing in (walk, raw, snapshot):
            closing.close()
        snapshot.release()


def test_raw_iterators(tmp_path: Path) -> None:
    with open_db(tmp_path / "db") as db:
        for key in (b"a", b"p/a", b"p/b", b"z"):
            db.put(key, b"of " + key)
        raw = db.prefixed_db(b"p/").raw_iterator()
        assert not raw.valid()
        for call in (raw.next, raw.prev, raw.key, raw.value, raw.item):
            with pytest.raises(plyvel.IteratorInvalidError):
                call()
        raw.seek(b"aa")
        assert raw.item() == (b"b", b"of p/b")
        raw.prev()
        assert raw.key() == b"a"
        raw.prev()
        assert not raw.valid()
        raw.seek_to_last()
        assert raw.key() == b"b"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 20, 21, 600])
def test_turns_anywhere(tmp_path: Path, reverse: bool, length: int) -> None:
    """An iterator reads ahead by the page. A turn at any place, even at the end of a page, shows
    the same as a list."""
    source = random.Random(length)
    with open_db(tmp_path / "db") as db:
        keys = [b"%04d" % (2 * number) for number in range(length)]
        for key in keys:
            db.put(key, b"v" + key)
        shown = keys[::-1] if reverse else keys
        for parts in range(4):
            walk = db.iterator(
                reverse=reverse, include_key=parts % 2 > 0, include_value=parts // 2 > 0
            )
            gap = 0
            for _ in range(400):
                kind, count = source.choice("npnpnps<>"), source.randrange(40)
                if kind == "s":
                    target = source.randrange(2 * length + 3)
                    walk.seek(b"%04d" % target)
                    gap = sum(key < b"%04d" % target for key in keys)
                    gap = length - gap if reverse else gap
                elif kind in "<>":
                    walk.seek_to_start() if kind == "<" else walk.seek_to_stop()
                    gap = length if (kind == ">") != reverse else 0
                for _ in range(count if kind in "np" else 0):
                    at = gap if kind == "n" else gap - 1
                    found = next(walk, b"none") if kind == "n" else previous(walk)
                    if not 0 <= at < length:
                        assert found == b"none"
                        break
                    key = shown[at]
                    assert found == [None, key, b"v" + key, (key, b"v" + key)][parts]
                    gap += 1 if kind == "n" else -1


def previous(walk: Any) -> Any:
    try:
        return walk.prev()
    except StopIteration:
        return b"none"


def test_an_error_behind_a_page(tmp_path: Path) -> None:
    """The entries before an unreadable key are shown, and the error is raised at the key."""
    store = runstone.open(tmp_path / "db", keyspace={"merge_operator": "add-u64"})
    keys = [b"%02d" % number for number in range(30)]
    store.update((key, b"no number") for key in keys)
    store.merge(keys[15], bytes(8))
    store.close()
    with open_db(tmp_path / "db") as db:
        for reverse in (False, True):
            walk, found = db.iterator(reverse=reverse), []
            with pytest.raises(plyvel.Error, match="merge"):
                for key, _ in walk:
                    found.append(key)
            assert found == (keys[:15:-1] if reverse else keys[:15])
            assert walk.prev()[0] == found[-1]
            walk.seek_to_start()
            assert walk.prev()[0] == keys[0] if reverse else next(walk)[0] == keys[0]


@pytest.mark.parametrize("length", [0, 1, 2, 5, 100])
def test_raw_iterators_turn_anywhere(tmp_path: Path, length: int) -> None:
    source = random.Random(length)
    with open_db(tmp_path / "db") as db:
        keys = [b"%04d" % (2 * number) for number in range(length)]
        for key in [b"a", *(b"p" + key for key in keys), b"z"]:
            db.put(key, b"v" + key)
        raw, at = db.prefixed_db(b"p").raw_iterator(), -1
        for _ in range(600):
            kind = source.choice("npnpns<>")
            if kind == "s":
                target = b"%04d" % source.randrange(2 * length + 3)
                raw.seek(target)
                at = sum(key < target for key in keys)
            elif kind in "<>":
                raw.seek_to_first() if kind == "<" else raw.seek_to_last()
                at = 0 if kind == "<" else length - 1
            for _ in range(source.randrange(1, 12) if kind in "np" else 0):
                move = raw.next if kind == "n" else raw.prev
                if 0 <= at < length:
                    move()
                    at += 1 if kind == "n" else -1
                else:
                    with pytest.raises(plyvel.IteratorInvalidError):
                        move()
            assert raw.valid() == (0 <= at < length)
            if raw.valid():
                assert raw.item() == (keys[at], b"vp" + keys[at]) == (raw.key(), raw.value())
