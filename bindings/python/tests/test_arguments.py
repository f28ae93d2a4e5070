"""Tests wrong arguments everywhere: each raises an error that names it, and nothing is done."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import runstone
from runstone import plyvel

SIZE = ([1 << 70, -1, 1.5, "x", "5Q", True, []], "512M")
COUNT = ([-1, 1.5, math.nan, "4", "x", True, [], {}], 64)
FLAG = ([0, 1, "true", "", 1.5, []], True)
# Options, each with invalid values and a valid one.
OPTIONS: dict[str, tuple[list[Any], Any]] = {
    "create_if_missing": FLAG,
    "memory_budget_bytes": ([*SIZE[0], 5, 0], "512M"),
    "background_threads": ([*COUNT[0], 0], 2),
    "compaction_slices": ([*COUNT[0], 0], 2),
    "wal_segment_bytes": ([*SIZE[0], 0], "32M"),
    "max_wal_bytes": ([*SIZE[0], 0], "1G"),
    "wal_mode": ([0, "", "mapp", True, []], "write"),
    "flush_at_close": FLAG,
    "max_open_files": ([*COUNT[0], 0], 100),
    "io_uring": FLAG,
    "durability": ([0, "", "Sync", True, []], "sync"),
    "max_delayed_bytes_per_second": ([*SIZE[0], 0], "16M"),
    "idle_after_seconds": (COUNT[0], 60),
    "scrub_every_seconds": (COUNT[0], 604800),
    "scrub_bytes_per_second": (SIZE[0], "16M"),
    "follower_keep_bytes": (SIZE[0], "1G"),
    "follower_keep_seconds": (COUNT[0], 600),
    "keep_log_bytes": (SIZE[0], "64M"),
    "keep_log_seconds": (COUNT[0], 86400),
    "keyspace": ([0, "garnering", True, [], {"polcy": "x"}, {"policy": "x"}], {"policy": "tiering"}),
    "merge_operators": ([0, "x", [], {"m": 7}, {7: max}], {"m": max}),
    "compaction_filters": ([0, "x", [], {"m": None}, {None: max}], {"f": max}),
    "on_event": ([0, "x", [], {}], print),
    "read_only": (FLAG[0], False),
}
NEVER = [None, b"bytes", object()]
OPTIONAL = ("merge_operators", "compaction_filters", "on_event")
TYPOS = ["memory_budget", "readonly", "Durability", "keyspaces", "on_events", "a b", "x = 1\ny", ""]


def refused(path: Path, named: set[str], **options: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        runstone.open(path, **options).close()
        pytest.fail(f"{options} were taken")
    assert any(name in str(caught.value) for name in named), f"{options}: {caught.value}"
    assert not path.exists()


def test_each_option(tmp_path: Path) -> None:
    for name, (wrong, right) in OPTIONS.items():
        for value in wrong + [one for one in NEVER if one is not None or name not in OPTIONAL]:
            inner = set(value) if isinstance(value, dict) and name == "keyspace" else set()
            refused(tmp_path / "db", {name} | inner, **{name: value})
        runstone.open(tmp_path / "db", **{name: right}).close()
        runstone.destroy(tmp_path / "db")
        (tmp_path / "db").rmdir()
    for typo in TYPOS:
        for value in (None, 1, {}):
            refused(tmp_path / "db", {typo, repr(typo)}, **{typo: value})
    for path in (None, 7, 1.5, object()):
        with pytest.raises(TypeError, match="path"):
            runstone.open(path)  # type: ignore[arg-type]


def test_options_in_pairs(tmp_path: Path) -> None:
    """Two valid options are accepted together. If one of the two is invalid, the error names it."""
    for one, two in itertools.combinations(OPTIONS, 2):
        path = tmp_path / f"{one} {two}"
        (wrong_one, right_one), (wrong_two, right_two) = OPTIONS[one], OPTIONS[two]
        for first in (right_one, *wrong_one[:2]):
            for second in (right_two, *wrong_two[:2]):
                is_right = (first is right_one, second is right_two)
                options = {one: first, two: second}
                if all(is_right):
                    runstone.open(path, **options).close()
                    runstone.destroy(path)
                    path.rmdir()
                else:
                    named = {name for name, right in zip((one, two), is_right) if not right}
                    refused(path, named, **options)
        for typo in TYPOS[:2]:
            refused(path, {typo}, **{one: right_one, typo: 1})


def test_text_of_options(tmp_path: Path) -> None:
    """A text stays one value, even with quotes, newlines and control characters."""
    for text in ('a"b', "a\\b", "a\nb", "a\rb", "\0", "\x7f", "\x1b[0m", "ä€😀", "'''", "#"):
        toml = runstone.to_toml({"merge_operator": text})
        assert toml.count("\n") == 0
        with runstone.open(tmp_path / "db", merge_operators={text: lambda k, b, o: o[-1]}) as db:
            part = db.keyspace("part", toml)
            part.merge(b"k", b"v")
            assert part[b"k"] == b"v"
        runstone.destroy(tmp_path / "db")
    for name in ("a b", "a=1\nb", "", "ä", "[x]"):
        with pytest.raises(ValueError, match="is not an option"):
            runstone.to_toml({name: 1})
        with pytest.raises(ValueError, match="is not an option"):
            runstone.to_toml({"shape": {name: 1}})
    with pytest.raises(TypeError, match="shape.fanout"):
        runstone.to_toml({"shape": {"fanout": None}})
    for given in (None, 7, "policy", [("policy", 1)], {7: 1}):
        with pytest.raises(TypeError, match="option"):
            runstone.to_toml(given)  # type: ignore[arg-type]


def methods(db: runstone.Store, path: Path) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Each method with valid arguments, by name."""
    part, snapshot, batch = db.keyspace("part"), db.snapshot(), db.write_batch()
    transaction = db.transaction()
    key: dict[str, Any] = {"key": b"k"}
    bounds: dict[str, Any] = {"start": b"k", "stop": b"l"}
    yield db.get, {**key, "snapshot": snapshot}
    yield db.put, {**key, "value": b"v", "sync": True, "ttl": 60.0}
    yield db.delete, {**key, "sync": True}
    yield db.delete_range, {**bounds, "sync": True}
    yield db.merge, {**key, "operand": b"v", "sync": True}
    yield db.compare_and_swap, {**key, "expected": b"o", "new": b"v", "sync": True, "ttl": 60.0}
    yield db.pop_first, {"sync": True}
    yield db.pop_last, {"sync": True}
    yield db.drain, {**bounds, "most": 1, "sync": True}
    yield db.drain, {"prefix": b"k", "most": 1}
    for name in ("keys", "values", "items"):
        yield getattr(db, name), {**bounds, "reverse": True, "snapshot": snapshot}
    yield db.keys, {"prefix": b"k"}
    yield db.cursor, {**bounds, "snapshot": snapshot, "fill_cache": True}
    yield db.setdefault, {**key, "default": b"v"}
    yield db.estimate, bounds
    yield db.compact, bounds
    yield db.multi_get, {"keys": [b"k"]}
    yield db.update, {"entries": {b"k": b"v"}}
    yield db.keyspace, {"name": "part", "options": "", "create": True}
    yield db.drop_keyspace, {"name": "none"}
    yield db.write_batch, {"sync": True}
    yield db.transaction, {"serializable": False, "pessimistic": False, "sync": True}
    yield db.checkpoint, {"path": path, "copy": True}
    for writes in (batch, transaction):
        yield writes.put, {**key, "value": b"v", "keyspace": part}
        yield writes.delete, {**key, "keyspace": part}
        yield writes.merge, {**key, "operand": b"v", "keyspace": part}
        yield writes.delete_range, {**bounds, "keyspace": part}
    yield batch.append, {"other": batch}
    yield batch.write, {"clear": True}
    yield transaction.get, {**key, "keyspace": part}
    yield transaction.get_for_update, {**key, "keyspace": part}
    yield transaction.items, {**bounds, "reverse": False, "keyspace": part}
    for walk in (db.keys(), iter(db.keys()), db.cursor()):
        yield walk.seek, key
    yield runstone.destroy, {"path": path}
    yield runstone.get_view, {"keyspace": db, **key, "snapshot": snapshot}


def test_each_argument_of_each_method(tmp_path: Path) -> None:
    with runstone.open(tmp_path / "db") as db:
        calls = list(methods(db, tmp_path / "copy"))
        before = dict(db)
        for method, right in calls:
            for name in right:
                for wrong in (7, 1.5, "text", object(), [7], math.nan):
                    is_text = name in ("name", "path", "options") and wrong == "text"
                    is_number = (name == "ttl" and wrong in (7, 1.5)) or (
                        name == "most" and wrong == 7
                    )
                    if is_text or is_number:
                        continue
                    with pytest.raises((TypeError, ValueError), match=name):
                        method(**{**right, name: wrong})
                        pytest.fail(f"{method} took {wrong!r}")
            with pytest.raises(TypeError, match="typo"):
                method(**right, typo=1)
        for seconds in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="ttl"):
                db.put(b"k", b"v", ttl=seconds)
        assert dict(db) == before == {} and not (tmp_path / "copy").exists()


PLYVEL: dict[str, tuple[list[Any], list[Any]]] = {
    "create_if_missing": ([0, 1, "yes"], [True]),
    "error_if_exists": ([0, 1, "yes"], [True, False, None]),
    "paranoid_checks": ([0, 1, "yes"], [True, False, None]),
    "write_buffer_size": (["x", 1.5, b"x", []], [None, -1, 0, 1 << 16, 1 << 24, 1 << 40]),
    "max_open_files": (["x", 1.5, b"x", []], [None, -1, 0, 1000, 1 << 40]),
    "lru_cache_size": (["x", 1.5, b"x", []], [None, -1, 0, 1 << 20, 2 << 30]),
    "block_size": (["x", 1.5, b"x", []], [None, -1, 0, 4096, 1 << 40]),
    "block_restart_interval": (["x", 1.5, b"x", []], [None, -1, 0, 16, 1 << 40]),
    "max_file_size": (["x", 1.5, b"x", []], [None, -1, 0, 2 << 20, 1 << 40]),
    "compression": (["zlib", "", 7, b"none"], [None, "snappy", b"snappy"]),
    "bloom_filter_bits": (["x", 1.5, b"x", None], [-1, 0, 10, 1000]),
    "comparator": ([7, "x", max], [None]),
    "comparator_name": ([7, "x", b"name"], [None]),
}


def test_options_of_plyvel_in_pairs(tmp_path: Path) -> None:
    """As in LevelDB, a size is clamped to the valid range, and other values are refused."""
    count = itertools.count()

    def opens(times: int, **options: Any) -> None:
        path = tmp_path / str(next(count))
        options = {"create_if_missing": True, **options}
        for again in range(times):
            if again:
                options["error_if_exists"] = False
            with plyvel.DB(str(path), **options) as db:
                db.put(b"k%d" % again, b"v")
                assert len(list(db)) == 1 + again
        if times > 1:
            plyvel.repair_db(path)
            plyvel.destroy_db(path)
            assert not path.exists()

    for one, two in itertools.combinations(PLYVEL, 2):
        (wrong_one, right_one), (wrong_two, right_two) = PLYVEL[one], PLYVEL[two]
        for first, second in itertools.product(right_one[-3::2], right_two[-3::2]):
            opens(1, **{one: first, two: second})
        for first, second in ((wrong_one[0], right_two[0]), (right_one[0], wrong_two[0])):
            named = one if second is right_two[0] else two
            with pytest.raises((TypeError, ValueError), match=named):
                plyvel.DB(str(tmp_path / "db"), **{one: first, two: second})
        with pytest.raises(TypeError, match="typo"):
            plyvel.DB(str(tmp_path / "db"), typo=1, **{one: right_one[0]})
    for name, (wrong, right) in PLYVEL.items():
        for value in right:
            opens(2, **{name: value})
        for value in wrong:
            if value is not max:
                with pytest.raises((TypeError, ValueError), match=name):
                    plyvel.DB(str(tmp_path / "db"), **{name: value})
    with pytest.raises(plyvel.Error, match="order"):
        plyvel.DB(str(tmp_path / "db"), comparator=max, comparator_name=b"name")
    with pytest.raises(TypeError, match="name"):
        plyvel.DB(123)  # type: ignore[arg-type]
    assert not (tmp_path / "db").exists()


def test_arguments_of_plyvel(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True) as db:
        part, key = db.prefixed_db(b"p"), {"key": b"k"}
        flags = {"verify_checksums": False, "fill_cache": True}
        walks = {
            "reverse": False, "start": b"k", "stop": b"l", "include_start": True,
            "include_stop": False, "include_key": True, "include_value": True, **flags,
        }
        batch = db.write_batch()
        calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
            (source.iterator, walks) for source in (db, part, db.snapshot(), part.snapshot())
        ]
        for source in (db, part):
            calls += [
                (source.get, {**key, **flags}),
                (source.put, {**key, "value": b"v", "sync": True}),
                (source.delete, {**key, "sync": True}),
                (source.write_batch, {"transaction": False, "sync": True}),
                (source.raw_iterator, flags),
                (source.iterator, {"prefix": b"k"}),
                (source.prefixed_db, {"prefix": b"k"}),
            ]
        calls += [
            (batch.put, {**key, "value": b"v"}), (batch.delete, key),
            (batch.append, {"source": batch}), (db.get_property, {"name": b"none"}),
            (db.compact_range, {"start": b"a", "stop": b"b"}),
            (db.approximate_size, {"start": b"a", "stop": b"b"}),
            (db.iterator().seek, {"target": b"k"}), (db.raw_iterator().seek, {"target": b"k"}),
        ]
        for call, right in calls:
            for name in right:
                for wrong in (7, 1.5, "text", object(), [7]):
                    with pytest.raises(TypeError, match=name):
                        call(**{**right, name: wrong})
                        pytest.fail(f"{call} took {name}={wrong!r}")
            with pytest.raises(TypeError, match="typo"):
                call(**right, typo=1)
        assert list(db) == []
