#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/io/file.h"

namespace tandem {

/// XXH3, 64 bits, of bytes given piece by piece; how they are cut does not matter.
class Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What state.json says about a file: its size and the XXH3 of all its bytes.
struct FileSum {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

/// Reads the whole file.
FileSum sum_of(const File& file);

/// A hash as 16 lower-case hexadecimal digits.
std::string hex(uint64_t hash);

}  // namespace tandem
