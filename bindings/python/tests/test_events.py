"""Tests the events that a listener receives, and the warning without a listener."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any, List

import pytest

import runstone

ENTRIES = 2000


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A store that stopped with unsynced writes. A bit is flipped near the start of its log."""
    with runstone.open(tmp_path / "open", wal_segment_bytes="64K") as db:
        for number in range(ENTRIES):
            db.put(b"key%05d" % number, b"v" * 100)
        # A job that renames a file would let the copy miss it.
        db.wait_idle()
        shutil.copytree(tmp_path / "open", tmp_path / "copy")
    log = min((tmp_path / "copy").glob("*.wal"))
    damaged = bytearray(log.read_bytes())
    damaged[10_000] ^= 1
    log.write_bytes(damaged)
    return tmp_path / "copy"


def test_a_lost_end_of_the_log_is_an_event(torn: Path) -> None:
    heard: List[runstone.Event] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with runstone.open(torn, on_event=heard.append) as db:
            [lost] = [event for event in heard if event.kind == "log_end_lost"]
            # The damaged record itself does not count as lost.
            assert lost.fields["records"] == ENTRIES - 1 - len(db)
    kept = lost.fields["kept"]
    assert isinstance(kept, list) and all((torn / name).exists() for name in kept)
    assert lost.warning and "records of the log" in lost.message and "lost" in repr(lost)


def test_without_a_listener_it_is_a_warning(torn: Path) -> None:
    with pytest.warns(RuntimeWarning, match="copy: .* records of the log") as told:
        db = runstone.open(torn)
    assert [warning.filename for warning in told] == [__file__]
    db.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runstone.open(torn).close()


def test_a_warning_that_is_an_error_leaves_the_store_closed(torn: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            runstone.open(torn)
        runstone.open(torn).close()


def test_a_listener_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: List[str] = []
    raised: List[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: raised.append(what.exc_value))

    def on_event(event: runstone.Event) -> None:
        heard.append(event.kind)
        assert db[b"k"] == b"v"
        with pytest.raises(runstone.InsideCallback):
            db.flush()
        raise ValueError(event.kind)

    with runstone.open(tmp_path / "db", on_event=on_event) as db:
        db[b"k"] = b"v"
        db.flush()
        db[b"l"] = b"w"
        db.flush()
        db.compact()
        assert len(db) == 2
    assert heard.count("flushed") == 2 and "compacted" in heard
    assert [str(error) for error in raised] == heard
    with pytest.raises(TypeError):
        runstone.open(tmp_path / "db", on_event=7)  # type: ignore[arg-type]
