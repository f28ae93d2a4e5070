"""What programs of plyvel do."""

from pathlib import Path
from typing import Any

import pytest

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
