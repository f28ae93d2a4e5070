"""Tests that signals, and exceptions such as KeyboardInterrupt that a function of the store raises,
reach the whole program."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any, Callable, Optional, Type

import pytest

import runstone

ENTRIES = 300_000


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_merge_operator_that_is_interrupted(tmp_path: Path, kind: Type[BaseException]) -> None:
    """Python raises a KeyboardInterrupt in any function that the main thread runs. In a merge
    operator, it once became a MergeFailed, whose message advised to delete the key."""
    raised: list[Optional[BaseException]] = [None]

    def join(key: bytes, base: Optional[bytes], operands: list[bytes]) -> bytes:
        error, raised[0] = raised[0], None
        if error is not None:
            raise error
        return b"".join(operands)

    options = {"merge_operator": "join"}
    with runstone.open(tmp_path / "db", merge_operators={"join": join}, keyspace=options) as db:
        db.merge(b"k", b"1")
        transaction, cursor = db.transaction(), db.cursor()
        calls: list[Callable[[], object]] = [
            lambda: db[b"k"],
            lambda: db.multi_get([b"k"]),
            lambda: list(db.items()),
            lambda: transaction.get(b"k"),
            cursor.first,
        ]
        for call in calls:
            raised[0] = kind()
            with pytest.raises(kind):
                call()
            # The interrupt leaves no trace.
            assert db[b"k"] == b"1"
            raised[0] = ValueError("not now")
            with pytest.raises(runstone.MergeFailed, match="not now"):
                call()
            assert db[b"k"] == b"1"
        transaction.rollback()


def test_the_threads_of_a_store_are_nobodys_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def on_event(event: runstone.Event) -> None:
        raise SystemExit(event.kind)

    with runstone.open(tmp_path / "db", on_event=on_event, background_threads=1) as db:
        db[b"k"] = b"v"
        db.flush()
        db.wait_idle()
        assert db[b"k"] == b"v"
    assert told and all(one.exc_type is SystemExit for one in told)


def test_signals_during_a_long_call(tmp_path: Path) -> None:
    """Calls that read everything once checked for signals only at their end, so they could not be
    interrupted."""
    with runstone.open(tmp_path / "db") as db:
        for start in range(0, ENTRIES, 10_000):
            db.update((b"%07d" % number, b"v") for number in range(start, start + 10_000))
        db.compact()
        same = db.keyspace("same")
        same.update(db)
        calls: list[Callable[[], object]] = [
            lambda: len(db),
            lambda: len(db.items()),
            lambda: b"w" in db.values(),
            lambda: db == same,
        ]
        heard = [0]

        def hear(*_: object) -> None:
            heard[0] += 1

        before = signal.signal(signal.SIGALRM, hear)
        try:
            for call in calls:
                heard[0] = 0
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
                call()
                signal.setitimer(signal.ITIMER_REAL, 0)
                # One signal is handled at the end in any case.
                assert heard[0] > 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
