#include "core/device/memory.h"

#include <algorithm>

namespace tandem {

void MemoryCounters::add(std::string_view scope, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Bytes& entry = scopes_[std::string(scope)];
  entry.now += bytes;
  entry.peak = std::max(entry.peak, entry.now);
  total_.now += bytes;
  total_.peak = std::max(total_.peak, total_.now);
}

void MemoryCounters::subtract(std::string_view scope, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Bytes& entry = scopes_[std::string(scope)];
  ASSERT(entry.now >= bytes && total_.now >= bytes, "scope {} holds {} bytes, {} returned", scope, entry.now,
         bytes);
  entry.now -= bytes;
  total_.now -= bytes;
}

std::map<std::string, MemoryCounters::Bytes, std::less<>> MemoryCounters::scopes() const {
  const std::lock_guard lock(mutex_);
  auto all = scopes_;
  all[""] = total_;
  return all;
}

MemoryCounters::Bytes MemoryCounters::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace tandem
