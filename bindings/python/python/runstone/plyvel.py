"""Plyvel's names over Runstone: ``from runstone import plyvel`` in place of ``import plyvel``.

Databases are stores of Runstone; those of LevelDB are imported with ``runstone import``. Only the
order of bytes is there, so a comparator is refused. Filters and caches are Runstone's own: what is
read is always checked, and `fill_cache` is for iterators.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Iterator, Optional, Tuple, Type, TypeVar, Union

import runstone
from runstone import Corruption as CorruptionError
from runstone import Cursor, Error, Snapshot as _Snapshot, Store
from runstone import Storage as IOError

__all__ = ["DB", "CorruptionError", "Error", "IOError", "destroy_db", "repair_db"]

_Path = Union[str, "os.PathLike[str]"]
_Item = Any
_Self = TypeVar("_Self")


def _successor(prefix: bytes) -> Optional[bytes]:
    """The least key behind all that begin with a prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class _Closing:
    """What a `with` block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class _Iterator(_Closing):
    """An iterator that moves both ways between two bounds."""

    def __init__(
        self,
        source: _Reader,
        *,
        fill_cache: bool,
        reverse: bool = False,
        start: Optional[bytes] = None,
        stop: Optional[bytes] = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Optional[bytes] = None,
        include_key: bool = True,
        include_value: bool = True,
    ) -> None:
        if prefix is not None:
            if start is not None or stop is not None:
                raise TypeError("'prefix' cannot be used together with 'start' or 'stop'")
            start, stop = prefix, _successor(prefix)
        else:
            start = start + b"\0" if start is not None and not include_start else start
            stop = stop + b"\0" if stop is not None and include_stop else stop
        whole = source._prefix
        low = whole + (start or b"")
        high = whole + stop if stop is not None else _successor(whole)
        if high is not None and high < low:
            # LevelDB shows nothing of a range that ends before it starts.
            high = low
        self._prefix, self._strip = whole, len(whole)
        self._reverse, self._key, self._value = reverse, include_key, include_value
        self._cursor: Cursor = source._db.cursor(
            low, high, snapshot=source._snapshot, fill_cache=fill_cache
        )
        # Between two entries: the cursor is on the one in front of it, in the direction `_up`.
        self._up: Optional[bool] = None

    def _item(self) -> _Item:
        key, value = self._cursor.key, self._cursor.value
        assert key is not None and value is not None
        key = key[self._strip :]
        if self._key and self._value:
            return key, value
        if self._key:
            return key
        return value if self._value else None

    def _step(self, up: bool) -> _Item:
        cursor = self._cursor
        if self._up is None:
            # At an end: the first step in reading direction starts there.
            if up == self._reverse:
                raise StopIteration
            found = cursor.first() if up else cursor.last()
        elif self._up == up:
            found = cursor.next() if up else cursor.previous()
        else:
            # Turning gives the entry that was given last.
            found = cursor.valid or (cursor.last() if not up else cursor.first())
        self._up = up
        if not found:
            raise StopIteration
        return self._item()

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> _Item:
        return self._step(not self._reverse)

    def next(self) -> _Item:
        return self.__next__()

    def prev(self) -> _Item:
        return self._step(self._reverse)

    def seek_to_start(self) -> None:
        self._cursor.first()
        self._cursor.previous()
        self._up = None if not self._reverse else False

    def seek_to_stop(self) -> None:
        self._cursor.last()
        self._cursor.next()
        self._up = True if not self._reverse else None

    def seek(self, target: bytes) -> None:
        """The next step forwards gives the first key that is not less."""
        low = self._cursor.seek(self._prefix + target)
        # As if it had come down to this entry: a step up gives it, one down the entry before.
        self._up = False if low else True

    def close(self) -> None:
        self._cursor.close()


class _RawIterator(_Closing):
    """LevelDB's own iterator."""

    def __init__(self, source: _Reader, fill_cache: bool) -> None:
        self._cursor = source._db.cursor(
            prefix=source._prefix, snapshot=source._snapshot, fill_cache=fill_cache
        )
        self._strip, self._prefix = len(source._prefix), source._prefix

    def valid(self) -> bool:
        return self._cursor.valid

    def seek_to_first(self) -> None:
        self._cursor.first()

    def seek_to_last(self) -> None:
        self._cursor.last()

    def seek(self, target: bytes) -> None:
        self._cursor.seek(self._prefix + target)

    def next(self) -> None:
        self._cursor.next()

    def prev(self) -> None:
        self._cursor.previous()

    def key(self) -> bytes:
        key = self._cursor.key
        if key is None:
            raise IteratorInvalidError()
        return key[self._strip :]

    def value(self) -> bytes:
        value = self._cursor.value
        if value is None:
            raise IteratorInvalidError()
        return value

    def item(self) -> Tuple[bytes, bytes]:
        return self.key(), self.value()

    def close(self) -> None:
        self._cursor.close()


class IteratorInvalidError(Error):
    """The iterator is on no entry."""


class _Reader:
    """What databases, their prefixes and their snapshots read in the same way."""

    _db: Store
    _prefix: bytes = b""
    _snapshot: Optional[_Snapshot] = None

    def get(
        self,
        key: bytes,
        default: Optional[bytes] = None,
        *,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Optional[bytes]:
        return self._db.get(self._prefix + key, default, snapshot=self._snapshot)

    def iterator(self, *, verify_checksums: bool = False, fill_cache: bool = True,
                 **bounds: Any) -> _Iterator:
        return _Iterator(self, fill_cache=fill_cache, **bounds)

    def raw_iterator(
        self, *, verify_checksums: bool = False, fill_cache: bool = True
    ) -> _RawIterator:
        return _RawIterator(self, fill_cache)

    def __iter__(self) -> Iterator[_Item]:
        return self.iterator()


class Snapshot(_Closing, _Reader):
    """A view that later writes do not change."""

    def __init__(self, db: Store, prefix: bytes) -> None:
        self._db, self._prefix, self._snapshot = db, prefix, db.snapshot()

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()


class WriteBatch:
    """Writes that happen together. Without `transaction` they do also if the block raises."""

    def __init__(self, db: Store, prefix: bytes, transaction: bool, sync: bool) -> None:
        self._batch = db.write_batch(sync=sync)
        self._prefix, self._transaction = prefix, transaction

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(self._prefix + key, value)

    def delete(self, key: bytes) -> None:
        self._batch.delete(self._prefix + key)

    def clear(self) -> None:
        self._batch.clear()

    def append(self, source: WriteBatch) -> None:
        raise Error("Runstone's batches are not appended to others; put into one batch")

    def write(self) -> None:
        self._batch.write()

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._transaction and kind is not None:
            self.clear()
        else:
            self.write()


class PrefixedDB(_Reader):
    """The part of a database whose keys begin with a prefix, without it."""

    def __init__(self, db: Store, prefix: bytes) -> None:
        self._db, self._prefix = db, prefix

    @property
    def prefix(self) -> bytes:
        return self._prefix

    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None:
        self._db.put(self._prefix + key, value, sync=sync)

    def delete(self, key: bytes, *, sync: bool = False) -> None:
        self._db.delete(self._prefix + key, sync=sync)

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch:
        return WriteBatch(self._db, self._prefix, transaction, sync)

    def snapshot(self) -> Snapshot:
        return Snapshot(self._db, self._prefix)

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        return PrefixedDB(self._db, self._prefix + prefix)


class DB(_Closing, PrefixedDB):
    """A database of plyvel."""

    def __init__(
        self,
        name: _Path,
        *,
        create_if_missing: bool = False,
        error_if_exists: bool = False,
        paranoid_checks: Optional[bool] = None,
        write_buffer_size: Optional[int] = None,
        max_open_files: Optional[int] = None,
        lru_cache_size: Optional[int] = None,
        block_size: Optional[int] = None,
        block_restart_interval: Optional[int] = None,
        max_file_size: Optional[int] = None,
        compression: Optional[str] = "snappy",
        bloom_filter_bits: int = 0,
        comparator: Optional[Any] = None,
        comparator_name: Optional[bytes] = None,
    ) -> None:
        if comparator is not None:
            raise Error("Runstone orders keys by their bytes: encode them so that this is yours")
        name = os.fspath(name)
        exists = os.path.exists(os.path.join(name, "CURRENT"))
        if exists and error_if_exists:
            raise Error(f"{name}: exists (error_if_exists is true)")
        if not exists and not create_if_missing:
            raise Error(f"{name}: does not exist (create_if_missing is false)")
        options: dict[str, Any] = {}
        if lru_cache_size is not None:
            options["memory_budget_bytes"] = lru_cache_size + (192 << 20)
        if max_open_files is not None:
            options["max_open_files"] = max(max_open_files, 74)
        layout = {
            "write_buffer_bytes": write_buffer_size and max(write_buffer_size, 64 << 10),
            "block_bytes": block_size,
            "restart_interval": block_restart_interval,
            "table_bytes": max_file_size,
            "compression": "none" if compression is None else None,
            "filter_bits_per_key": bloom_filter_bits or None,
        }
        layout = {name: value for name, value in layout.items() if value is not None}
        # A store keeps its options; those of a program are for a new one.
        if layout and not exists:
            options["keyspace"] = layout
        super().__init__(runstone.open(name, **options), b"")
        self.name, self.closed = name, False

    def close(self) -> None:
        self._db.close()
        self.closed = True

    def approximate_size(self, start: bytes, stop: bytes) -> int:
        return self._db.estimate(start, stop)[1]

    def approximate_sizes(self, *ranges: Tuple[bytes, bytes]) -> list[int]:
        return [self.approximate_size(start, stop) for start, stop in ranges]

    def compact_range(
        self, *, start: Optional[bytes] = None, stop: Optional[bytes] = None
    ) -> None:
        if start is None or stop is None or start <= stop:
            self._db.compact(start, stop)

    def get_property(self, name: bytes) -> Optional[bytes]:
        """`leveldb.stats`: the counters of the store; None for others."""
        return self._db.metrics().encode() if name == b"leveldb.stats" else None


def destroy_db(name: _Path) -> None:
    """Removes a database."""
    try:
        runstone.destroy(name)
        os.rmdir(name)
    except (runstone.NotAStore, OSError):
        pass


def repair_db(name: _Path, **_options: Any) -> None:
    """Verifies a database, and repairs nothing: damage raises CorruptionError."""
    with runstone.open(name, create_if_missing=False, read_only=True) as store:
        store.verify()
