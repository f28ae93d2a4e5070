"""What the native part of runstone looks like from Python."""

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
    """What the store refuses, or cannot do."""

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
    """What a `with` block takes."""

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
    until that is closed."""

    def __iter__(self) -> Walk[_T]: ...
    def __next__(self) -> _T: ...
    def seek(self, key: Buffer) -> None:
        """Goes on at the first key that is not less, or backwards at the last not greater."""

class Cursor(_Closing):
    """A place in a keyspace. The moves tell whether it is on an entry."""

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
    """An iterator of plyvel: it stands between two entries and gives that on either side."""

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
    """What happened in a store.

    The kinds are flushed, compacted, loaded, values_collected, pressure, recovered, and with a
    warning log_end_lost, background_error, merge_failed, compaction_filter_missing,
    budget_above_limit.
    """

    @property
    def kind(self) -> str: ...
    @property
    def warning(self) -> bool:
        """Whether somebody should look at it."""
    @property
    def message(self) -> str: ...
    @property
    def fields(self) -> Dict[str, Union[int, str, List[str]]]:
        """More of it, such as `records` and `kept` of log_end_lost."""

class Snapshot(_Closing):
    """A view of all keyspaces that later writes do not change."""

class View:
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...

class EntriesView(_Closing, Generic[_T]):
    """What `keys`, `values` and `items` give: a view of a range, as those of a dict.

    It shows the keyspace as it is when it is asked, or a snapshot. `len` counts one by one, and
    `in` of values looks at all; the other look-ups are gets. Each `iter` is a `Walk` of its own. A
    view that was itself stepped by `next`, sought, or entered by `with` is an iterator from then
    on, and `iter` goes on with it.
    """

    def __iter__(self) -> Walk[_T]: ...
    def __reversed__(self) -> Walk[_T]: ...
    def __next__(self) -> _T: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, key: object) -> bool: ...
    def seek(self, key: Buffer) -> None:
        """Goes on at the first key that is not less, or backwards at the last not greater."""

class Keys(EntriesView[bytes], KeysView[bytes]): ...
class Values(EntriesView[bytes], ValuesView[bytes]): ...
class Items(EntriesView[Tuple[bytes, bytes]], ItemsView[bytes, bytes]): ...

# At run time it and its views are registered with the classes of collections.abc.
class Keyspace(MutableMapping[bytes, bytes]):
    """An ordered, mutable mapping from bytes to bytes.

    `==` compares entries with those of another keyspace or mapping, in order, and stops at the
    first that differs or is too many: beside a dict it reads at most one entry more than that has.
    Two names of one keyspace are equal without a read. Like a dict it has no hash.
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
        """Counts the keys one by one, in some 100 ns each; `estimate` tells about how many there
        are without that."""
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
        """Stores a value. `sync`: it survives a power loss. `ttl`: it expires after seconds."""
    def delete(self, key: Buffer, *, sync: Optional[bool] = None) -> None:
        """Removes a key. Removing an absent key is no error."""
    def delete_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        prefix: Optional[Buffer] = None,
        sync: Optional[bool] = None,
    ) -> None:
        """Removes the keys of a range, or those of a prefix, by one record."""
    def merge(self, key: Buffer, operand: Buffer, *, sync: Optional[bool] = None) -> None:
        """Changes a value by an operand of the keyspace's merge operator, without a read."""
    def compare_and_swap(
        self, key: Buffer, expected: Optional[Buffer], new: Optional[Buffer]
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
        """A place in the keyspace. Without `fill_cache` what it reads stays out of the cache."""
    @overload
    def pop(self, key: Buffer) -> bytes: ...
    @overload
    def pop(self, key: Buffer, default: _D) -> Union[bytes, _D]: ...
    def popitem(self) -> Tuple[bytes, bytes]:
        """Removes the first entry, and gives it; KeyError if there is none."""
    def setdefault(self, key: Buffer, default: Buffer) -> bytes:
        """The value of a key, which is `default` from now on if it had none."""
    def update(self, entries: _Entries = ...) -> None:
        """Puts all entries of a mapping or of pairs, together or none."""
    def clear(self) -> None:
        """Removes all entries, by one record."""
    def estimate(
        self, start: Optional[Buffer] = None, stop: Optional[Buffer] = None
    ) -> Tuple[int, int]:
        """About how many entries and bytes a range holds."""
    def compact(self, start: Optional[Buffer] = None, stop: Optional[Buffer] = None) -> None: ...

class _Writes:
    """What batches and transactions have in common: writes that happen together or not at all."""

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
        """About how many bytes it takes."""
    def clear(self) -> None: ...
    def write(self, *, clear: bool = True) -> None:
        """Writes what was collected, and forgets it unless `clear` is false."""

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
    """A store, without keeping it open."""

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

        `options` is a dict such as {"ttl_seconds": 3600}, or TOML, and replaces those of an
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
    def sync(self) -> None: ...
    def flush(self) -> None: ...
    def wait_idle(self) -> None: ...
    def checkpoint(self, path: Union[str, os.PathLike[str]]) -> None: ...
    def verify(self) -> int:
        """Reads and checks everything, and gives how many bytes; damage raises Corruption."""
    def _property(self, name: str) -> Optional[str]: ...
    def metrics(self) -> str:
        """The counters as a text for Prometheus."""

_Resources = TypeVar("_Resources", bound="Resources")

class Resources:
    """What many stores share."""

    def __new__(cls: Type[_Resources], options: str) -> _Resources: ...
    @property
    def stores(self) -> int:
        """How many stores that share them are open."""

    def close(self) -> None:
        """Opens no more stores. Those that are open keep what they share."""

    def __enter__(self: _Resources) -> _Resources: ...
    def __exit__(self, *error: object) -> None: ...

def open(
    path: str,
    options: str,
    merge_operators: Dict[str, Callable[..., Any]],
    compaction_filters: Dict[str, Callable[..., Any]],
    on_event: Optional[Callable[[Event], object]],
    resources: Optional[Resources],
) -> Store: ...
def destroy(path: Union[str, os.PathLike[str]]) -> None:
    """Removes the files of a store."""
