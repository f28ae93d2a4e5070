"""Compares Runstone, plyvel, rocksdict and sqlite3, alternately in one run: put, get, batch, scan
of 100.

python compare.py [--keys N] [--rounds N]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from typing import Any, Callable, Iterable


class Runstone:
    def __init__(self, path: str) -> None:
        import runstone

        self.db = runstone.open(path)
        self.put, self.get = self.db.put, self.db.get

    def batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        with self.db.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)

    def scan(self, start: bytes) -> Iterable[Any]:
        return self.db.items(start)

    def close(self) -> None:
        self.db.close()


class Plyvel:
    def __init__(self, path: str) -> None:
        import plyvel

        self.db = plyvel.DB(path, create_if_missing=True, bloom_filter_bits=10,
                            write_buffer_size=64 << 20, lru_cache_size=512 << 20)
        self.put, self.get = self.db.put, self.db.get

    def batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        with self.db.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)

    def scan(self, start: bytes) -> Iterable[Any]:
        return self.db.iterator(start=start)

    def close(self) -> None:
        self.db.close()


class Rocksdict:
    def __init__(self, path: str) -> None:
        import rocksdict

        self.batch_type = rocksdict.WriteBatch
        self.db = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
        self.put, self.get = self.db.put, self.db.get

    def batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        batch = self.batch_type(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
        self.db.write(batch)

    def scan(self, start: bytes) -> Iterable[Any]:
        return self.db.items(from_key=start)

    def close(self) -> None:
        self.db.close()


class Sqlite:
    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = off")
        self.db.execute("pragma cache_size = -524288")
        self.db.execute("create table t (k blob primary key, v blob) without rowid")

    def put(self, key: bytes, value: bytes) -> None:
        self.db.execute("insert or replace into t values (?, ?)", (key, value))

    def get(self, key: bytes) -> Any:
        return self.db.execute("select v from t where k = ?", (key,)).fetchone()

    def batch(self, entries: list[tuple[bytes, bytes]]) -> None:
        self.db.execute("begin")
        self.db.executemany("insert or replace into t values (?, ?)", entries)
        self.db.execute("commit")

    def scan(self, start: bytes) -> Iterable[Any]:
        return self.db.execute("select k, v from t where k >= ? order by k limit 100", (start,))

    def close(self) -> None:
        self.db.close()


STORES = {"runstone": Runstone, "plyvel": Plyvel, "rocksdict": Rocksdict, "sqlite3": Sqlite}
WORKS = ["put", "get", "scan of 100", "batch"]


def timed(count: int, work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def measure(store: Any, keys: list[bytes], value: bytes) -> list[float]:
    def puts() -> None:
        put = store.put
        for key in keys:
            put(key, value)

    def gets() -> None:
        get = store.get
        for key in shuffled:
            assert get(key) is not None

    def scans() -> None:
        for key in shuffled[:scan_count]:
            for number, _ in enumerate(store.scan(key)):
                if number == 99:
                    break

    def batches() -> None:
        for at in range(0, len(keys), 1000):
            store.batch([(b"x" + key, value) for key in keys[at : at + 1000]])

    shuffled = random.Random(7).sample(keys, len(keys))
    scan_count = len(keys) // 50
    return [timed(len(keys), puts), timed(len(keys), gets), timed(scan_count, scans),
            timed(len(keys), batches)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    source = random.Random(42)
    keys = [source.randbytes(16) for _ in range(given.keys)]
    value = source.randbytes(50) + bytes(50)
    results: dict[str, list[list[float]]] = {name: [] for name in STORES}
    for _ in range(given.rounds):
        for name, make in STORES.items():
            path = tempfile.mkdtemp()
            store = make(path + "/db")
            results[name].append(measure(store, keys, value))
            store.close()
            shutil.rmtree(path)
    medians = {name: [statistics.median(column) for column in zip(*rounds)]
               for name, rounds in results.items()}
    print(f"{'a second':12}" + "".join(f"{work:>14}" for work in WORKS))
    for name, row in medians.items():
        print(f"{name:12}" + "".join(f"{figure:14,.0f}" for figure in row))
    best = [max(medians[name][at] for name in STORES if name != "runstone")
            for at in range(len(WORKS))]
    ratios = [own / other for own, other in zip(medians["runstone"], best)]
    print(f"{'to the best':12}" + "".join(f"{ratio:14.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
