#include "core/io/hash.h"

#define XXH_INLINE_ALL  // header-only: no library to link
#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace tandem {

struct Xxh3::State {
  XXH3_state_t xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3::digest() const { return XXH3_64bits_digest(&state_->xxh); }

FileSum sum_of(const File& file) {
  constexpr uint64_t kChunk = 1 << 20;
  Xxh3 hash;
  std::vector<std::byte> chunk(std::min(kChunk, file.size()));
  for (uint64_t done = 0; done < file.size(); done += chunk.size()) {
    chunk.resize(std::min(kChunk, file.size() - done));
    file.read(done, chunk);
    hash.update(chunk);
  }
  return {file.size(), hash.digest()};
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace tandem
