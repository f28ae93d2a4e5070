"""Tests that nothing of a store is left when it ends in any way: no descriptor, thread or lock."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

import runstone
from runstone import plyvel

KEYS = [b"%04d" % number for number in range(2000)]


def left(path: Path) -> list[str]:
    """The files below a path that the process has open, and the threads that Python did not
    start."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(str(path)):
            found.append(os.path.relpath(target, path))
    threads = len(os.listdir("/proc/self/task")) - threading.active_count()
    return found + ["a thread"] * threads


def nothing_left(path: Path) -> bool:
    """Waits, because Python's own threads stay in the list for a moment after they are joined."""
    for _ in range(500):
        if not left(path):
            return True
        time.sleep(0.01)
    pytest.fail(f"left: {left(path)}")


def fill(path: Path, **options: Any) -> runstone.Store:
    """A store with tables and value files, all of them open."""
    db = runstone.open(path, **options)
    apart = db.keyspace(
        "apart", runstone.to_toml({"values": {"placement": "hash-grouped", "separate_at": 16}})
    )
    for keyspace in (db, apart):
        keyspace.update((key, b"v" * 100) for key in KEYS)
    db.flush()
    assert len(db) == len(KEYS) and apart[KEYS[7]] == b"v" * 100
    return db


def objects_of(db: runstone.Store) -> dict[str, Any]:
    """An object of each kind, in use."""
    objects: dict[str, Any] = {
        "keyspace": db.keyspace("apart"),
        "walk": db.items(),
        "values": db.keyspace("apart").values(reverse=True),
        "cursor": db.cursor(),
        "snapshot": db.snapshot(),
        "batch": db.write_batch(),
        "transaction": db.transaction(),
        "pessimistic": db.transaction(pessimistic=True),
        "view": runstone.get_view(db, KEYS[0]),
    }
    objects["seen"] = objects["transaction"].items()
    next(objects["walk"])
    next(objects["values"])
    next(objects["seen"])
    objects["cursor"].first()
    objects["batch"].put(b"k", b"v")
    objects["pessimistic"].put(b"k", b"v")
    return objects


def by_close(db: runstone.Store) -> None:
    db.close()


def by_close_in_threads(db: runstone.Store) -> None:
    threads = [threading.Thread(target=db.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_with(db: runstone.Store) -> None:
    with db:
        pass


def by_an_exception(db: runstone.Store) -> None:
    with pytest.raises(ZeroDivisionError):
        with db:
            db[b"k"] = b"%d" % (1 // 0)


@pytest.mark.parametrize("end", [by_close, by_close_in_threads, by_with, by_an_exception])
def test_a_close_ends_all_objects(tmp_path: Path, end: Callable[[runstone.Store], None]) -> None:
    """A closed store once kept its directory, its manifest and each table that it had read, and the
    memory of its memtables, for as long as Python kept the object or one of its iterators."""
    db = fill(tmp_path / "db")
    objects = objects_of(db)
    assert len(left(tmp_path)) > 5
    end(db)
    assert nothing_left(tmp_path)
    db.close()
    calls: dict[str, Callable[[], object]] = {
        "store": lambda: db.get(b"k"),
        "metrics": db.metrics,
        "keyspace": lambda: objects["keyspace"].get(b"k"),
        "walk": lambda: next(objects["walk"]),
        "seek": lambda: objects["values"].seek(b"k"),
        "cursor": objects["cursor"].next,
        "key": lambda: objects["cursor"].key,
        "batch": objects["batch"].write,
        "transaction": lambda: objects["transaction"].get(b"k"),
        "commit": objects["pessimistic"].commit,
        "seen": lambda: next(objects["seen"]),
    }
    for name, call in calls.items():
        with pytest.raises(runstone.Closed):
            call()
            pytest.fail(name)
    for name in ("walk", "values", "cursor", "snapshot", "seen"):
        objects[name].close()
    assert bytes(objects["view"]) == b"v" * 100
    with runstone.open(tmp_path / "db") as db:
        with pytest.raises(runstone.Closed):
            db.get(b"k", snapshot=objects["snapshot"])
        assert len(db) == len(KEYS)
    assert nothing_left(tmp_path)


def test_the_last_object_ends_the_store(tmp_path: Path) -> None:
    """Iterators, snapshots and keyspaces keep the store open. It is closed with the last of
    them."""
    for name in ("keyspace", "walk", "cursor", "snapshot", "batch", "transaction", "seen", "none"):
        db: Optional[runstone.Store] = fill(tmp_path / "db")
        assert db is not None
        last = objects_of(db).get(name)
        db = None
        gc.collect()
        if last is not None:
            with pytest.raises(runstone.InUse):
                runstone.open(tmp_path / "db")
            if name in ("walk", "seen"):
                assert next(last)[0] == KEYS[1]
        last = None
        assert nothing_left(tmp_path), name


def test_cycles_and_tracebacks(tmp_path: Path) -> None:
    def cycle() -> None:
        kept: list[Any] = [fill(tmp_path / "db")]
        kept += [kept, objects_of(kept[0])]

    cycle()
    gc.collect()
    assert nothing_left(tmp_path)

    def fail() -> None:
        db = fill(tmp_path / "db")
        walk = db.items()
        raise KeyError(next(walk))

    with pytest.raises(KeyError) as caught:
        fail()
    assert left(tmp_path) != []
    del caught
    gc.collect()
    assert nothing_left(tmp_path)


def test_a_failed_open(tmp_path: Path) -> None:
    fill(tmp_path / "db").close()
    for options in ({"keyspace": {"policy": "nice"}}, {"on_event": 7}, {"memory": 5}):
        with pytest.raises((runstone.Error, TypeError)):
            runstone.open(tmp_path / "db", **options)
    (tmp_path / "db" / "CURRENT").write_text("no name of a manifest")
    with pytest.raises(runstone.Error):
        runstone.open(tmp_path / "db")
    assert nothing_left(tmp_path)


def test_a_close_while_others_read(tmp_path: Path) -> None:
    """If a thread uses an object when the store closes, the object is dropped when that use
    ends."""
    db = fill(tmp_path / "db")
    ready, ended = threading.Barrier(5), []

    def read() -> None:
        ready.wait()
        with pytest.raises(runstone.Closed):
            while True:
                for key, _ in db.items():
                    db.get(key)
        ended.append(True)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    db.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 4 and nothing_left(tmp_path)


def test_the_end_of_plyvel(tmp_path: Path) -> None:
    db = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    for key in KEYS:
        db.put(key, b"v" * 100)
    db._db.flush()
    part, snapshot, batch = db.prefixed_db(b"0"), db.snapshot(), db.write_batch()
    walks = [source.iterator() for source in (db, part, snapshot)]
    raw = db.raw_iterator()
    raw.seek_to_first()
    for walk in walks:
        next(walk)
    assert left(tmp_path) != []
    db.close()
    assert nothing_left(tmp_path) and db.closed
    calls: list[Callable[[], object]] = [walk.__next__ for walk in walks]
    calls += [raw.next, raw.key, raw.valid, lambda: batch.put(b"k", b"v"), batch.write]
    calls += [lambda: part.get(b"k"), lambda: snapshot.get(b"k"), lambda: list(db)]
    for call in calls:
        with pytest.raises(RuntimeError):
            call()
    db.close()
    snapshot.close()


def test_programs_that_end(tmp_path: Path) -> None:
    """When the interpreter ends, all open stores are closed before their threads could call a merge
    operator that no longer exists. A store freed before its iterators was once left open."""
    program = (
        "import runstone, sys\n"
        "db = runstone.open(sys.argv[1], merge_operators={'m': lambda k, b, o: o[-1]},\n"
        "                   keyspace={'merge_operator': 'm', 'write_buffer_bytes': '64K'})\n"
        "db[b'k'] = b'v'\n"
        "for at in range(20_000): db.merge(b'%d' % (at % 100), b'x')\n"
        "kept = [db.items(), db.snapshot(), db.keyspace('other')]\n"
        "del db\n"
        "import os\n"
        "from runstone import _close_all\n"
        "_close_all()\n"
        "fds = ['/proc/self/fd/' + name for name in os.listdir('/proc/self/fd')]\n"
        "paths = [os.readlink(fd) for fd in fds if os.path.exists(fd)]\n"
        "assert not [path for path in paths if path.startswith(sys.argv[1])]\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    subprocess.run(command, check=True, timeout=60)
    with runstone.open(tmp_path / "db", read_only=True) as db:
        assert db[b"k"] == b"v"


class App:
    """A program that has a store which calls it."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.events: list[str] = []
        self.db = runstone.open(
            path,
            on_event=self.on_event,
            merge_operators={"last": self.merge},
            compaction_filters={"keep": self.keep},
            keyspace={"merge_operator": "last", "compaction_filter": "keep",
                      "write_buffer_bytes": "64K"},
        )
        for number in range(5000):
            self.db.merge(b"%d" % (number % 100), b"%d" % number)
        self.more = more

    def on_event(self, event: runstone.Event) -> None:
        self.events.append(event.kind)

    def merge(self, key: bytes, base: Optional[bytes], operands: list[bytes]) -> bytes:
        return operands[-1]

    def keep(self, level: int, key: bytes, value: bytes) -> bool:
        return bool(self.events or True)


def test_a_store_that_calls_its_owner(tmp_path: Path) -> None:
    """Python's collector once did not see that the store held its functions. So a program whose
    methods were functions of its store was never collected, and the store stayed open."""
    for _ in range(5):
        app: Any = App(tmp_path / "db")
        watch = weakref.ref(app)
        app = None
        gc.collect()
        assert watch() is None and nothing_left(tmp_path)
    with runstone.open(tmp_path / "db", merge_operators={"last": lambda k, b, o: o[-1]}) as db:
        assert len(db) == 100 and db[b"7"] == b"4907"


def test_a_part_keeps_the_functions(tmp_path: Path) -> None:
    """An iterator or a keyspace that still exists needs the functions, and keeps them."""
    app: Any = App(tmp_path / "db")
    part, walk = app.db.keyspace("default"), iter(app.db.items())
    del app
    gc.collect()
    assert part[b"7"] == b"4907" and next(walk) == (b"0", b"4900")
    part.merge(b"7", b"new")
    part.compact()
    assert part[b"7"] == b"new"
    del part, walk
    for store in [one for one in gc.get_objects() if isinstance(one, runstone.Store)]:
        store.close()
    gc.collect()
    assert nothing_left(tmp_path)
