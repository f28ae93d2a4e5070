// Tests merge operators, compaction filters and listeners in C++, including ones that throw.

#include <atomic>
#include <stdexcept>

#include <runstone.hpp>

#include "check.h"

static std::string get(runstone_keyspace *keyspace, const std::string &key) {
    runstone_bytes value;
    WORKS(runstone_get(keyspace, nullptr, key.data(), key.size(), &value));
    std::string text(static_cast<const char *>(value.data), value.size);
    runstone_bytes_free(&value);
    return text;
}

static std::atomic<int> alive{0};

// Counts its instances, so that a test sees when the store releases them.
struct Counted {
    Counted() { alive++; }
    Counted(const Counted &) { alive++; }
    ~Counted() { alive--; }
};

int main(int argc, char **argv) {
    CHECK(argc == 2);
    runstone_options *options;
    runstone_store *store;
    runstone_keyspace *keyspace;
    WORKS(runstone_options_create(
        "[keyspace]\nmerge_operator = 'join'\ncompaction_filter = 'tidy'", &options));
    Counted counted;
    WORKS(runstone::add_merge_operator(
        options, "join", [counted](auto key, auto base, const auto &operands) {
            if (key == "bad") throw std::runtime_error("this key is bad");
            if (key == "odd") throw 7;
            std::string text(base.value_or("-"));
            for (auto operand : operands) text += operand;
            return text;
        }));
    WORKS(runstone::add_compaction_filter(
        options, "tidy", [counted](auto, auto key, auto value, auto &changed) {
            if (key == "throws") throw std::runtime_error("no");
            if (key == "gone") return RUNSTONE_REMOVE;
            if (value != "grow") return RUNSTONE_KEEP;
            changed = "grown";
            return RUNSTONE_CHANGE;
        }));
    std::atomic<int> flushed{0};
    WORKS(runstone::set_listener(options, [counted, &flushed](auto kind, auto) {
        if (kind == "flushed") flushed++;
        throw std::runtime_error("nobody hears this");
    }));
    CHECK(alive == 4);
    WORKS(runstone_open(argv[1], options, &store));
    WORKS(runstone_options_close(options));
    WORKS(runstone_default_keyspace(store, &keyspace));
    WORKS(runstone_merge(keyspace, "good", 4, "a", 1, 0));
    WORKS(runstone_merge(keyspace, "good", 4, "b", 1, 0));
    WORKS(runstone_merge(keyspace, "bad", 3, "a", 1, 0));
    WORKS(runstone_merge(keyspace, "odd", 3, "a", 1, 0));
    WORKS(runstone_put(keyspace, "gone", 4, "x", 1, 0));
    WORKS(runstone_put(keyspace, "throws", 6, "x", 1, 0));
    WORKS(runstone_put(keyspace, "value", 5, "grow", 4, 0));
    CHECK(get(keyspace, "good") == "-ab");
    runstone_bytes value;
    REFUSED(RUNSTONE_MERGE_FAILED, "this key is bad",
            runstone_get(keyspace, nullptr, "bad", 3, &value));
    REFUSED(RUNSTONE_MERGE_FAILED, "no std::exception",
            runstone_get(keyspace, nullptr, "odd", 3, &value));
    WORKS(runstone_compact(store));
    CHECK(flushed > 0);
    CHECK(get(keyspace, "value") == "grown" && get(keyspace, "throws") == "x");
    bool is_there;
    WORKS(runstone_contains(keyspace, "gone", 4, &is_there));
    CHECK(!is_there);
    WORKS(runstone_keyspace_close(keyspace));
    WORKS(runstone_close(store));
    CHECK(alive == 1);
    puts("callbacks: ok");
    return 0;
}
