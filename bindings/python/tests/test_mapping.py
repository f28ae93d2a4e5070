"""Compares a keyspace with a dict: every call must have the same result on both."""

from __future__ import annotations

import collections
import random
import subprocess
import sys
from collections import abc
from pathlib import Path
from typing import Any, Callable, Iterator, MutableMapping

import pytest

import runstone

ENTRIES = {b"k%03d" % number: b"v%d" % number for number in range(200)}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[runstone.Store]:
    with runstone.open(tmp_path / "db") as db:
        db.update(ENTRIES)
        yield db


def test_classes(db: runstone.Store) -> None:
    part = db.keyspace("part")
    for keyspace in (db, part):
        assert isinstance(keyspace, abc.MutableMapping)
        assert isinstance(keyspace.keys(), abc.KeysView)
        assert isinstance(keyspace.values(), abc.ValuesView)
        assert isinstance(keyspace.items(), abc.ItemsView)
        for unhashable in (keyspace, keyspace.keys(), keyspace.items()):
            with pytest.raises(TypeError):
                hash(unhashable)
    missing = [
        name for name in dir(abc.MutableMapping)
        if not name.startswith("_") and not hasattr(runstone.Keyspace, name)
    ]
    assert missing == []


def test_equality(db: runstone.Store, tmp_path: Path) -> None:
    """`db == dict(db)` was once False: a store was equal only to itself."""
    assert db == ENTRIES and ENTRIES == db and dict(db) == db
    assert not db != ENTRIES and db == db and db == db.keyspace("default")
    assert db == collections.OrderedDict(reversed(list(ENTRIES.items())))
    assert db == collections.ChainMap(ENTRIES)
    other = dict(ENTRIES)
    for change in (
        lambda: other.pop(b"k100"),
        lambda: other.update({b"k100": b"other"}),
        lambda: other.update({b"k100": b"v100", b"k": b"v"}),
        other.clear,
    ):
        change()
        assert db != other and other != db and not db == other
    for alien in (None, 7, b"k", [], list(ENTRIES), set(ENTRIES), {"k": "v"}, object()):
        assert db != alien and not db == alien
    part = db.keyspace("part")
    assert part == {} and part != db
    part.update(ENTRIES)
    with runstone.open(tmp_path / "other") as twin:
        twin.update(ENTRIES)
        assert part == db and db == part and twin == db == twin.keyspace("default")
        part[b"k199"] = b"other"
        twin[b"l"] = b"more"
        assert part != db and db != part and twin != db and db != twin
    grows = collections.defaultdict(bytes, {b"k000": b"v0"})
    assert db != grows and len(grows) == 1, "a comparison adds nothing"


def test_the_cost_of_equality(db: runstone.Store) -> None:
    """A comparison stops at the first difference, or at the first entry beyond the other's end."""
    db.update((b"m%05d" % number, b"v") for number in range(20_000))
    assert not db == {}
    assert not db == {b"k000": b"v0", b"k001": b"v1"}
    seen = []

    class Watched(dict[bytes, bytes]):
        def __contains__(self, key: object) -> bool:
            seen.append(key)
            return super().__contains__(key)

    few = Watched(list(ENTRIES.items())[:10])
    assert db != few and len(seen) == 10
    seen.clear()
    wrong = Watched({**dict(db), b"k003": b"other"})
    assert db != wrong and len(seen) == 4


def test_views(db: runstone.Store) -> None:
    entries = dict(ENTRIES)
    for start, stop, prefix in (
        (None, None, None), (b"k010", None, None), (None, b"k0505", None),
        (b"k010", b"k020", None), (None, None, b"k1"), (b"x", None, None), (b"k", b"k", None),
    ):
        inside = {
            key: value for key, value in entries.items()
            if (start is None or key >= start) and (stop is None or key < stop)
            and key.startswith(prefix or b"")
        }
        for reverse in (False, True):
            options: dict[str, Any] = {"prefix": prefix, "reverse": reverse}
            keys: Any = db.keys(start, stop, **options)
            values: Any = db.values(start, stop, **options)
            items: Any = db.items(start, stop, **options)
            order = -1 if reverse else 1
            for view, expected in (
                (keys, list(inside)), (values, list(inside.values())),
                (items, list(inside.items())),
            ):
                mixed: Any = view
                assert list(mixed) == list(mixed) == expected[::order]
                assert list(reversed(mixed)) == expected[::-order]
                assert len(mixed) == len(expected) and bool(mixed) == bool(expected)
                assert all(one in mixed for one in expected[:5])
                assert list(zip(mixed, mixed)) == list(zip(expected, expected))[::order]
            assert (b"k005" in keys) == (b"k005" in inside)
            assert ((b"k005", b"v5") in items) == (b"k005" in inside)
            assert (b"v5" in values) == (b"k005" in inside)
            assert keys == set(inside) == set(keys) and items == inside.items()
    aliens: list[Any] = [(b"k005", b"other"), b"k005", (b"k005",), ("k005", b"v5"), (1, 2, 3), 7]
    assert not any(alien in db.items() for alien in aliens)
    assert not any(alien in db.values() for alien in aliens[:1] + aliens[2:])


def test_views_are_sets(db: runstone.Store) -> None:
    source = random.Random(1)
    own = db.keys(prefix=b"k00")
    model = {key for key in ENTRIES if key.startswith(b"k00")}
    for _ in range(30):
        names = set(source.sample(sorted(ENTRIES), 8)) | {b"else"}
        pairs = {(key, ENTRIES.get(key, b"")) for key in names}
        cases: list[tuple[Any, set[Any], set[Any]]] = [
            (own, model, names),
            (db.items(prefix=b"k00"), {(key, ENTRIES[key]) for key in model}, pairs),
        ]
        for mixed, right, other in cases:
            assert mixed & other == right & other and other & mixed == right & other
            assert mixed | other == right | other and other | mixed == right | other
            assert mixed - other == right - other and other - mixed == other - right
            assert mixed ^ other == right ^ other and other ^ mixed == right ^ other
            assert mixed.isdisjoint(other) == right.isdisjoint(other)
            assert (mixed <= other) == (right <= other) and (mixed < right | other) == (
                right < right | other
            )
            assert mixed >= right and mixed <= right and not mixed > right
    assert ENTRIES.keys() == db.keys() and ENTRIES.items() == db.items()
    assert list(reversed(db)) == list(ENTRIES)[::-1]


def test_a_view_shows_what_is_there(db: runstone.Store) -> None:
    keys, items = db.keys(prefix=b"n"), db.items(prefix=b"n")
    with db.snapshot() as snapshot:
        old = db.keys(prefix=b"n", snapshot=snapshot)
        assert list(keys) == [] and len(items) == 0 and not items
        db[b"n1"] = b"new"
        assert list(keys) == [b"n1"] and list(items) == [(b"n1", b"new")] and len(keys) == 1
        assert list(old) == [] and len(old) == 0 and b"n1" not in old
    with pytest.raises(runstone.Closed):
        len(old)
    walk = iter(keys)
    db[b"n2"] = b"newer"
    assert list(walk) == [b"n1"] and list(keys) == [b"n1", b"n2"]


def test_a_view_that_is_an_iterator(db: runstone.Store) -> None:
    walk = db.keys()
    assert next(walk) == b"k000"
    assert next(iter(walk)) == b"k001" and next(walk) == b"k002"
    walk.seek(b"k198")
    assert list(walk) == [b"k198", b"k199"] and next(walk, None) is None
    assert len(walk) == 200 and next(reversed(walk)) == b"k199"
    with db.items(reverse=True) as pairs:
        for key, _ in pairs:
            if key == b"k190":
                break
        assert next(pairs) == (b"k189", b"v189")
    for call in (lambda: next(pairs), lambda: pairs.seek(b"k"), lambda: iter(pairs)):
        with pytest.raises(runstone.Closed):
            call()
    unused = db.values()
    unused.close()
    with pytest.raises(runstone.Closed):
        next(unused)


def change(target: MutableMapping[bytes, bytes], step: int) -> list[Any]:
    """Some calls that change a mapping, with the result or exception of each."""
    source, told = random.Random(step), list[Any]()
    for _ in range(200):
        key, value = b"%d" % source.randrange(20), b"%d" % source.randrange(5)
        calls: list[Callable[[], object]] = [
            lambda: target.pop(key),
            lambda: target.pop(key, None),
            lambda: target.pop(key, value),
            lambda: target.setdefault(key, value),
            lambda: target.update({key: value, b"x": b"y"}),
            lambda: target.update([(key, value)]),
            lambda: target.__setitem__(key, value),
            lambda: target.__delitem__(key),
            lambda: target[key],
            lambda: target.get(key),
            lambda: target.get(key, 7),
            lambda: key in target,
            lambda: len(target),
            lambda: sorted(target.items()),
        ]
        work = source.choice(calls)
        if source.randrange(60) == 0:
            work = target.clear
        try:
            told.append(work())
        except KeyError as error:
            told.append(("missing", error.args))
    return told


@pytest.mark.parametrize("step", range(5))
def test_changes(tmp_path: Path, step: int) -> None:
    with runstone.open(tmp_path / "db") as db:
        model: dict[bytes, bytes] = {}
        assert change(db, step) == change(model, step) and db == model


def test_arguments_of_the_methods_of_a_dict(db: runstone.Store) -> None:
    pop: Any = db.pop
    update: Any = db.update
    setdefault: Any = db.setdefault
    update()
    assert pop(b"none", default=b"d") == b"d" and pop(b"none", default=None) is None
    calls: list[Callable[[], object]] = [
        lambda: pop(), lambda: pop(b"k", 1, 2), lambda: pop(b"k", 1, default=2),
        lambda: pop(b"k", defualt=1), lambda: update(7), lambda: update([(b"k",)]),
        lambda: update({"k": b"v"}), lambda: update({b"k": None}), lambda: update(k=b"v"),
        lambda: setdefault(b"k"), lambda: setdefault(b"k", None),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)):
            call()
    assert db == ENTRIES
    seen = [db.popitem() for _ in range(200)]
    assert seen == list(ENTRIES.items()) and not db
    with pytest.raises(KeyError):
        db.popitem()


def test_a_store_is_a_mutable_mapping_to_mypy(tmp_path: Path) -> None:
    """mypy once did not accept a store as a mapping: its stub had no base class of `typing`."""
    pytest.importorskip("mypy")
    good = tmp_path / "good.py"
    good.write_text(
        "from typing import ItemsView, Iterator, KeysView, Mapping, MutableMapping, Optional\n"
        "from typing import ValuesView\n"
        "import runstone\n"
        "def fill(target: MutableMapping[bytes, bytes]) -> Mapping[bytes, bytes]:\n"
        "    target[b'k'] = b'v'\n"
        "    return target\n"
        "with runstone.open('db') as db:\n"
        "    fill(db)\n"
        "    fill(db.keyspace('part'))\n"
        "    keys: KeysView[bytes] = db.keys()\n"
        "    values: ValuesView[bytes] = db.values()\n"
        "    items: ItemsView[bytes, bytes] = db.items(prefix=b'k')\n"
        "    walk: Iterator[bytes] = reversed(db)\n"
        "    db.items().seek(b'k')\n"
        "    both = db.keys() & {b'k'}\n"
        "    found: bytes = db.pop(b'k', b'd')\n"
        "    maybe: Optional[bytes] = db.pop(b'k', None)\n"
        "    db.update({b'k': b'v'})\n"
    )
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from typing import MutableMapping\n"
        "import runstone\n"
        "def fill(target: MutableMapping[str, bytes]) -> None: ...\n"
        "fill(runstone.open('db'))\n"
    )
    run = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    told = subprocess.run([*run, str(good)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    told = subprocess.run([*run, str(bad)], capture_output=True, text=True, check=False)
    assert "arg-type" in told.stdout
