"""Tests that many stores share a memory budget, threads and a limit of open files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import runstone


def threads() -> int:
    """The number of threads that Python did not start."""
    return len(os.listdir("/proc/self/task")) - threading.active_count()


def test_stores_share_threads_and_end_with_the_last(tmp_path: Path) -> None:
    before = threads()
    with runstone.Resources(memory_budget_bytes="32M", background_threads=2) as shared:
        stores = [runstone.open(tmp_path / str(n), resources=shared) for n in range(50)]
        assert (shared.stores, threads()) == (50, before + 2)
    for number, db in enumerate(stores):
        db[b"k"] = b"%d" % number
    for number, db in enumerate(stores):
        db.flush()
        assert db[b"k"] == b"%d" % number
        db.close()
    assert threads() == before
    with pytest.raises(runstone.Closed):
        runstone.open(tmp_path / "more", resources=shared)


def test_a_merge_operator_may_run_while_resources_end(tmp_path: Path) -> None:
    def join(key: bytes, value: bytes | None, operands: list[bytes]) -> bytes:
        return b"".join([value or b"", *operands])

    for number in range(5):
        shared = runstone.Resources(memory_budget_bytes="8M", background_threads=2)
        db = runstone.open(
            tmp_path / str(number),
            resources=shared,
            merge_operators={"join": join},
            keyspace={"merge_operator": "join", "write_buffer_bytes": "64K"},
        )
        del shared
        for key in range(3000):
            db.merge(b"%d" % (key % 50), b"x" * 20)
        db.close()


def test_followers_share_too(tmp_path: Path) -> None:
    before = threads()
    with runstone.open(tmp_path / "db", background_threads=1) as db:
        db[b"key"] = b"1"
        with runstone.Resources(memory_budget_bytes="32M", background_threads=2) as shared:
            followers = [runstone.follow(tmp_path / "db", resources=shared) for _ in range(10)]
            # A store that is opened for reading follows its writer.
            followers.append(runstone.open(tmp_path / "db", resources=shared, read_only=True))
            assert (shared.stores, threads()) == (11, before + 3)
            db[b"key"] = b"2"
            for follower in followers:
                assert follower[b"key"] == b"1" and follower.refresh()
                assert follower[b"key"] == b"2"
                follower.close()
            assert shared.stores == 0
            with pytest.raises(runstone.InvalidArgument, match="memory_budget_bytes"):
                runstone.follow(tmp_path / "db", resources=shared, memory_budget_bytes="8M")
            with pytest.raises(TypeError, match="resources"):
                runstone.follow(tmp_path / "db", resources="many")  # type: ignore[arg-type]
            with runstone.follow(tmp_path / "db", resources=shared) as last:
                pass
            last.close()
        with pytest.raises(runstone.Closed):
            runstone.follow(tmp_path / "db", resources=shared)
    assert threads() == before


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(runstone.InvalidArgument, match="background_threads"):
        runstone.Resources(threads=2)
    with pytest.raises(runstone.InvalidArgument, match="memory_budget_bytes"):
        runstone.Resources(memory_budget_bytes=1)
    shared = runstone.Resources()
    with pytest.raises(runstone.InvalidArgument, match="max_open_files"):
        runstone.open(tmp_path / "a", resources=shared, max_open_files=50)
    with pytest.raises(TypeError, match="resources"):
        runstone.open(tmp_path / "a", resources="many")  # type: ignore[arg-type]
