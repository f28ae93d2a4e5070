"""Databases that LevelDB and RocksDB wrote, imported and compared with what they show.

Each case makes a directory in a process of its own, which ends without closing it, so that logs
stay. Then it is imported, checked to be unchanged, and read by its own library beside the store.
"""

import hashlib
import multiprocessing
import os
import random
import shutil
import subprocess
import sys

import plyvel
from rocksdict import (
    BlockBasedIndexType, BlockBasedOptions, ChecksumType, DataBlockIndexType, DBCompactionStyle,
    DBCompressionType, Options, Rdict, SstFileWriter, WriteBatch,
)

LEVELDB, ROCKSDB = {}, {}


def leveldb(**settings):
    """Registers a case that fills a plyvel database."""
    def register(fill):
        LEVELDB[fill.__name__.replace("_", "-")] = (fill, settings)
        return fill
    return register


def key(number):
    return b"user/%08d" % number


def value(random_source, most=200):
    """A random value, of which half compresses."""
    length = random_source.randrange(most)
    return random_source.randbytes(length // 2) + b"x" * (length - length // 2)


def churn(db, count, rounds, most=200, seed=1):
    """Puts, replaces and deletes keys in random order."""
    source = random.Random(seed)
    for _ in range(rounds):
        for _ in range(count):
            name = key(source.randrange(count))
            if source.random() < 0.2:
                db.delete(name)
            else:
                db.put(name, value(source, most))


@leveldb()
def only_a_log(db):
    churn(db, 2000, 2)


@leveldb()
def binary_keys(db):
    source = random.Random(3)
    for length in list(range(0, 40)) * 20:
        db.put(source.randbytes(length), source.randbytes(length * 7))
    db.put(b"", b"the empty key")
    db.put(b"large", source.randbytes(3 << 20))


@leveldb(write_buffer_size=100_000)
def several_levels(db):
    churn(db, 60_000, 4)


@leveldb(write_buffer_size=100_000, compression=None, block_size=512, block_restart_interval=3)
def not_compressed(db):
    churn(db, 30_000, 3)


@leveldb(write_buffer_size=50_000, block_size=100_000)
def compacted_then_written(db):
    churn(db, 20_000, 3)
    db.compact_range()
    churn(db, 20_000, 1, seed=2)


@leveldb()
def batches(db):
    source = random.Random(5)
    for start in range(0, 20_000, 500):
        with db.write_batch() as batch:
            for number in range(start, start + 500):
                batch.put(key(number), value(source))
            batch.delete(key(source.randrange(start + 1)))


@leveldb(write_buffer_size=4 << 20)
def large(db):
    churn(db, 1_500_000, 1, most=400)
    churn(db, 300_000, 1, most=400, seed=9)


def rocksdb(table=None, **settings):
    """Registers a case that fills a rocksdict database. `table` sets block options."""
    def register(fill):
        ROCKSDB[fill.__name__.replace("_", "-")] = (fill, table, settings)
        return fill
    return register


def options(table=None, **settings):
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    for name, setting in settings.items():
        getattr(made, f"set_{name}")(*(setting if isinstance(setting, tuple) else (setting,)))
    blocks = BlockBasedOptions()
    for name, setting in (table or {}).items():
        getattr(blocks, f"set_{name}")(setting)
    made.set_block_based_table_factory(blocks)
    return made


class Puts:
    """A column family with the names of plyvel."""

    def __init__(self, family):
        self.family = family

    def put(self, name, content):
        self.family[name] = content

    def delete(self, name):
        self.family.delete(name)


@rocksdb()
def only_a_write_ahead_log(db):
    churn(Puts(db), 3000, 2)
    db.delete_range(key(100), key(200))
    db[key(150)] = b"after the range"
    batch = WriteBatch(raw_mode=True)
    batch.put(key(160), b"in a batch")
    batch.delete(key(161))
    batch.delete_range(key(300), key(400))
    db.write(batch)


@rocksdb(write_buffer_size=200_000)
def levels(db):
    churn(Puts(db), 60_000, 4)


def matrix():
    """A case for each compression, format version, checksum and index.

    The RocksDB in rocksdict 0.3.29 stores plain blocks when it is asked for zlib.
    """
    kinds = [getattr(DBCompressionType, name)() for name in
             ("none", "snappy", "zlib", "lz4", "lz4hc", "zstd")]
    sums = [getattr(ChecksumType, name)() for name in
            ("crc32c", "no_checksum", "xxhash", "xxhash64", "xxh3")]
    def fill(db):
        churn(Puts(db), 12_000, 3)
        db.flush()
        db.delete_range(key(4000), key(5000))
        churn(Puts(db), 12_000, 1, seed=4)
    for version in (2, 3, 4, 5, 6):
        for number, kind in enumerate(kinds):
            table = {
                "format_version": version,
                "checksum_type": sums[(number + version) % len(sums)],
                "block_size": 1500,
            }
            if number % 2:
                table["index_type"] = BlockBasedIndexType.two_level_index_search()
                table["metadata_block_size"] = 400
            if number % 3:
                table["index_block_restart_interval"] = 16
            if number % 3 == 1:
                table["data_block_index_type"] = DataBlockIndexType.binary_and_hash()
            name = f"version-{version}-compression-{number}"
            settings = {"compression_type": kind, "write_buffer_size": 150_000}
            ROCKSDB[name] = (fill, table, settings)


matrix()


@rocksdb(write_buffer_size=100_000, compression_type=DBCompressionType.zstd(),
         compression_options=(-14, 3, 0, 8192), zstd_max_train_bytes=100_000)
def zstd_dictionary(db):
    churn(Puts(db), 30_000, 3)
    db.compact_range(None, None)
    churn(Puts(db), 30_000, 1, seed=2)


@rocksdb(write_buffer_size=100_000, compression_type=DBCompressionType.lz4(),
         compression_options=(-14, 3, 0, 8192))
def lz4_dictionary(db):
    churn(Puts(db), 30_000, 3)
    db.compact_range(None, None)


@rocksdb(write_buffer_size=200_000)
def column_families(db):
    churn(Puts(db), 5000, 2)
    for seed, name in enumerate(("users", "orders", "gone", "only in the log", "empty")):
        family = db.create_column_family(name, options(write_buffer_size=100_000))
        if name != "empty":
            churn(Puts(family), 8000, 2, seed=seed)
        if name in ("users", "gone"):
            family.flush()
    db.drop_column_family("gone")


@rocksdb(write_buffer_size=60_000, target_file_size_base=60_000, max_bytes_for_level_base=300_000)
def range_deletes(db):
    source = random.Random(8)
    puts = Puts(db)
    for turn in range(40):
        churn(puts, 20_000, 0)
        for _ in range(1500):
            puts.put(key(source.randrange(20_000)), value(source))
        start = source.randrange(20_000)
        db.delete_range(key(start), key(start + source.randrange(3000)))
        if turn % 13 == 5:
            db.compact_range(key(5000), key(9000))


@rocksdb(write_buffer_size=100_000)
def ingested_files(db):
    churn(Puts(db), 10_000, 2)
    for turn in range(3):
        path = f"{db.path()}-ingest-{turn}.sst"
        writer = SstFileWriter(options())
        writer.open(path)
        for number in range(turn * 1000, turn * 1000 + 3000, 1 + turn):
            writer[key(number)] = b"ingested %d" % turn
        writer.finish()
        db.ingest_external_file([path])
    churn(Puts(db), 500, 1, seed=6)


@rocksdb(write_buffer_size=100_000, compaction_style=DBCompactionStyle.universal(),
         num_levels=5)
def universal(db):
    churn(Puts(db), 30_000, 4)


@rocksdb(write_buffer_size=100_000, recycle_log_file_num=4)
def recycled_logs(db):
    churn(Puts(db), 5000, 6)
    db.flush()
    churn(Puts(db), 200, 1, seed=7)


@rocksdb(write_buffer_size=100_000, atomic_flush=True)
def atomic_flush(db):
    churn(Puts(db), 5000, 2)
    other = db.create_column_family("other", options(write_buffer_size=100_000))
    for turn in range(10):
        churn(Puts(other), 2000, 1, seed=turn)
        churn(Puts(db), 1000, 1, seed=turn)


@rocksdb(write_buffer_size=8 << 20)
def large(db):
    churn(Puts(db), 1_700_000, 1, most=400)
    db.delete_range(key(500_000), key(520_000))
    churn(Puts(db), 300_000, 1, most=400, seed=9)


@rocksdb(write_buffer_size=100_000, compression_type=DBCompressionType.bz2())
def refused_bzip2(db):
    churn(Puts(db), 20_000, 2)
    db.flush()


@rocksdb(write_buffer_size=100_000, enable_blob_files=True, min_blob_size=10)
def refused_blob_files(db):
    churn(Puts(db), 5000, 2)
    db.flush()


@rocksdb()
def refused_entities(db):
    db.put_entity(b"key", [b"one", b"two"], [b"1", b"2"])


def make(kind, name, path):
    """Fills a directory and ends at once, as a crash would."""
    if kind == "leveldb":
        fill, settings = LEVELDB[name]
        fill(plyvel.DB(path, create_if_missing=True, **settings))
    else:
        fill, table, settings = ROCKSDB[name]
        fill(Rdict(path, options(table, **settings)))
    sys.stdout.flush()
    os._exit(0)


def digest(path):
    """A digest of every file of a directory."""
    found = hashlib.sha256()
    for name in sorted(os.listdir(path)):
        with open(os.path.join(path, name), "rb") as file:
            found.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def shown(kind, path):
    """Name and entries of each family, as the library shows them."""
    if kind == "leveldb":
        yield "default", iter(plyvel.DB(path))
        return
    names = Rdict.list_cf(path, Options(raw_mode=True))
    db = Rdict(path, Options(raw_mode=True), {name: Options(raw_mode=True) for name in names})
    for name in names:
        yield name, iter(db.get_column_family(name).items())


def stored(binary, store, keyspace):
    command = [binary, "scan", store, "--hex", "--keyspace", keyspace]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    for line in process.stdout:
        name, _, content = line.rstrip(b"\n").partition(b"\t")
        yield bytes.fromhex(name.decode()), bytes.fromhex(content.decode())
    if process.wait() != 0:
        raise SystemExit(f"{command}: exit {process.returncode}")


def run(binary, kind, name, work):
    path, store = os.path.join(work, f"{kind}-{name}"), os.path.join(work, "store")
    # Not with a fork, in which the libraries' threads would be missing.
    child = multiprocessing.get_context("spawn").Process(target=make, args=(kind, name, path))
    child.start()
    child.join()
    if child.exitcode != 0:
        raise SystemExit(f"{kind} {name}: could not be made")
    bytes_on_disk = sum(os.path.getsize(os.path.join(path, file)) for file in os.listdir(path))
    before = digest(path)
    command = [binary, "import", store, f"{kind}:{path}"]
    imported = subprocess.run(command, capture_output=True, text=True)
    if digest(path) != before:
        raise SystemExit(f"{kind} {name}: the import changed the directory")
    if name.startswith("refused"):
        if imported.returncode != 4:
            raise SystemExit(f"{kind} {name}: exit {imported.returncode}\n{imported.stderr}")
        said = [line for line in imported.stderr.splitlines() if line.startswith("error: ")]
        print(f"{kind} {name}: {said}")
    else:
        if imported.returncode != 0:
            raise SystemExit(f"{kind} {name}: exit {imported.returncode}\n{imported.stderr}")
        count = 0
        for family, entries in shown(kind, path):
            found = stored(binary, store, family)
            for pair in entries:
                pair = (bytes(pair[0]), bytes(pair[1]))
                other = next(found, None)
                if other != pair:
                    raise SystemExit(f"{kind} {name} {family}: {pair!r:.200} and {other!r:.200}")
                count += 1
            rest = next(found, None)
            if rest is not None:
                raise SystemExit(f"{kind} {name} {family}: {rest!r:.200} is too much")
        print(f"{kind} {name}: {count} entries are equal, {bytes_on_disk} bytes", flush=True)
    shutil.rmtree(path)
    shutil.rmtree(store, ignore_errors=True)


def main():
    binary, work, *wanted = sys.argv[1:]
    cases = [("leveldb", name) for name in LEVELDB] + [("rocksdb", name) for name in ROCKSDB]
    chosen = [(kind, name) for kind, name in cases
              if not wanted or any(word in f"{kind}-{name}" for word in wanted)]
    for kind, name in chosen:
        run(binary, kind, name, work)
    print(f"{len(chosen)} databases, as they should be")


if __name__ == "__main__":
    main()
