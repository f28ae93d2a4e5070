"""The Python interface of the native part of runstone."""

import datetime
import os
import typing
from types import TracebackType
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    Generic,
    ItemsView,
    Iterable,
    KeysView,
    List,
    Literal,
    Mapping,
    MutableMapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    ValuesView,
    overload,
)

from _typeshed import SupportsKeysAndGetItem

Buffer = Union[bytes, bytearray, memoryview]
_T = TypeVar("_T")
_D = TypeVar("_D")
_Entries = Union[SupportsKeysAndGetItem[bytes, bytes], Iterable[Tuple[bytes, bytes]]]

__version__: str

class Error(Exception):
    """The store refused an operation, or an operation failed."""

class InvalidArgument(Error, ValueError): ...
class NotAStore(Error): ...
class ForeignFiles(Error): ...
class NewerFormat(Error): ...
class InUse(Error): ...
class OtherProcess(Error): ...
class ReadOnly(Error): ...
class NoSpace(Error): ...
class Stopped(Error): ...
class UnknownKeyspace(Error): ...
class MergeFailed(Error): ...
class Conflict(Error): ...
class LockTimeout(Error): ...
class Deadlock(Error): ...
class Closed(Error, RuntimeError): ...
class Corruption(Error): ...
class Storage(Error, OSError): ...
class InsideCallback(Error): ...
class Busy(Error): ...
class Internal(Error): ...
class LeaseRevoked(Error): ...
class HistoryForked(Error): ...
class HistoryGone(Error): ...
class IteratorInvalidError(Error): ...

class _Block:
    """An object for a `with` block."""

    def __enter__(self: _T) -> _T: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...

class _Closing(_Block):
    def close(self) -> None: ...

class Walk(_Closing, typing.Iterator[_T], Generic[_T]):
    """An iterator that reads ahead. It shows the moment when it was made, and keeps its store open
    until the store is closed."""

    def __iter__(self) -> Walk[_T]: ...
    def __next__(self) -> _T: ...
    def seek(self, key: Buffer) -> None:
        """Moves to the first key not less than this one; if reversed, to the last not greater."""

class Cursor(_Closing):
    """A position in a keyspace. Each move returns whether the cursor is on an entry."""

    def first(self) -> bool: ...
    def last(self) -> bool: ...
    def next(self) -> bool: ...
    def previous(self) -> bool: ...
    def seek(self, key: Buffer) -> bool: ...
    def seek_for_previous(self, key: Buffer) -> bool: ...
    @property
    def valid(self) -> bool: ...
    @property
    def key(self) -> Optional[bytes]: ...
    @property
    def value(self) -> Optional[bytes]: ...

class Iterator(_Closing):
    """An iterator of plyvel: it is between two entries and returns the one on either side."""

    def __iter__(self) -> Iterator: ...
    def __next__(self) -> Any: ...
    def next(self) -> Any: ...
    def prev(self) -> Any: ...
    def seek_to_start(self) -> None: ...
    def seek_to_stop(self) -> None: ...
    def seek(self, target: Buffer) -> None: ...

class RawIterator(_Closing):
    """LevelDB's own iterator, which is on an entry or on none."""

    def valid(self) -> bool: ...
    def seek_to_first(self) -> None: ...
    def seek_to_last(self) -> None: ...
    def seek(self, target: Buffer) -> None: ...
    def next(self) -> None: ...
    def prev(self) -> None: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...
    def item(self) -> Tuple[bytes, bytes]: ...

def iterator(
    keyspace: Keyspace,
    inside: bytes,
    snapshot: Optional[Snapshot],
    *,
    reverse: Optional[bool] = False,
    start: Optional[Buffer] = None,
    stop: Optional[Buffer] = None,
    include_start: Optional[bool] = True,
    include_stop: Optional[bool] = False,
    prefix: Optional[Buffer] = None,
    include_key: Optional[bool] = True,
    include_value: Optional[bool] = True,
    verify_checksums: Optional[bool] = False,
    fill_cache: Optional[bool] = True,
) -> Iterator: ...
def raw_iterator(
    keyspace: Keyspace,
    inside: bytes,
    snapshot: Optional[Snapshot],
    *,
    verify_checksums: Optional[bool] = False,
    fill_cache: Optional[bool] = True,
) -> RawIterator: ...

class Event:
    """An event of a store.

    The kinds are flushed, compacted, loaded, values_collected, pressure, recovered, and as warnings
    log_end_lost, background_error, merge_failed, compaction_filter_missing, budget_above_limit.
    """

    @property
    def kind(self) -> str: ...
    @property
    def warning(self) -> bool:
        """Whether the event needs attention."""
    @property
    def message(self) -> str: ...
    @property
    def fields(self) -> Dict[str, Union[int, str, List[str]]]:
        """Details, such as `records` and `kept` of log_end_lost."""

class Snapshot(_Closing):
    """A view of all keyspaces that later writes do not change."""

class View:
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...

class EntriesView(_Closing, Generic[_T]):
    """The result of `keys`, `values` and `items`: a view of a range, like the views of a dict.

    Each call shows the keyspace as it is then, or a snapshot. `len` counts one by one, and `in` of
    values searches all; the other look-ups are gets. Each `iter` is a separate `Walk`. After
    `next`, a seek or `with` on the view itself, the view is an iterator, and `iter` continues it.
    """

    def __iter__(self) -> Walk[_T]: ...
    def __reversed__(self) -> Walk[_T]: ...
    def __next__(self) -> _T: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, key: object) -> bool: ...
    def seek(self, key: Buffer) -> None:
        """Moves to the first key not less than this one; if reversed, to the last not greater."""

class Keys(EntriesView[bytes], KeysView[bytes]): ...
class Values(EntriesView[bytes], ValuesView[bytes]): ...
class Items(EntriesView[Tuple[bytes, bytes]], ItemsView[bytes, bytes]): ...

# At run time, this class and its views are registered with the classes of collections.abc.
class Keyspace(MutableMapping[bytes, bytes]):
    """An ordered, mutable mapping from bytes to bytes.

    `==` compares entries with those of another keyspace or mapping, in order, and stops at the
    first difference: against a dict it reads at most one entry more than the dict has.
    Two objects of the same keyspace are equal without a read. Like a dict, a keyspace has no hash.
    """

    @property
    def name(self) -> str: ...
    def __getitem__(self, key: Buffer) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer) -> None: ...
    def __delitem__(self, key: Buffer) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Walk[bytes]: ...
    def __reversed__(self) -> Walk[bytes]: ...
    def __len__(self) -> int:
        """Counts the keys one by one, in about 100 ns each; `estimate` estimates their number
        without counting."""
    def __bool__(self) -> bool:
        """Whether there is a key, without counting."""
    def __eq__(self, other: object) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @overload
    def get(self, key: Buffer, *, snapshot: Optional[Snapshot] = None) -> Optional[bytes]: ...
    @overload
    def get(
        self, key: Buffer, default: _D, *, snapshot: Optional[Snapshot] = None
    ) -> Union[bytes, _D]: ...
    def _view(self, key: Buffer, *, snapshot: Optional[Snapshot] = None) -> Optional[View]: ...
    def multi_get(self, keys: List[bytes]) -> List[Optional[bytes]]:
        """Looks up many keys at one moment; the results are in their order."""
    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        sync: Optional[bool] = None,
        ttl: Optional[float] = None,
    ) -> None:
        """Stores a value. With `sync` it survives a power loss. It expires after `ttl` seconds."""
    def delete(self, key: Buffer, *, sync: Optional[bool] = None) -> None:
        """Removes a key. Removing an absent key is not an error."""
    def delete_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        sync: Optional[bool] = None,
    ) -> None:
        """Removes the keys of a range, or those of a prefix, with one record."""
    def merge(self, key: Buffer, operand: Buffer, *, sync: Optional[bool] = None) -> None:
        """Changes a value with an operand of the keyspace's merge operator, without a read."""
    def compare_and_swap(
        self,
        key: Buffer,
        expected: Optional[Buffer],
        new: Optional[Buffer],
        *,
        sync: Optional[bool] = None,
        ttl: Optional[float] = None,
    ) -> bool:
        """Gives a key a new value (None: deletes it) if it has the expected one (None: none)."""
    def keys(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        reverse: bool = False,
        snapshot: Optional[Snapshot] = None,
    ) -> Keys: ...
    def values(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        reverse: bool = False,
        snapshot: Optional[Snapshot] = None,
    ) -> Values: ...
    def items(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        reverse: bool = False,
        snapshot: Optional[Snapshot] = None,
    ) -> Items: ...
    def cursor(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        snapshot: Optional[Snapshot] = None,
        fill_cache: bool = True,
    ) -> Cursor:
        """A cursor. Without `fill_cache`, the data that it reads is not added to the cache."""
    @overload
    def pop(self, key: Buffer) -> bytes: ...
    @overload
    def pop(self, key: Buffer, default: _D) -> Union[bytes, _D]: ...
    def popitem(self) -> Tuple[bytes, bytes]:
        """Removes the first entry and returns it; KeyError if there is none."""
    def pop_first(self, *, sync: Optional[bool] = None) -> Optional[Tuple[bytes, bytes]]:
        """Removes the first entry and returns it; None if there is none. Callers in other threads
        get other entries."""
    def pop_last(self, *, sync: Optional[bool] = None) -> Optional[Tuple[bytes, bytes]]:
        """Removes the last entry, as `pop_first` does the first."""
    def drain(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        most: int,
        prefix: Optional[Buffer] = None,
        sync: Optional[bool] = None,
    ) -> List[Tuple[bytes, bytes]]:
        """Removes the first entries of a range, up to `most` of them, and returns them.

        Either all of them are removed or none. The call returns fewer than `most` if others remove
        some meanwhile, or once it has 64 MiB. It returns none only if the range is empty, or `most`
        is 0: call it until it returns none.
        """
    def setdefault(self, key: Buffer, default: Buffer) -> bytes:
        """The value of a key; if it has none, `default` is stored first."""
    def update(self, entries: _Entries = ...) -> None:
        """Puts all entries of a mapping or of pairs, all or nothing."""
    def clear(self) -> None:
        """Removes all entries, with one record."""
    def estimate(
        self, start: Optional[Buffer] = None, stop: Optional[Buffer] = None
    ) -> Tuple[int, int]:
        """The approximate numbers of entries and bytes in a range."""
    def compact(self, start: Optional[Buffer] = None, stop: Optional[Buffer] = None) -> None: ...

class _Writes:
    """The base of batches and transactions: writes that happen together or not at all."""

    def __setitem__(self, key: Buffer, value: Buffer) -> None: ...
    def __delitem__(self, key: Buffer) -> None: ...
    def put(
        self, key: Buffer, value: Buffer, *, keyspace: Optional[Keyspace] = None
    ) -> None: ...
    def delete(self, key: Buffer, *, keyspace: Optional[Keyspace] = None) -> None: ...
    def merge(
        self, key: Buffer, operand: Buffer, *, keyspace: Optional[Keyspace] = None
    ) -> None: ...
    def delete_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        keyspace: Optional[Keyspace] = None,
    ) -> None: ...

class WriteBatch(_Block, _Writes):
    """Writes that happen together. A `with` block writes them at its end, unless it raises."""

    def __len__(self) -> int: ...
    def append(self, other: WriteBatch) -> None:
        """Adds the writes of another batch of the same store."""
    def approximate_bytes(self) -> int:
        """The approximate size of the batch."""
    def clear(self) -> None: ...
    def write(self, *, clear: bool = True) -> None:
        """Writes the collected writes, and removes them from the batch unless `clear` is false."""

class Transaction(_Block, _Writes):
    """Reads and writes together. A `with` block commits at its end, or rolls back if it raises."""

    @overload
    def get(self, key: Buffer, *, keyspace: Optional[Keyspace] = None) -> Optional[bytes]: ...
    @overload
    def get(
        self, key: Buffer, default: _D, *, keyspace: Optional[Keyspace] = None
    ) -> Union[bytes, _D]: ...
    @overload
    def get_for_update(
        self, key: Buffer, *, keyspace: Optional[Keyspace] = None
    ) -> Optional[bytes]: ...
    @overload
    def get_for_update(
        self, key: Buffer, default: _D, *, keyspace: Optional[Keyspace] = None
    ) -> Union[bytes, _D]: ...
    def keys(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        reverse: bool = False,
        keyspace: Optional[Keyspace] = None,
    ) -> Walk[bytes]: ...
    def items(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        reverse: bool = False,
        keyspace: Optional[Keyspace] = None,
    ) -> Walk[Tuple[bytes, bytes]]: ...
    def set_savepoint(self) -> None: ...
    def rollback_to_savepoint(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...

class Opening:
    """A reference to a store that does not keep it open."""

    def is_open(self) -> bool: ...
    def close(self) -> None: ...
    def close_if_alone(self) -> None: ...

class Store(_Closing, Keyspace):
    """An open store. As a mapping it is its default keyspace."""

    @property
    def path(self) -> os.PathLike[str]: ...
    def _opening(self) -> Opening: ...
    def keyspace(
        self,
        name: str,
        options: Union[str, Mapping[str, Any], None] = None,
        *,
        create: bool = True,
    ) -> Keyspace:
        """A keyspace, which is made if it does not exist and `create` is true.

        `options` is a dict such as {"ttl_seconds": 3600}, or TOML, and replaces the options of an
        existing keyspace; `runstone help options` lists them.
        """
    def drop_keyspace(self, name: str) -> None: ...
    def keyspaces(self) -> List[str]: ...
    def write_batch(self, *, sync: Optional[bool] = None) -> WriteBatch: ...
    def transaction(
        self,
        *,
        serializable: bool = False,
        pessimistic: bool = False,
        sync: Optional[bool] = None,
    ) -> Transaction: ...
    def snapshot(self) -> Snapshot: ...
    def refresh(self) -> bool:
        """Makes the commits of another process visible in a store that is open for reading.

        Returns whether there were any. The store and its keyspaces show them from then on;
        snapshots, iterators and cursors keep their moment. A transaction that began before refuses
        these keyspaces: begin it again. A dropped keyspace raises `UnknownKeyspace`.
        """
    @property
    def age(self) -> float:
        """The largest possible age of the view of a store that is open for reading, in seconds.

        The view contains everything committed before then. 0 if no other process can write to the
        store.
        """
    def live(self) -> Optional[LiveState]:
        """The last report of the process that writes to a store that is open for reading.

        It reports once a second while another process follows the store. None if there is no
        report: no process has the store open for writing, or it opened the store less than a second
        ago.
        """
    def sync(self) -> None: ...
    def flush(self) -> None: ...
    def wait_idle(self) -> None: ...
    def checkpoint(self, path: Union[str, os.PathLike[str]], *, copy: bool = False) -> None:
        """Copies the store, as of now, into a new directory.

        Tables are hard links where possible. With `copy` they are copied too: damage to a file of
        the store does not reach the copy.
        """
    def verify(self) -> int:
        """Checks everything and returns the number of bytes read; damage raises Corruption."""
    def _property(self, name: str) -> Optional[str]: ...
    def metrics(self) -> str:
        """The counters as a text for Prometheus."""

class LiveState:
    """The last report of the process that writes to a store about its measurements."""

    @property
    def process(self) -> int:
        """The id of that process."""
    @property
    def age(self) -> float:
        """How long ago it reported, in seconds."""
    @property
    def is_current(self) -> bool:
        """Whether the report is recent. If not, the process ended, hangs, or does not report."""
    @property
    def metrics(self) -> str:
        """The result of `Store.metrics` in that process."""

_Resources = TypeVar("_Resources", bound="Resources")

class Resources:
    """Resources that many stores share."""

    def __new__(cls: Type[_Resources], options: str) -> _Resources: ...
    @property
    def stores(self) -> int:
        """The number of open or followed stores that share them."""

    def close(self) -> None:
        """Opens no more stores. Open stores keep the shared resources."""

    def __enter__(self: _Resources) -> _Resources: ...
    def __exit__(self, *error: object) -> None: ...

def open(
    path: str,
    follows: bool,
    options: str,
    merge_operators: Dict[str, Callable[..., Any]],
    compaction_filters: Dict[str, Callable[..., Any]],
    on_event: Optional[Callable[[Event], object]],
    resources: Optional[Resources],
) -> Store: ...
def destroy(path: Union[str, os.PathLike[str]]) -> None:
    """Removes the files of a store."""

_Path = Union[str, os.PathLike[str]]

class Position:
    """A place in the history of a store, after a write. Its text is NUMBER@HISTORY.

    After a power loss the same number can mean another write; the history distinguishes them.
    """

    def __new__(cls, text: str) -> Position: ...
    @property
    def number(self) -> int:
        """The sequence number of the last write before it."""
    @property
    def history(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Backup:
    """A backup."""

    @property
    def number(self) -> int:
        """Its number, from 1 up. Later backups have larger numbers."""
    @property
    def time(self) -> float:
        """When it was made, in seconds since 1970."""
    @property
    def last_number(self) -> int:
        """The sequence number of the last write in it."""
    @property
    def tables(self) -> int: ...
    @property
    def value_segments(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Bytes that a restore writes."""
    @property
    def added_bytes(self) -> int:
        """Bytes by which it enlarged the directory when it was made."""

class Archive:
    """A part of an archive without a gap."""

    @property
    def after_number(self) -> int:
        """It has every change after this sequence number."""
    @property
    def end(self) -> Position: ...
    @property
    def begin_time(self) -> Optional[float]:
        """The first time that it records, in seconds since 1970."""
    @property
    def end_time(self) -> Optional[float]: ...
    @property
    def bytes(self) -> int: ...

class Restored:
    """The result of a restore to a moment."""

    @property
    def backup(self) -> int:
        """The number of the backup that it began with."""
    @property
    def changes(self) -> int:
        """Changes of the archive that were applied to it."""
    @property
    def last_number(self) -> int:
        """The last sequence number of the original store that the new one has."""

class Archiving:
    """The result of a round of archiving."""

    @property
    def changes(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def backup(self) -> Optional[Backup]:
        """The first backup of the archive if it began or began again; None if it continued."""
    @property
    def lacks(self) -> Optional[Tuple[int, int]]:
        """The gap before the archive began again: after the first number, up to the second."""
    @property
    def is_drained(self) -> bool:
        """Whether no changes are left. A round ends after about 16 MiB even if some are."""

class Archiver(_Closing):
    """Appends the committed changes of a store to the archive beside its backups."""

    def advance(self, wait: float = 0.0) -> Archiving:
        """Waits at most `wait` seconds for a change, then appends the changes committed since.

        They are durable when this returns. After an error the archive is intact, and the next call
        continues. Other threads run during the call. Closing the archiver ends the wait with
        `Closed`.
        """
    @property
    def position(self) -> Position:
        """The position up to which the archive is complete."""

class Backups(_Closing):
    """A directory of backups of one store, which should be on another disk.

    A store is given by its directory, or as the `Store` that is open there. It may be open in any
    process, or closed. A directory that contains anything else, such as a store, raises
    `ForeignFiles`.
    """

    def __new__(cls, path: _Path, *, create: bool = True) -> Backups: ...
    @property
    def path(self) -> os.PathLike[str]: ...
    def create(self, store: Union[_Path, Store]) -> Backup:
        """Adds a backup of a store, as it is now. Copies only files that the directory lacks.

        Writers of the store do not wait. A second backup at the same time raises `InUse`.
        """
    def list(self) -> List[Backup]:
        """All backups with an intact description, the oldest first."""
    def damaged(self) -> List[Tuple[int, str]]:
        """The numbers of the backups with a damaged description, and the damage."""
    def archives(self) -> List[Archive]:
        """The parts of the archive without a gap, the oldest first."""
    def verify(self, number: Optional[int] = None) -> None:
        """Reads every byte of a backup, by default of the newest. Damage raises `Corruption`."""
    def verify_archives(self) -> None:
        """Reads the archive and checks it. Damage raises `Corruption`."""
    def restore(self, path: _Path, number: Optional[int] = None) -> None:
        """Makes a store from a backup, by default the newest, in a new or empty directory."""
    def restore_to(
        self,
        path: _Path,
        *,
        time: Union[float, datetime.datetime, None] = None,
        number: Optional[int] = None,
        position: Optional[Position] = None,
    ) -> Restored:
        """Makes a store as of a moment of the archive, by default of its end.

        `time` is a datetime, or seconds since 1970. The store gets everything that had been
        committed by then, exact to about a second. `number` is the number of a write, and is exact
        to the batch. After a power loss or a restore, a store reuses numbers; `position` also
        names the history. A moment that neither a backup nor the archive has raises
        `InvalidArgument`. So does a time that the clock showed twice; the message then lists the
        numbers.
        """
    def prune(self, keep: int) -> int:
        """Removes all but the newest backups, and files that only they needed. Returns how many."""
    def archive(self, store: Union[_Path, Store]) -> Archiver:
        """Continues the archive of a store, or begins it with a backup.

        A second archiver at the same time raises `InUse`. The store keeps its log for an open
        archiver, and up to its ``keep_log_bytes`` while no archiver is open.
        """

class Doubt:
    """Keys that may be wrong in a repaired store."""

    @property
    def keyspace(self) -> Optional[str]:
        """The name of the keyspace; None means all."""
    @property
    def first(self) -> bytes: ...
    @property
    def last(self) -> Optional[bytes]:
        """The last key, inclusive; None if there is none."""
    @property
    def numbers(self) -> Optional[Tuple[int, int]]:
        """The first and last number of the writes concerned, if they are known."""
    @property
    def reason(self) -> str:
        """may-be-old, may-be-back, value-lost, operands-may-repeat or from-lost-log."""
    @property
    def message(self) -> str: ...
    def covers(self, keyspace: str, key: Buffer) -> bool:
        """Whether the doubt includes a key."""

class RepairReport:
    """The result of a repair, and the keys that may be wrong."""

    @property
    def healthy(self) -> bool:
        """Whether the store was found healthy. Then there is no new store."""
    @property
    def basis(self) -> str:
        """The source of the list of current tables: manifest, part-of-manifest or tables."""
    @property
    def keyspaces(self) -> List[str]: ...
    @property
    def tables(self) -> int: ...
    @property
    def carried_tables(self) -> int:
        """Tables that the new store has unchanged. A link shares the file with the damaged
        store."""
    @property
    def log_records(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_number(self) -> int:
        """The largest sequence number that was found. Later writes are lost."""
    @property
    def lost(self) -> List[Tuple[str, str]]:
        """Files that are damaged or missing, and what is wrong."""
    @property
    def doubts(self) -> List[Doubt]:
        """If empty, every key of the new store is right and none is missing."""
    @property
    def notes(self) -> List[str]: ...

def repair(
    source: _Path,
    target: _Path,
    options: str,
    merge_operators: Dict[str, Callable[..., Any]],
    lost_log: bool,
) -> RepairReport: ...

class Write:
    """A write of a change."""

    @property
    def kind(self) -> str:
        """put, delete, merge or delete-range."""
    @property
    def keyspace(self) -> str: ...
    @property
    def key(self) -> bytes:
        """The key; for a range, its first key."""
    @property
    def value(self) -> Optional[bytes]:
        """The value of a put, or the operand of a merge."""
    @property
    def stop(self) -> Optional[bytes]:
        """For a range, the key before which it ends; None if it has no end."""
    @property
    def expires(self) -> Optional[float]:
        """When the value expires, in seconds since 1970."""
    @property
    def folded(self) -> bool:
        """Whether the store made this put itself: a get stored the value that it had merged from
        many operands of the key.

        The put does not change the value that a read of the key returns.
        """

class Writes(typing.Iterator[Write]):
    """The writes of a change, in order."""

    def __iter__(self) -> Writes: ...
    def __next__(self) -> Write: ...

class Change(Iterable[Write]):
    """A committed change. Iterating over it returns its writes, in order.

    The writes became visible together. Those of a load are read a megabyte at a time.
    """

    @property
    def position(self) -> Position:
        """The position after the change. A reader that begins there gets no write twice."""
    @property
    def kind(self) -> str:
        """writes, loaded, keyspace, dropped, keyspaces, time, gap, state or gap-end.

        keyspace: one was made, or its options changed. keyspaces: all existing ones, after a crash
        or in a gap. time: all earlier changes had been committed by then. gap: the log lacks the
        next changes; state follows until gap-end, with the values of keys as of the end of the gap.
        Values that were overwritten before the end of the gap are left out. So are deletes that a
        compaction has dropped together with the entries that they hid: such a deletion is not
        reported. After a gap from 0, the state contains all keys: discard all earlier data.
        """
    @property
    def keyspaces(self) -> List[Tuple[str, Optional[str]]]:
        """Names of keyspaces, with options as TOML for those that were made or changed."""
    @property
    def time(self) -> Optional[float]:
        """For a time: seconds since 1970 by the writer's clock, which may go back."""
    @property
    def gap(self) -> Optional[Tuple[int, int]]:
        """For a gap: state follows for keys written after the first number, as of the second."""
    def __iter__(self) -> Writes: ...

class Changes(_Closing, typing.Iterator[Change]):
    """Reads the committed changes of a store in order, whether or not a process writes to it.

    A loop over it ends after the changes made so far; a later loop, or `next`, continues. It begins
    with the oldest change of the log, or after a position, or `now`. With `everything` it begins
    with the state of all keys, which appears as a gap after 0. This is for a consumer that has no
    data yet, because the log reaches back only to the last flush. Changes are durable, unless
    `unsynced` is set. `HistoryForked` means that a power loss removed changes that were read
    already.

    `HistoryGone` means that the changes after the position are no longer known, mostly because the
    log does not reach back so far (``keep_log_bytes``). With ``on_gap="state"`` the state of the
    keys written after the position is returned instead, and then the log: see `Change.kind`. The
    options and merge operators are for reading the state, as in `follow`.
    """

    def __new__(
        cls,
        store: Union[_Path, Store],
        *,
        after: Union[Position, str, None] = None,
        now: bool = False,
        everything: bool = False,
        unsynced: bool = False,
        on_gap: Literal["fail", "state"] = "fail",
        merge_operators: Optional[Mapping[str, Callable[..., Any]]] = None,
        **options: Any,
    ) -> Changes: ...
    def __iter__(self) -> Changes: ...
    def __next__(self) -> Change: ...
    def next(self, wait: float = 0.0) -> Optional[Change]:
        """The next change; None if there is none within `wait` seconds."""
    @property
    def position(self) -> Position:
        """The position after the last change that was returned.

        If it is stored in the same batch as the effects of the change, each effect occurs once.
        """

class Mirroring:
    """The result of a round of mirroring."""

    @property
    def changes(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Their approximate size in bytes."""
    @property
    def is_drained(self) -> bool:
        """Whether no changes are left. A round ends after about 16 MiB even if some are."""

class Mirror(_Closing):
    """A store that follows another store, change by change."""

    def advance(self, wait: float = 0.0) -> Mirroring:
        """Waits at most `wait` seconds for a change, then applies the changes committed since.

        After an error the mirror is at its position, and the next call continues. Other threads run
        during the call. Closing the mirror ends the wait with `Closed`.
        """
    @property
    def position(self) -> Position:
        """The position in the other store that the mirror has reached."""

def mirror(
    source: Union[_Path, Store],
    target: _Path,
    options: str,
    merge_operators: Dict[str, Callable[..., Any]],
    compaction_filters: Dict[str, Callable[..., Any]],
) -> Mirror: ...
