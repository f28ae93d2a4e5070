"""Plyvel's interface over Runstone: write ``from runstone import plyvel`` for ``import plyvel``.

Databases are stores of Runstone; those of LevelDB are imported with ``runstone import``. Only the
order of bytes exists, so a comparator is refused. Filters and caches are Runstone's own. Reads are
always checked, and `fill_cache` applies only to iterators. An object that is used after it was
closed raises `runstone.Closed`, which is a RuntimeError.
"""

from __future__ import annotations

import operator
import os
from types import TracebackType
from typing import Any, Optional, Tuple, Type, TypeVar, Union

import runstone
from runstone import Corruption as CorruptionError
from runstone import Error, Snapshot as _Snapshot, Store
from runstone import Storage as IOError
from runstone import _runstone
from runstone._runstone import Iterator, IteratorInvalidError, RawIterator

__all__ = [
    "DB",
    "CorruptionError",
    "Error",
    "IOError",
    "IteratorInvalidError",
    "__leveldb_version__",
    "__version__",
    "destroy_db",
    "repair_db",
]

# The versions whose interfaces this module follows.
__version__ = "1.5.1"
__leveldb_version__ = "1.23"

_Buffer = Union[bytes, bytearray, memoryview]
_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Self = TypeVar("_Self")


class _Closing:
    """An object that a `with` block closes."""

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


class _Reader:
    """The reads of databases, their prefixes and their snapshots."""

    _db: Store
    _prefix: bytes = b""
    _snapshot: Optional[_Snapshot] = None

    def get(
        self,
        key: bytes,
        default: Any = None,
        *,
        verify_checksums: Optional[bool] = False,
        fill_cache: Optional[bool] = True,
    ) -> Any:
        if verify_checksums is not False or fill_cache is not True:
            _check_flags(verify_checksums=verify_checksums, fill_cache=fill_cache)
        return self._db.get(self._key(key), default, snapshot=self._snapshot)

    def _key(self, key: bytes) -> bytes:
        return _below(self._prefix, key)

    def iterator(self, **options: Any) -> Iterator:
        """An iterator, with plyvel's options."""
        return _runstone.iterator(self._db, self._prefix, self._snapshot, **options)

    def raw_iterator(self, **options: Any) -> RawIterator:
        """LevelDB's own iterator, also for a database with a prefix."""
        return _runstone.raw_iterator(self._db, self._prefix, self._snapshot, **options)

    def __iter__(self) -> Iterator:
        return _runstone.iterator(self._db, self._prefix, self._snapshot)


class Snapshot(_Closing, _Reader):
    """A view that later writes do not change."""

    def __init__(self, *, db: DB, prefix: Optional[bytes] = None) -> None:
        self._db, self._prefix, self._snapshot = db._db, prefix or b"", db._db.snapshot()

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()

    def release(self) -> None:
        self.close()


class WriteBatch:
    """Writes that happen together. Without `transaction`, they happen even if the block raises."""

    def __init__(
        self, db: DB, prefix: bytes, transaction: Optional[bool], sync: Optional[bool]
    ) -> None:
        _check_flags(transaction=transaction)
        self._batch = db._db.write_batch(sync=sync)
        self._prefix, self._transaction = prefix, transaction

    def put(self, key: bytes, value: _Buffer) -> None:
        self._batch.put(_below(self._prefix, key), value)

    def delete(self, key: bytes) -> None:
        self._batch.delete(_below(self._prefix, key))

    def clear(self) -> None:
        self._batch.clear()

    def append(self, source: WriteBatch) -> None:
        """Adds the writes of another batch."""
        if not isinstance(source, WriteBatch):
            raise TypeError(f"'source' is a WriteBatch, not {type(source).__name__}")
        self._batch.append(source._batch)

    def approximate_size(self) -> int:
        return self._batch.approximate_bytes()

    def write(self) -> None:
        """Writes the collected writes, and keeps them."""
        self._batch.write(clear=False)

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not (self._transaction and kind is not None):
            self.write()
        self.clear()


class _Writer(_Reader):
    """The calls of databases and their prefixes."""

    def _whole(self) -> DB:
        raise NotImplementedError

    def put(self, key: bytes, value: _Buffer, *, sync: Optional[bool] = False) -> None:
        self._db.put(self._key(key), value, sync=sync)

    def delete(self, key: bytes, *, sync: Optional[bool] = False) -> None:
        self._db.delete(self._key(key), sync=sync)

    def write_batch(
        self, *, transaction: Optional[bool] = False, sync: Optional[bool] = False
    ) -> WriteBatch:
        return WriteBatch(self._whole(), self._prefix, transaction, sync)

    def snapshot(self) -> Snapshot:
        return Snapshot(db=self._whole(), prefix=self._prefix)

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        _check_bytes(prefix=prefix)
        return PrefixedDB(db=self._whole(), prefix=self._prefix + prefix)


class PrefixedDB(_Writer):
    """The part of a database whose keys begin with a prefix, which is left out."""

    def __init__(self, *, db: DB, prefix: bytes) -> None:
        self._parent, self._db, self._prefix = db, db._db, prefix

    def _whole(self) -> DB:
        return self._parent

    @property
    def db(self) -> DB:
        return self._parent

    @property
    def prefix(self) -> bytes:
        return self._prefix

    def __repr__(self) -> str:
        return f"<plyvel.PrefixedDB with prefix {self._prefix!r} at {hex(id(self))}>"


class DB(_Closing, _Writer):
    """A database of plyvel."""

    def __init__(
        self,
        name: _Path,
        *,
        create_if_missing: Optional[bool] = False,
        error_if_exists: Optional[bool] = False,
        **options: Any,
    ) -> None:
        """The options are plyvel's. As in LevelDB, a size is clamped to the valid range. A store
        keeps its layout: block_size, compression and so on apply only to a new store."""
        self._name, self._closed = name, True
        path = _check_name(name)
        _check_flags(create_if_missing=create_if_missing, error_if_exists=error_if_exists)
        opening, layout = _options(**options)
        exists = os.path.exists(os.path.join(path, "CURRENT"))
        if os.path.isdir(path) and not os.access(path, os.W_OK):
            raise IOError(f"{path}: may not be written")
        if exists and error_if_exists:
            raise Error(f"{path}: exists (error_if_exists is true)")
        if not exists and not create_if_missing:
            raise runstone.NotAStore(f"{path}: does not exist (create_if_missing is false)")
        if layout and not exists:
            opening["keyspace"] = layout
        self._db = runstone.open(path, **opening)
        self._closed = False

    def _whole(self) -> DB:
        return self

    @property
    def name(self) -> _Path:
        return self._name

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        closed = " (closed)" if self._closed else ""
        return f"<plyvel.DB with name {self._name!r}{closed} at {hex(id(self))}>"

    def close(self) -> None:
        self._closed = True
        self._db.close()

    def approximate_size(self, start: bytes, stop: bytes) -> int:
        _check_bytes(start=start, stop=stop)
        return self._db.estimate(start, max(start, stop))[1]

    def approximate_sizes(self, *ranges: Tuple[bytes, bytes]) -> list[int]:
        return [self.approximate_size(start, stop) for start, stop in ranges]

    def compact_range(
        self, *, start: Optional[bytes] = None, stop: Optional[bytes] = None
    ) -> None:
        _check_bytes(start=start or b"", stop=stop or b"")
        if start is None or stop is None or start <= stop:
            self._db.compact(start, stop)

    def get_property(self, name: bytes) -> Optional[bytes]:
        """LevelDB's properties, and `runstone.metrics`: all counters; None for others."""
        _check_bytes(name=name)
        found = self._db._property(name.decode("latin-1"))
        return None if found is None else found.encode()


def destroy_db(name: _Path) -> None:
    """Removes a database."""
    path = _check_name(name)
    if os.path.isdir(path):
        try:
            runstone.destroy(path)
        except runstone.NotAStore:
            return
        try:
            os.rmdir(path)
        except OSError:
            # It contains other files.
            pass


def repair_db(name: _Path, **options: Any) -> None:
    """Verifies a database, and repairs nothing: damage raises CorruptionError."""
    path = _check_name(name)
    _options(**options)
    with runstone.open(path, create_if_missing=False, read_only=True) as store:
        store.verify()


def _check_name(name: Any) -> str:
    if not isinstance(name, (str, bytes, os.PathLike)):
        raise TypeError(f"'name' is a path as text or bytes, not {type(name).__name__}")
    return os.fsdecode(name)


def _below(prefix: bytes, key: bytes) -> bytes:
    try:
        return prefix + key
    except TypeError:
        raise TypeError(f"'key' is bytes, not {type(key).__name__}") from None


def _check_flags(**flags: Any) -> None:
    for name, flag in flags.items():
        if flag is not None and not isinstance(flag, bool):
            raise TypeError(f"'{name}' is True or False, not {flag!r}")


def _check_bytes(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, bytes):
            raise TypeError(f"'{name}' is bytes, not {type(value).__name__}")


def _size(name: str, given: Any, least: int, most: int) -> Optional[int]:
    """A number, clamped to the range that LevelDB allows."""
    if given is None:
        return None
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"'{name}' is a number or None, not {given!r}") from None
    return min(max(number, least), most)


def _options(
    *,
    paranoid_checks: Optional[bool] = None,
    write_buffer_size: Optional[int] = None,
    max_open_files: Optional[int] = None,
    lru_cache_size: Optional[int] = None,
    block_size: Optional[int] = None,
    block_restart_interval: Optional[int] = None,
    max_file_size: Optional[int] = None,
    compression: Union[str, bytes, None] = "snappy",
    bloom_filter_bits: int = 0,
    comparator: Any = None,
    comparator_name: Optional[bytes] = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plyvel's options as options of a store, and of the layout of a new store."""
    _check_flags(paranoid_checks=paranoid_checks)
    if isinstance(compression, bytes):
        compression = compression.decode("utf-8", "replace")
    if compression is not None and not isinstance(compression, str):
        raise TypeError(f"'compression' is None or 'snappy', not {compression!r}")
    if compression not in (None, "snappy"):
        raise ValueError(f"'compression' is None or 'snappy', not {compression!r}")
    if comparator_name is not None:
        _check_bytes(comparator_name=comparator_name)
    if (comparator is None) != (comparator_name is None):
        raise ValueError("'comparator' and 'comparator_name' must be specified together")
    if comparator is not None:
        if not callable(comparator):
            raise TypeError("'comparator' is not callable")
        raise Error("Runstone orders keys by their bytes: encode them so that this is yours")
    bits = _size("bloom_filter_bits", bloom_filter_bits, 0, 30)
    if bits is None:
        raise TypeError("'bloom_filter_bits' is a number, not None")
    buffer = _size("write_buffer_size", write_buffer_size, 64 << 10, 1 << 30)
    cache = _size("lru_cache_size", lru_cache_size, 0, 1 << 40)
    store = {
        "max_open_files": _size("max_open_files", max_open_files, 74, 50_000),
        "memory_budget_bytes": _budget(buffer, cache),
    }
    layout: dict[str, Any] = {
        "write_buffer_bytes": buffer,
        "block_bytes": _size("block_size", block_size, 1 << 10, 4 << 20),
        "restart_interval": _size("block_restart_interval", block_restart_interval, 1, 1 << 10),
        "compression": "none" if compression is None else None,
        "filter_bits_per_key": bits or None,
    }
    table = _size("max_file_size", max_file_size, 1 << 20, 1 << 30)
    if table is not None:
        # A table has at least one block.
        layout["shape"] = {"table_bytes": max(table, layout["block_bytes"] or 0)}
    return _given(store), _given(layout)


def _budget(buffer: Optional[int], cache: Optional[int]) -> Optional[int]:
    """The memory of a cache and its buffers, which Runstone counts together."""
    if buffer is None and cache is None:
        return None
    least = 512 << 20 if cache is None else cache + (192 << 20)
    return max(least, 3 * (buffer or 0) + (cache or 0))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
