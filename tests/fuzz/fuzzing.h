#pragma once
// What the fuzz targets share. A target gives libFuzzer LLVMFuzzerTestOneInput; whatever leaves it as an
// exception, aborts or is seen by a sanitizer is a fault.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {

/// Ends the program where something does not hold that the parser promises.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// Whether the parser accepts. Where it refuses, it is by an Error of ours that says what and can be printed.
template <class Parser>
bool accepts(Parser&& parser) {
  try {
    parser();
    return true;
  } catch (const Error& error) {
    require(!error.message().empty(), "an error says what is wrong");
    require(error.status() == Status::failed || error.status() == Status::usage, "an error of the input");
    for (const char* c = error.what(); *c != '\0'; ++c)
      require(static_cast<unsigned char>(*c) >= 0x20 || *c == '\n', "an error can be printed");
    return false;
  }
}

/// Bytes that a target takes off the front of its input to choose a case by; zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  template <class T>
  T take() {
    T value{};
    const size_t size = rest_.copy(reinterpret_cast<char*>(&value), sizeof value);
    rest_.remove_prefix(size);
    return value;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

/// The files of one target, in $TMPDIR.
inline const TemporaryFolder& folder() {
  static const TemporaryFolder made;
  return made;
}

}  // namespace tandem
