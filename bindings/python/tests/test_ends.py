"""Tests how objects end: with their last reference, in a merge operator, and in a fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPEN = """
import faulthandler, gc, os, runstone, select, signal, sys, threading, time
def join(key, base, operands):
    return b"".join(([] if base is None else [base]) + operands)[-100:]
def open_store(merge=join):
    # Another thread may end the store a moment later.
    for late in range(400):
        try:
            return runstone.open(
                sys.argv[1],
                merge_operators={"join": merge},
                keyspace={"merge_operator": "join", "write_buffer_bytes": "64K"},
            )
        except runstone.InUse:
            time.sleep(0.05)
    sys.exit("the store is still open")
def fill(db, count=20_000):
    for at in range(count):
        db.merge(b"%d" % (at % 100), b"x")
"""

# Holders of the last reference to a store whose threads wait for Python.
LAST = {
    "store": "last = db",
    "keyspace": "last = db.keyspace('default')",
    "batch": "last = db.write_batch()",
    "transaction": "last = (db, db.transaction(pessimistic=True)); last[1].put(b'0', b'v')",
    "walk": "last = (db, db.items(), db.cursor(), db.snapshot()); next(last[1])",
    "cycle": "last = [db]; last.append(last)",
    "thread": "last = threading.Thread(target=lambda kept: time.sleep(0.01), args=(db,))\n"
    "    last.start()",
}


def run(program: str, path: Path) -> None:
    """A program that hangs is killed. If it fails, the test reports the end of its output."""
    command = [sys.executable, "-W", "ignore", "-c", OPEN + program, str(path)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120)
    if ended.returncode:
        pytest.fail(f"ended with {ended.returncode}: {ended.stderr[-3000:]}", pytrace=False)


@pytest.mark.parametrize("last", LAST)
def test_the_last_reference_closes_the_store(tmp_path: Path, last: str) -> None:
    """A program forgot to close a store with a merge operator in Python. Dropping its last object
    waited for a compaction while it held Python's lock, and the compaction waited for that lock to
    run the operator. The lock is now released while any object is dropped."""
    program = f"""
for round in range(10):
    db = open_store()
    fill(db)
    {LAST[last]}
    del db
    last = None
    gc.collect()
db = open_store()
assert len(db) == 100
db.close()
"""
    run(program, tmp_path / "db")


def test_a_merge_operator_may_drop_its_store(tmp_path: Path) -> None:
    """The last reference is dropped in the thread that runs the operator, for example by garbage
    collection. The job once waited for its own end. Another thread ends the store now."""
    program = """
kept, lost = [], threading.Event()
def merge(key, base, operands):
    if kept and threading.current_thread() is not threading.main_thread():
        kept.clear()
        lost.set()
    return join(key, base, operands)
for round in range(100):
    db = open_store(merge)
    fill(db)
    kept.append(db)
    del db
    lost.wait(0.1)
    kept.clear()
    if lost.is_set():
        break
else:
    sys.exit("no compaction ran the operator")
open_store().close()
"""
    run(program, tmp_path / "db")


ITERATORS = {
    "items": "iter(app.db.items())",
    "plyvel": "app.plyvel.iterator()",
}


@pytest.mark.parametrize("made", ITERATORS)
def test_the_collector_may_close_a_store_that_is_iterated(tmp_path: Path, made: str) -> None:
    """A step of an iterator once made a tuple while it held its lock. Making one may start Python's
    collector, and a `__del__` that closed the store waited for that lock, in the same thread."""
    program = f"""
from runstone import plyvel
class App:
    def __init__(self):
        self.plyvel = plyvel.DB(sys.argv[1], create_if_missing=True)
        self.db, self.own = self.plyvel._db, self
    def __del__(self):
        self.db.close()
app = App()
app.db.update((b"%06d" % number, b"v") for number in range(20_000))
walk = {ITERATORS[made]}
del app
found = 0
entries = []
try:
    for entry in walk:
        entries.append(entry)
        found += 1
    gc.collect()
    next(walk)
except (runstone.Closed, StopIteration):
    assert 0 < found <= 20_000
else:
    sys.exit("the collector did not close it")
"""
    run(program, tmp_path / "db")


def test_a_reader_of_changes_in_its_merge_operator(tmp_path: Path) -> None:
    """The reader computed the state of a key with a merge operator, and the operator called the
    reader. It once waited for itself."""
    program = """
from runstone import Changes
def merge(key, base, operands):
    for call in (lambda: changes.position, changes.next, changes.close):
        try:
            call()
        except runstone.Busy:
            refused.append(key)
    return b"".join(operands)
join = {"join": lambda key, base, operands: b"".join(operands)}
refused = []
options = {"merge_operator": "join"}
with runstone.open(sys.argv[1], merge_operators=join, keyspace=options) as db:
    db[b"old"] = b"1"
    with Changes(db) as changes:
        list(changes)
        after = changes.position
    for _ in range(3):
        db.merge(b"k", b"x")
        db.flush()
with runstone.open(sys.argv[1], merge_operators=join) as db:
    changes = Changes(db, after=after, on_gap="state", merge_operators={"join": merge})
    values = [write.value for change in changes for write in change]
    assert values == [b"xxx"] and len(refused) % 3 == 0 and refused, (values, refused)
    changes.close()
"""
    run(program, tmp_path / "db")


def test_forks_while_threads_are_busy(tmp_path: Path) -> None:
    """A fork inherits locks that other threads held, without those threads. Calls in the fork once
    hung, and so did the end of each inherited object. Other calls changed files that the parent had
    open. All calls are refused now, and inherited objects are only forgotten."""
    program = """
db = open_store()
db.update((b"k%04d" % at, b"v" * 100) for at in range(1000))
shared = (db.items(), db.cursor(), db.write_batch(), db.transaction(), db.snapshot())
is_over = threading.Event()

def busy(number):
    while not is_over.is_set():
        fill(db, 20)
        with db.snapshot() as snapshot, db.cursor(snapshot=snapshot) as cursor:
            cursor.last()
            db.get(b"k0001", snapshot=snapshot)
        with db.transaction(pessimistic=True) as transaction:
            transaction.put(b"own %d" % number, b"v")
        list(db.keys(prefix=b"k00"))
        for work in (
            lambda: shared[0].seek(b"k"),
            lambda: shared[1].first(),
            lambda: shared[2].put(b"k", b"v"),
            lambda: shared[2].clear(),
            lambda: shared[3].get(b"k0001"),
        ):
            try:
                work()
            except runstone.Busy:
                pass

def child(number, objects):
    walk, cursor, batch, transaction, snapshot, part, view = objects
    for call in (
        lambda: db[b"k"], lambda: db.put(b"k", b"v", ttl=1.0), lambda: db.snapshot(),
        lambda: db.get(b"k", snapshot=snapshot), lambda: db.items(), lambda: db.keyspaces(),
        lambda: db.keyspace("more"), lambda: db.write_batch(), lambda: db.transaction(),
        lambda: db.metrics(), lambda: db.flush(), lambda: db.sync(), lambda: len(db),
        lambda: next(walk), lambda: walk.seek(b"k"), lambda: cursor.first(), lambda: cursor.key,
        lambda: batch.put(b"k", b"v"), lambda: batch.write(), lambda: transaction.get(b"k"),
        lambda: transaction.commit(), lambda: transaction.rollback(), lambda: part.get(b"k"),
        lambda: part.update({b"k": b"v"}), lambda: shared[0].seek(b"k"),
        lambda: shared[1].first(), lambda: shared[3].get(b"k"), lambda: db.close(),
        lambda: transaction.__exit__(None, None, None),
    ):
        try:
            call()
        except runstone.OtherProcess:
            continue
        print("a call was not refused", call.__code__.co_firstlineno, file=sys.stderr)
        os._exit(1)
    assert db.name == part.name == "default" and bytes(view) == b"v" * 5000
    for closing in (walk, cursor, snapshot, shared[4]):
        closing.close()

threads = [threading.Thread(target=busy, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
db[b"large"] = b"v" * 5000
lost = 0
for number in range(40):
    objects = (db.items(), db.cursor(), db.write_batch(), db.transaction(), db.snapshot(),
               db.keyspace("default"), runstone.get_view(db, b"large"))
    next(objects[0])
    objects[2].put(b"batch", b"%d" % number)
    objects[3].put(b"transaction", b"%d" % number)
    heard, tells = os.pipe()
    forked = os.fork()
    if forked == 0:
        # A child that hangs says where, and dies.
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(60)
        os.write(tells, b"x")
        child(number, objects)
        # The objects end by their finalizers, or as the program ends.
        objects = shared = None
        if number % 2:
            del db
        gc.collect()
        sys.exit(0)
    # Python's own fork hangs, rarely, if a thread of the store was about to enter Python then.
    if not select.select([heard], [], [], 20)[0]:
        print("child", number, "did not begin", file=sys.stderr, flush=True)
        os.kill(forked, signal.SIGKILL)
        lost += 1
    died = os.waitpid(forked, 0)[1]
    os.close(heard)
    os.close(tells)
    if lost > 2 or died not in (0, signal.SIGKILL):
        print("child", number, "ended with", died, "lost", lost, file=sys.stderr, flush=True)
        os._exit(1)
    objects[2].write()
    objects[3].commit()
    assert db[b"batch"] == db[b"transaction"] == b"%d" % number
    assert objects[1].first() and next(objects[0])
    assert db.get(b"k0001", snapshot=objects[4]) == b"v" * 100
is_over.set()
for thread in threads:
    thread.join()
db.close()
"""
    run(program, tmp_path / "db")
