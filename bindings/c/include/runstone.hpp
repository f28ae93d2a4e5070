// Callbacks in C++ for runstone.h, which may throw: an exception becomes an error of the read that
// needs the callback. An exception must not leave a callback of runstone.h itself.

#ifndef RUNSTONE_HPP
#define RUNSTONE_HPP

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runstone.h"

namespace runstone {

/// Makes a value from an older one, if there is one, and from operands, oldest first.
using Merger = std::function<std::string(std::string_view key, std::optional<std::string_view> base,
                                         const std::vector<std::string_view> &operands)>;

/// Keeps, removes or changes an entry: it stores the new value in `changed`.
using Filter = std::function<runstone_decision(std::uint32_t level, std::string_view key,
                                               std::string_view value, std::string &changed)>;

/// Receives an event: its kind, and all of it as JSON.
using Listener = std::function<void(std::string_view kind, std::string_view json)>;

namespace detail {

inline std::string_view view(runstone_slice slice) {
    return {static_cast<const char *>(slice.data), slice.size};
}

inline void set(runstone_output *output, std::string_view bytes) {
    runstone_output_set(output, bytes.data(), bytes.size());
}

extern "C" inline bool merge(void *context, runstone_slice key, runstone_slice base,
                             const runstone_slice *operands, std::size_t count,
                             runstone_output *output) noexcept {
    try {
        std::vector<std::string_view> views;
        for (std::size_t at = 0; at < count; at++) views.push_back(view(operands[at]));
        std::optional<std::string_view> old;
        if (base.data != nullptr) old = view(base);
        set(output, (*static_cast<Merger *>(context))(view(key), old, views));
        return true;
    } catch (const std::exception &thrown) {
        set(output, thrown.what());
    } catch (...) {
        set(output, "the merge operator threw what is no std::exception");
    }
    return false;
}

extern "C" inline std::int32_t filter(void *context, std::uint32_t level, runstone_slice key,
                                      runstone_slice value, runstone_output *output) noexcept {
    try {
        std::string changed;
        auto decision = (*static_cast<Filter *>(context))(level, view(key), view(value), changed);
        set(output, changed);
        return decision;
    } catch (...) {
        return RUNSTONE_KEEP;
    }
}

extern "C" inline void listen(void *context, const char *kind, const char *json) noexcept {
    try {
        (*static_cast<Listener *>(context))(kind, json);
    } catch (...) {
        // The store cannot handle the exception.
    }
}

template <typename Function> void end(void *context) {
    delete static_cast<Function *>(context);
}

}  // namespace detail

/// Registers a merge operator. If it throws, reads of the key fail with the message of the
/// exception.
inline runstone_status add_merge_operator(runstone_options *options, const char *name,
                                          Merger merger) {
    return runstone_options_add_merge_operator(options, name, detail::merge,
                                               new Merger(std::move(merger)),
                                               detail::end<Merger>);
}

/// Registers a compaction filter. If it throws, the entry stays.
inline runstone_status add_compaction_filter(runstone_options *options, const char *name,
                                             Filter filter) {
    return runstone_options_add_compaction_filter(options, name, detail::filter,
                                                  new Filter(std::move(filter)),
                                                  detail::end<Filter>);
}

/// Sets the listener that receives events. Its exceptions are dropped.
inline runstone_status set_listener(runstone_options *options, Listener listener) {
    return runstone_options_set_listener(options, detail::listen, new Listener(std::move(listener)),
                                         detail::end<Listener>);
}

}  // namespace runstone

#endif
