#include "gpu/memory_limit.h"

#include "core/base/error.h"

namespace tandem::gpu {

std::string mebibytes(size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void check_memory_limit(std::string_view scope, size_t bytes, size_t held, size_t limit) {
  CHECK(bytes <= limit && held <= limit - bytes, Status::does_not_fit,
        fmt::format(
            "device memory for \"{}\" does not fit: it needs {} ({} bytes), {} of the limit of {} are taken",
            scope, mebibytes(bytes), bytes, mebibytes(held), mebibytes(limit)),
        kMemoryLimitKey, kMakeItFit);
}

}  // namespace tandem::gpu
