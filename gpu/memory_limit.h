#pragma once
// What devices with a memory limit say when something doesn't fit.
#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::gpu {

constexpr const char* kMemoryLimitKey = "device.memory_limit";
constexpr const char* kMakeItFit =
    "a smaller train_micro_batch_size_per_gpu or model, or a higher device.memory_limit";

/// "12.5 MiB".
std::string mebibytes(size_t bytes);

/// Error(does_not_fit) if so many bytes for the scope, beside those that are held, pass the limit.
void check_memory_limit(std::string_view scope, size_t bytes, size_t held, size_t limit);

}  // namespace tandem::gpu
