#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/io/safetensors_header.h"

namespace tandem {
namespace {

constexpr const char* kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"x":[{"y":1}],"data_offsets":[16,22]},)"
    R"("c":{"dtype":"I8","shape":[0],"data_offsets":[22,22]},"d":{"dtype":"F4","shape":[2],"data_offsets":[22,23]}})";
constexpr uint64_t kDataBytes = 23;

/// The text with one piece removed, replaced, inserted or repeated.
std::string mutated(const std::string& text, uint32_t random) {
  constexpr std::string_view kPieces[] = {"0",
                                          "16",
                                          "\"",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "-",
                                          ".5",
                                          "e9",
                                          "null",
                                          "\\u0000",
                                          "F32",
                                          "\xff",
                                          std::string_view("\0", 1),
                                          "18446744073709551615",
                                          "[[[[",
                                          "\"a\""};
  const size_t at = (random >> 8) % text.size(), length = (random >> 4) % 16;
  const std::string piece(kPieces[(random >> 20) % std::size(kPieces)]);
  std::string out = text;
  switch (random % 4) {
    case 0:
      return out.erase(at, length);
    case 1:
      return out.replace(at, 1, piece);
    case 2:
      return out.insert(at, piece);
    default:
      return out.insert(at, text.substr(at, length));
  }
}

/// Whatever comes, the reader refuses with an Error or returns entries that tile the data. Sanitizers watch
/// the rest.
TEST(Fuzz, SafetensorsHeadersAreRefusedOrConsistent) {
  uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = mutated(kGood, next());
    if (i % 3 == 0 && !text.empty()) text = mutated(text, next());
    try {
      const SafetensorsHeader header = parse_safetensors_header(text, kDataBytes, "fuzz");
      uint64_t end = 0;
      for (const SafetensorsEntry& entry : header.entries) {
        ASSERT_EQ(entry.begin, end) << text;
        end += entry.bytes;
      }
      ASSERT_EQ(end, kDataBytes) << text;
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tandem
