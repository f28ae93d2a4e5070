"""Tests misuse of the store from Python: clear errors, no crash, no leak."""

from __future__ import annotations

import ctypes
import gc
import mmap
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any, Callable

import pytest

import runstone


@pytest.mark.parametrize("wrong", ["text", 7, None, [b"k"], object()])
def test_wrong_types(tmp_path: Path, wrong: Any) -> None:
    with runstone.open(tmp_path / "db") as db:
        batch, transaction, walk = db.write_batch(), db.transaction(), db.keys()
        calls: list[Callable[[], object]] = [
            lambda: db[wrong],
            lambda: db.put(wrong, b"v"),
            lambda: db.put(b"k", wrong),
            lambda: db.delete(wrong),
            lambda: wrong in db,
            lambda: db.multi_get([b"k", wrong]),
            lambda: batch.put(b"k", wrong),
            lambda: transaction.get(wrong),
            lambda: walk.seek(wrong),
            lambda: db.merge(b"k", wrong),
        ]
        for call in calls:
            with pytest.raises(TypeError):
                call()
        if wrong is not None:
            with pytest.raises(TypeError):
                db.get(b"k", snapshot=wrong)
            with pytest.raises(TypeError):
                batch.put(b"k", b"v", keyspace=wrong)
        transaction.rollback()
        assert len(db) == 0 and len(batch) == 0


def test_a_buffer_that_is_gone(tmp_path: Path) -> None:
    """The message once said that a memoryview is not a buffer."""
    view = memoryview(b"k")
    view.release()
    with runstone.open(tmp_path / "db") as db:
        with pytest.raises(ValueError, match="released"):
            db[view] = b"v"


def test_the_length_of_a_batch_that_is_written(tmp_path: Path) -> None:
    """The length of a batch was once 0 while another thread wrote it."""
    with runstone.open(tmp_path / "db") as db:
        batch = db.write_batch()
        for number in range(10_000):
            batch.put(b"%d" % number, b"v" * 100)
        is_over = threading.Event()

        def write() -> None:
            while not is_over.is_set():
                batch.write(clear=False)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with pytest.raises(runstone.Busy):
                while True:
                    assert len(batch) == 10_000
        finally:
            is_over.set()
            writer.join()


def test_paths_and_names(tmp_path: Path) -> None:
    for path in (None, 7, object()):
        with pytest.raises(TypeError):
            runstone.open(path)  # type: ignore[arg-type]
    for path in (tmp_path / "a\0b", Path("/proc/none/db")):
        with pytest.raises((runstone.Error, ValueError)):
            runstone.open(path)
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(runstone.Error):
        runstone.open(tmp_path / "file")
    none: Any = 7
    with pytest.raises(TypeError, match="not callable"):
        runstone.open(tmp_path / "db", merge_operators={"none": none})
    with runstone.open(tmp_path / "db") as db:
        with pytest.raises(runstone.InvalidArgument):
            db.merge(b"k", b"v")


def test_huge_sizes(tmp_path: Path) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    pages = mmap.mmap(-1, 5 << 30, flags=flags)
    with runstone.open(tmp_path / "db") as db, pages, memoryview(pages) as huge:
        calls: list[Callable[[], object]] = [
            lambda: db.put(huge, b"v"),
            lambda: db.put(b"k", huge),
            lambda: db.put(b"k", huge[: 1 << 32]),
            lambda: db.get(huge),
            lambda: db.write_batch().put(b"k", huge),
            lambda: db.put(bytes(65_536), b"v"),
        ]
        for call in calls:
            with pytest.raises(runstone.InvalidArgument, match="bytes"):
                call()
        assert len(db) == 0


def test_a_fork_that_ends_as_programs_do(tmp_path: Path) -> None:
    """All inherited objects of a child are freed when it ends: nothing hangs, and the parent
    continues to write."""
    program = (
        "import os, runstone, sys\n"
        "db = runstone.open(sys.argv[1])\n"
        "db[b'k'] = b'v'\n"
        "walk, batch, transaction = iter(db.items()), db.write_batch(), db.transaction()\n"
        "transaction.put(b't', b'v'); batch.put(b'b', b'v')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for late in (lambda: db.get(b'k'), batch.write, transaction.commit, db.close):\n"
        "        try: late()\n"
        "        except runstone.OtherProcess: continue\n"
        "        os._exit(1)\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "transaction.commit()\n"
        "assert list(walk) == [(b'k', b'v')] and db[b't'] == b'v'\n"
        "db.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], check=True, timeout=60)


class _Usage(ctypes.Structure):
    """`struct mallinfo2`, whose sizes in use are `in_maps` and `in_arenas`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "a", "b", "c", "in_maps", "d", "e", "in_arenas", "f", "g")
    ]


def _native_bytes() -> int:
    """The bytes that malloc has allocated; 0 if it does not report them."""
    usage = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if usage is None:
        return 0
    usage.restype = _Usage
    now = usage()
    return int(now.in_arenas) + int(now.in_maps)


def test_what_is_left_open_goes(tmp_path: Path) -> None:
    """Makes stores, iterators, batches, transactions and snapshots, and closes or only forgets
    them."""

    def work(closes: bool) -> None:
        db = runstone.open(tmp_path / "db", merge_operators={"m": lambda k, b, o: b""})
        for at in range(20):
            db[b"%d" % at] = b"v" * 1000
            objects = (db.items(), db.cursor(), db.snapshot(), db.write_batch())
            next(objects[0])
            objects[1].first()
            objects[3].put(b"k", b"v" * 1000)
            transaction = db.transaction()
            transaction.put(b"k", b"v" * 1000)
            if closes:
                transaction.rollback()
        if closes:
            db.close()

    def grown(rounds: int) -> tuple[int, int]:
        gc.collect()
        before, native = tracemalloc.get_traced_memory()[0], _native_bytes()
        for at in range(rounds):
            work(closes=at % 2 == 0)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, _native_bytes() - native

    tracemalloc.start()
    grown(10)
    traced, native = grown(40)
    tracemalloc.stop()
    # The memory that malloc keeps for each thread grows for some rounds, by up to 60 kB. A kind of
    # object that is never freed would leave 800 objects.
    assert traced < 10_000 and native < 300_000
