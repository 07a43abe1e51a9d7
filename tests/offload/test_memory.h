#pragma once
#include <cstdlib>
#include <cstring>

#include "core/device/memory.h"

namespace tandem::testing {

/// Plain host memory for tests, counted by scope.
class TestMemory : public HostMemory {
 public:
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override {
    counters_.add(scope, bytes);
    return Buffer(std::make_unique<Block>(counters_, bytes, std::string(scope)));
  }
  [[nodiscard]] const MemoryCounters& counters() const override { return counters_; }

 private:
  class Block : public Buffer::Allocation {
   public:
    Block(MemoryCounters& counters, size_t size, std::string scope)
        : counters_(counters), scope_(std::move(scope)) {
      data = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
      bytes = size;
      std::memset(data, 0, size);
    }
    ~Block() override {
      std::free(data);
      counters_.subtract(scope_, bytes);
    }

   private:
    MemoryCounters& counters_;
    std::string scope_;
  };
  MemoryCounters counters_;
};

}  // namespace tandem::testing
