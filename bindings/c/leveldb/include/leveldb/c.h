/* LevelDB's C interface over Runstone. Programs may also use the header of LevelDB 1.23. */

#ifndef LEVELDB_C_H
#define LEVELDB_C_H

#include <stddef.h>
#include <stdint.h>

// No compression. For leveldb_options_set_compression().
#define leveldb_no_compression 0

// A fast compression, which is LZ4 here. For leveldb_options_set_compression().
#define leveldb_snappy_compression 1

// The size of a cache.
typedef struct leveldb_cache_t leveldb_cache_t;

// A key order. Keys are accepted only if it orders them as their bytes do.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// The operating system.
typedef struct leveldb_env_t leveldb_env_t;

// How filters are made. Filters are always those of this library. It uses only the bits per key of
// a Bloom filter policy.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// A position in a database, which moves.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// A logger. The interface has no way to make one, so it is always null.
typedef struct leveldb_logger_t leveldb_logger_t;

// Options of a database.
typedef struct leveldb_options_t leveldb_options_t;

// How to read.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// A view that later writes do not change.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// An open database.
typedef struct leveldb_t leveldb_t;

// Writes that happen together or not at all.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// How to write.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an empty batch.
leveldb_writebatch_t *leveldb_writebatch_create(void);

// Frees a batch.
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

// Removes all writes of a batch.
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

// Adds a put.
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

// Adds a delete.
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

// Calls a function for each write, in order.
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void*, const char*, size_t, const char*, size_t),
                                void (*deleted)(void*, const char*, size_t));

// Appends the writes of another batch to those of this one.
void leveldb_writebatch_append(leveldb_writebatch_t *destination,
                               const leveldb_writebatch_t *source);

// Opens a database. Returns null and an error if that fails.
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

// Closes a database. Open iterators and snapshots of it fail from then on.
void leveldb_close(leveldb_t *db);

// Stores a value.
void leveldb_put(leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

// Removes a key. Removing an absent key is not an error.
void leveldb_delete(leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

// Applies all writes of a batch, or none. The batch keeps them.
void leveldb_write(leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   leveldb_writebatch_t *batch,
                   char **errptr);

// Looks up a key. Returns a copy that the caller frees, or null if the key is absent.
char *leveldb_get(leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

// Takes a snapshot.
const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);

// Releases a snapshot.
void leveldb_release_snapshot(leveldb_t *_db, const leveldb_snapshot_t *snapshot);

// A property, as a string that the caller frees; null if the property is not known.
char *leveldb_property_value(leveldb_t *db, const char *propname);

// The approximate number of bytes of each range, excluding its limit. 0 if the size is not known.
void leveldb_approximate_sizes(leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

// Compacts a range. A null key leaves its end of the range open.
void leveldb_compact_range(leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

// Removes a database and its files. Anything that is not a database of this library is refused.
void leveldb_destroy_db(const leveldb_options_t *_options, const char *name, char **errptr);

// Verifies a database. It repairs nothing: damage is an error, whose message names the place.
void leveldb_repair_db(const leveldb_options_t *_options, const char *name, char **errptr);

// Makes an iterator over a database, as of now or as of the snapshot in the options. It is not on
// an entry yet. If it could not be made, leveldb_iter_get_error() reports why.
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options);

// Frees an iterator.
void leveldb_iter_destroy(leveldb_iterator_t *iterator);

// Whether the iterator is on an entry.
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iterator);

// Moves to the first entry.
void leveldb_iter_seek_to_first(leveldb_iterator_t *iterator);

// Moves to the last entry.
void leveldb_iter_seek_to_last(leveldb_iterator_t *iterator);

// Moves to the first entry whose key is not less than `k`.
void leveldb_iter_seek(leveldb_iterator_t *iterator, const char *k, size_t klen);

// Moves to the next entry.
void leveldb_iter_next(leveldb_iterator_t *iterator);

// Moves to the previous entry.
void leveldb_iter_prev(leveldb_iterator_t *iterator);

// The key of the current entry, valid until the iterator moves.
const char *leveldb_iter_key(const leveldb_iterator_t *iterator, size_t *klen);

// The value of the current entry, valid until the iterator moves.
const char *leveldb_iter_value(const leveldb_iterator_t *iterator, size_t *vlen);

// Returns the error of the iterator, if there was one.
void leveldb_iter_get_error(const leveldb_iterator_t *iterator, char **errptr);

// Frees memory that a function of this library returned.
void leveldb_free(void *ptr);

// Returns 1: this is the interface of LevelDB 1.23.
int leveldb_major_version(void);

// Returns 23: this is the interface of LevelDB 1.23.
int leveldb_minor_version(void);

// Makes options with LevelDB's defaults: a database that does not exist is an error.
leveldb_options_t *leveldb_options_create(void);

// Frees options. Databases that were opened with them stay open.
void leveldb_options_destroy(leveldb_options_t *options);

// Sets the key order: see leveldb_comparator_create().
void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator);

// Sets how filters are made: see leveldb_filterpolicy_create_bloom().
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy);

// Whether to make a database that does not exist.
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t value);

// Whether it is an error if the database exists already.
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t value);

// Changes nothing: all data is checked when it is read.
void leveldb_options_set_paranoid_checks(leveldb_options_t*, uint8_t _value);

// Changes nothing: there is one environment.
void leveldb_options_set_env(leveldb_options_t*, leveldb_env_t*);

// Changes nothing: no function makes a logger.
void leveldb_options_set_info_log(leveldb_options_t*, leveldb_logger_t*);

// Sets how many bytes are collected in memory before they are written to a table.
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes);

// Sets how many tables are open at most.
void leveldb_options_set_max_open_files(leveldb_options_t *options, int files);

// Sets the size of the cache.
void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache);

// Sets the size of blocks before compression.
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);

// Sets how often a block stores a whole key: once in this many keys.
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int keys);

// Sets the size of tables.
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);

// Sets the compression: leveldb_no_compression or leveldb_snappy_compression.
void leveldb_options_set_compression(leveldb_options_t *options, int kind);

// Makes a key order. It must be the order of the bytes. Writes, look-ups and iterators compare
// neighbouring keys with it. After the first pair that disagrees, everything fails. The function
// sees only keys that the program wrote or looked up.
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                void (*destructor)(void*),
                                                int (*compare)(void*,
                                                               const char*,
                                                               size_t,
                                                               const char*,
                                                               size_t),
                                                const char *(*name)(void*));

// Frees a key order.
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

// Makes a filter policy. Only its destructor is called: filters are always Runstone's own.
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    void (*destructor)(void*),
                                                    char *(*_create_filter)(void*,
                                                                            const char*const *,
                                                                            const size_t*,
                                                                            int,
                                                                            size_t*),
                                                    uint8_t (*_key_may_match)(void*,
                                                                              const char*,
                                                                              size_t,
                                                                              const char*,
                                                                              size_t),
                                                    const char *(*_name)(void*));

// Makes a filter policy with this many bits per key.
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

// Frees a filter policy.
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

// Makes read options: as of now, through the cache.
leveldb_readoptions_t *leveldb_readoptions_create(void);

// Frees read options.
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

// Changes nothing: all data is checked when it is read.
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t*, uint8_t _value);

// Whether data that an iterator reads is added to the cache.
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t value);

// Reads as of a snapshot, or as of now if it is null. Reads fail after the snapshot is released.
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot);

// Makes write options: a write survives a crash of the process.
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

// Frees write options.
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

// Whether a write survives a power loss.
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t value);

// Makes a cache of this many bytes. Databases do not share it: each gets one of this size, as far
// as the limit for all of them allows (RUNSTONE_LEVELDB_CACHE, or half of the memory).
leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

// Frees a cache. Databases that were opened with it keep their caches.
void leveldb_cache_destroy(leveldb_cache_t *cache);

// Returns the default environment, which is the operating system.
leveldb_env_t *leveldb_create_default_env(void);

// Frees an environment.
void leveldb_env_destroy(leveldb_env_t *env);

// The directory for tests, which is created. The caller frees the string.
char *leveldb_env_get_test_directory(leveldb_env_t *env);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LEVELDB_C_H */
