"""Runstone: an embedded key-value store whose shape is a choice.

>>> import runstone
>>> with runstone.open(path) as db:          # doctest: +SKIP
...     db[b"apple"] = b"red"
...     for key, value in db.items(prefix=b"a"):
...         print(key, value)

A store is a mutable mapping from bytes to bytes, and so is each of its keyspaces. Every call that
can wait lets other threads run. A store that is not closed explicitly is closed when its last
object is freed or the interpreter ends. A fork cannot use objects that were opened before it; open
a store there only if the process had none open.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import weakref
from collections.abc import ItemsView, KeysView, MutableMapping, Set, ValuesView
from typing import Any, Callable, Mapping, Optional, Union

from . import _runstone
from ._runstone import (
    Archive,
    Archiver,
    Archiving,
    Backup,
    Backups,
    Busy,
    Change,
    Changes,
    Closed,
    Conflict,
    Corruption,
    Cursor,
    Deadlock,
    Doubt,
    Error,
    Event,
    ForeignFiles,
    HistoryForked,
    HistoryGone,
    InsideCallback,
    Internal,
    InUse,
    InvalidArgument,
    Items,
    Keys,
    Keyspace,
    LeaseRevoked,
    LiveState,
    LockTimeout,
    MergeFailed,
    Mirror,
    Mirroring,
    NewerFormat,
    NoSpace,
    NotAStore,
    OtherProcess,
    Position,
    ReadOnly,
    RepairReport,
    Restored,
    Snapshot,
    Stopped,
    Storage,
    Store,
    Transaction,
    UnknownKeyspace,
    Values,
    Walk,
    Write,
    WriteBatch,
    Writes,
    __version__,
    destroy,
)

__all__ = [
    "Archive",
    "Archiver",
    "Archiving",
    "Backup",
    "Backups",
    "Busy",
    "Change",
    "Changes",
    "Closed",
    "Conflict",
    "Corruption",
    "Cursor",
    "Deadlock",
    "Doubt",
    "Error",
    "Event",
    "ForeignFiles",
    "HistoryForked",
    "HistoryGone",
    "InUse",
    "InsideCallback",
    "Internal",
    "InvalidArgument",
    "Items",
    "Keys",
    "Keyspace",
    "LeaseRevoked",
    "LiveState",
    "LockTimeout",
    "MergeFailed",
    "Mirror",
    "Mirroring",
    "NewerFormat",
    "NoSpace",
    "NotAStore",
    "OtherProcess",
    "Position",
    "ReadOnly",
    "RepairReport",
    "Resources",
    "Restored",
    "Snapshot",
    "Stopped",
    "Storage",
    "Store",
    "Transaction",
    "UnknownKeyspace",
    "Values",
    "Walk",
    "Write",
    "WriteBatch",
    "Writes",
    "__version__",
    "destroy",
    "follow",
    "get_view",
    "mirror",
    "open",
    "repair",
    "to_toml",
]

MutableMapping.register(Keyspace)
KeysView.register(Keys)
ValuesView.register(Values)
ItemsView.register(Items)
for _view in (Keys, Items):
    for _name in (
        "__and__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__or__", "__rand__",
        "__ror__", "__rsub__", "__rxor__", "__sub__", "__xor__", "isdisjoint",
    ):
        # The operators of a set, which need only iteration, `in` and `len`.
        setattr(_view, _name, getattr(Set, _name))
    setattr(_view, "_from_iterable", classmethod(lambda _, entries: set(entries)))
    setattr(_view, "__hash__", None)
del _name, _view

Merger = Callable[[bytes, Optional[bytes], "list[bytes]"], bytes]
Filter = Callable[[int, bytes, bytes], Union[bool, bytes]]
Listener = Callable[[Event], object]

# Open stores. This list does not keep them open. Their threads may call Python, so the stores are
# closed before the interpreter ends.
_open: "list[_runstone.Opening]" = []
# Mirrors that may be open. Their stores have threads too.
_mirrors: "weakref.WeakSet[Mirror]" = weakref.WeakSet()
# Weak references that call back before Python's collector clears the functions that a store calls.
_watches: "dict[int, weakref.ref[Store]]" = {}


@atexit.register
def _close_all() -> None:
    ending: "list[Union[_runstone.Opening, Mirror]]" = [*_open, *_mirrors]
    for one in ending:
        try:
            one.close()
        except Error:
            # Nothing can handle the error any more, but the writes are in the log.
            pass


class Resources(_runstone.Resources):
    """Resources that any number of stores share: memory, threads, open files, a write rate.

    >>> shared = runstone.Resources(memory_budget_bytes="512M", background_threads=4)
    >>> one = runstone.open(path, resources=shared)          # doctest: +SKIP

    ``max_open_files`` and ``background_bytes_per_second`` are the other options. Options that are
    left out have their usual defaults, and the rate then has no limit. The resources last as long
    as a store that was opened with them, even after `close`.
    """

    def __new__(cls, **options: Any) -> Resources:
        return super().__new__(cls, to_toml(options))


def open(
    path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"],
    *,
    merge_operators: Optional[Mapping[str, Merger]] = None,
    compaction_filters: Optional[Mapping[str, Filter]] = None,
    on_event: Optional[Listener] = None,
    resources: Optional[Resources] = None,
    **options: Any,
) -> Store:
    """Opens the store in a directory, or makes it there.

    The options are those of the store: ``memory_budget_bytes="1G"``, ``durability="sync"``,
    ``read_only=True``, ``create_if_missing=False``; ``keyspace={"policy": "garnering"}`` contains
    those of the default keyspace, as ``runstone help options`` lists them. With ``read_only``, a
    store that another process has open is followed, as by `follow`. A value of the wrong kind
    raises a TypeError or an `InvalidArgument`, which is a ValueError. An impossible value raises an
    `InvalidArgument`.

    A merge operator is a function of a key, its value or None, and a list of operands, oldest
    first; it returns the new value. A compaction filter is a function of a level, a key and a
    value; it returns True to keep the entry, False to remove it, or another value. If such a
    function raises KeyboardInterrupt or SystemExit, the call during which it ran raises it again.

    ``on_event`` is called with an `Event` when the store has flushed, compacted and so on. Any
    thread may call it in the middle of its work, so it should return soon, and may only read from
    the store. Its exceptions go to ``sys.unraisablehook``. Without it, unusable records that a
    crash left in the log cause a RuntimeWarning.

    The store shares ``resources`` with others. Then options that the resources set are refused.
    """
    if resources is not None and not isinstance(resources, Resources):
        raise TypeError(f"resources must be a runstone.Resources, not {resources!r}")
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path is text, bytes or a path, not {path!r}")
    store = _runstone.open(
        os.fsdecode(path),
        False,
        to_toml(options),
        _functions("merge_operators", merge_operators),
        _functions("compaction_filters", compaction_filters),
        on_event,
        resources,
    )
    _watch(store, store._opening())
    return store


def follow(
    path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"],
    *,
    merge_operators: Optional[Mapping[str, Merger]] = None,
    resources: Optional[Resources] = None,
    **options: Any,
) -> Store:
    """Opens a store for reading, whether or not another process writes to it.

    It does not prevent others from writing, and shows one moment. `Store.refresh` moves it to a
    later one, and `Store.age` is its largest possible age. The writer keeps the files that the
    moment needs, within its ``follower_keep_bytes`` and ``follower_keep_seconds``. Beyond these
    limits `LeaseRevoked` is raised: then follow the store again. Options and resources are as for
    `open`. `Store.live` returns the measurements of the process that writes to the store.
    """
    if resources is not None and not isinstance(resources, Resources):
        raise TypeError(f"resources must be a runstone.Resources, not {resources!r}")
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path is text, bytes or a path, not {path!r}")
    operators = _functions("merge_operators", merge_operators)
    text = to_toml(options)
    store = _runstone.open(os.fsdecode(path), True, text, operators, {}, None, resources)
    _watch(store, store._opening())
    return store


def mirror(
    source: Union[str, "os.PathLike[str]", Store],
    target: Union[str, "os.PathLike[str]"],
    *,
    merge_operators: Optional[Mapping[str, Merger]] = None,
    compaction_filters: Optional[Mapping[str, Filter]] = None,
    **options: Any,
) -> Mirror:
    """Continues the mirror of a store in `target`, or makes it if `target` is new or empty.

    A mirror equals a past state of the other store; `Mirror.advance` brings it up to date.
    The other store may be open in any process, or closed. Options, merge operators and filters are
    for the mirror, which needs the same operators and filters as the other store. A mirror that did
    not advance for too long raises `HistoryGone` (see ``keep_log_bytes`` of the other store), and
    needs a new directory. To read the mirror while it is open, `follow` it.
    """
    mergers = _functions("merge_operators", merge_operators)
    filters = _functions("compaction_filters", compaction_filters)
    made = _runstone.mirror(source, target, to_toml(options), mergers, filters)
    _mirrors.add(made)
    return made


def repair(
    source: Union[str, "os.PathLike[str]"],
    target: Union[str, "os.PathLike[str]"],
    *,
    merge_operators: Optional[Mapping[str, Merger]] = None,
    lost_log: bool = False,
    **options: Any,
) -> RepairReport:
    """Makes a new store in `target` from the readable contents of the damaged one in `source`.

    `source` is only read; `target` must be new or empty. Every key of the new store is right, or a
    `Doubt` of the report covers it. A healthy store is left alone. ``lost_log`` restores writes
    that an earlier open kept in ``lost-NNNNNN.wal``, for keys that were not written since. Options
    and merge operators are those with which the application opens the store.
    """
    operators = _functions("merge_operators", merge_operators)
    return _runstone.repair(source, target, to_toml(options), operators, lost_log)


def _watch(store: Store, opening: _runstone.Opening) -> None:
    def forget(watch: "weakref.ref[Store]") -> None:
        _watches.pop(id(watch), None)
        try:
            opening.close_if_alone()
        except Error:
            # Nothing can handle the error here. Inside a merge operator, the last object closes the
            # store.
            pass

    _open[:] = [one for one in _open if one.is_open()] + [opening]
    watch = weakref.ref(store, forget)
    _watches[id(watch)] = watch


def _functions(argument: str, given: Any) -> "dict[str, Callable[..., Any]]":
    """Checks that these are functions, by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} is a dict from names to functions, not {given!r}")
    for name, function in given.items():
        if not isinstance(name, str):
            raise TypeError(f"a name in {argument} is text, not {name!r}")
        if not callable(function):
            raise TypeError(f"{argument}[{name!r}] is not callable: {function!r}")
    return dict(given)


def to_toml(options: Mapping[str, Any]) -> str:
    """Options as TOML, which `Store.keyspace` accepts: to_toml({"block_bytes": "8K"})."""
    if not isinstance(options, Mapping):
        raise TypeError(f"options are a dict from names to values, not {options!r}")
    pairs = [(_checked(name), value) for name, value in options.items()]
    # TOML tables must come last.
    pairs.sort(key=lambda pair: isinstance(pair[1], Mapping))
    return "\n".join(f"{name} = {_toml(name, value)}" for name, value in pairs)


_NAME = re.compile("[A-Za-z0-9_-]+")


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of an option is text, not {name!r}")
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{name!r} is not an option; `runstone help options` lists them")
    return name


def _toml(option: str, value: Any) -> str:
    """A value as TOML; the option's name is for errors."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if isinstance(value, Mapping):
        pairs = (f"{_checked(name)} = {_toml(f'{option}.{name}', inner)}"
                 for name, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(option, inner) for inner in value) + "]"
    why = "; leave it out for the default" if value is None else ""
    raise TypeError(f"option {option} is a number, text, bool, list or dict, not {value!r}{why}")


def _escaped(character: str) -> str:
    if character in '\\"':
        return "\\" + character
    is_plain = character >= " " and character != "\x7f"
    return character if is_plain else f"\\u{ord(character):04x}"


def get_view(
    keyspace: Keyspace, key: bytes, *, snapshot: Optional[Snapshot] = None
) -> Optional[memoryview]:
    """The value of a key as a read-only memoryview of the store's own memory; None if it is absent.

    Nothing is copied if the value is larger than 4 KiB. The view keeps its block in memory: release
    it soon.
    """
    if not isinstance(keyspace, Keyspace):
        raise TypeError(f"keyspace is a Keyspace or a Store, not {keyspace!r}")
    view = keyspace._view(key, snapshot=snapshot)
    if view is None:
        return None
    if len(view) == 0:
        return memoryview(b"")
    array = (ctypes.c_ubyte * len(view)).from_address(view.address)
    # The memoryview keeps the array alive, and the array keeps the value alive.
    array._runstone_value = view  # type: ignore[attr-defined]
    return memoryview(array).cast("B").toreadonly()
