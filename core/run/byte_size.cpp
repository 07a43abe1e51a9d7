#include "core/run/byte_size.h"

namespace tandem {

namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
};

uint64_t unit_bytes(std::string_view name) {
  for (const Unit& unit : kUnits)
    if (unit.name == name) return unit.bytes;
  return 0;
}

}  // namespace

std::optional<uint64_t> parse_byte_size(std::string_view text) {
  constexpr size_t kMostDigits = 19;  // fit into 64 bits
  uint64_t digits = 0, scale = 1;     // the number is digits / scale
  size_t i = 0, count = 0;
  bool point = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point && count > 0) {
      point = true;
    } else if (text[i] >= '0' && text[i] <= '9') {
      if (++count > kMostDigits) return std::nullopt;
      digits = digits * 10 + static_cast<uint64_t>(text[i] - '0');
      if (point) scale *= 10;
    } else {
      break;
    }
  }
  if (count == 0 || (point && scale == 1)) return std::nullopt;
  if (i < text.size() && text[i] == ' ') ++i;
  const uint64_t unit = unit_bytes(text.substr(i));
  if (unit == 0) return std::nullopt;
  const auto product = static_cast<unsigned __int128>(digits) * unit;
  if (product % scale != 0 || (product / scale) >> 63 != 0) return std::nullopt;
  return static_cast<uint64_t>(product / scale);
}

}  // namespace tandem
