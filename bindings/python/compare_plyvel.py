"""Runs programs written for plyvel alternately on plyvel and on runstone.plyvel. Prints the
processor time of each, the best of some rounds, and the ratio of plyvel's to Runstone's.

python compare_plyvel.py [--keys N] [--rounds N] [--compacted] [NAME ..]
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from typing import Any, Callable, Iterable

import plyvel

from runstone import plyvel as own


def spend(entries: Iterable[Any], most: int = 1 << 60) -> None:
    for number, _ in enumerate(entries, 1):
        if number == most:
            break


def raw(db: Any, is_upward: bool) -> None:
    walk = db.raw_iterator()
    walk.seek_to_first() if is_upward else walk.seek_to_last()
    move = walk.next if is_upward else walk.prev
    while walk.valid():
        walk.key()
        walk.value()
        move()


def back(db: Any) -> None:
    walk = db.iterator()
    walk.seek_to_stop()
    try:
        while True:
            walk.prev()
    except StopIteration:
        pass


def turn(db: Any, keys: list[bytes]) -> None:
    walk = db.iterator(start=keys[0])
    for _ in keys:
        next(walk)
        next(walk)
        walk.prev()


def seek(db: Any, keys: list[bytes]) -> None:
    walk = db.iterator()
    for key in keys:
        walk.seek(key)
        next(walk)


def works(keys: list[bytes], value: bytes) -> dict[str, Callable[[Any], object]]:
    some = keys[: len(keys) // 64]
    middle = sorted(keys)[len(keys) // 4 : len(keys) // 4 + 1]
    return {
        "all": spend,
        "reverse": lambda db: spend(db.iterator(reverse=True)),
        "keys": lambda db: spend(db.iterator(include_value=False)),
        "values": lambda db: spend(db.iterator(include_key=False)),
        "nothing": lambda db: spend(db.iterator(include_key=False, include_value=False)),
        "back": back,
        "raw": lambda db: raw(db, True),
        "raw-back": lambda db: raw(db, False),
        "scan-100": lambda db: [spend(db.iterator(start=key), 100) for key in some],
        "scan-10": lambda db: [spend(db.iterator(start=key), 10) for key in some],
        "prefix": lambda db: [spend(db.prefixed_db(b"\x07")) for _ in range(40)],
        "seek": lambda db: seek(db, some),
        "turn": lambda db: turn(db, middle * 20_000),
        "get": lambda db: [db.get(key) for key in keys],
        "put": lambda db: [db.put(key, value) for key in some],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compacted", action="store_true")
    given = parser.parse_args()
    source = random.Random(42)
    keys = [source.randbytes(16) for _ in range(given.keys)]
    value = source.randbytes(50) + bytes(50)
    path = tempfile.mkdtemp()
    dbs: list[Any] = []
    for module in (plyvel, own):
        db = module.DB(f"{path}/{len(dbs)}", create_if_missing=True, bloom_filter_bits=10,
                       write_buffer_size=64 << 20, lru_cache_size=512 << 20)
        with db.write_batch() as batch:
            for key in keys:
                batch.put(key, value)
        if given.compacted:
            db.compact_range()
        dbs.append(db)
    for name, work in works(keys, value).items():
        if given.names and name not in given.names:
            continue
        best = [float("inf")] * 2
        for _ in range(given.rounds):
            for at, db in enumerate(dbs):
                start = time.process_time()
                work(db)
                best[at] = min(best[at], time.process_time() - start)
        theirs, ours = best
        print(f"{name:10} plyvel {theirs * 1e3:9.2f} ms   runstone {ours * 1e3:9.2f} ms   "
              f"{theirs / ours:5.2f}", flush=True)
    for db in dbs:
        db.close()
    shutil.rmtree(path)


if __name__ == "__main__":
    main()
