#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

/// "24GiB", "24GB", "1.5 TiB", "512": a number and B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
/// (of 1024). Nothing if the text is not like that, the bytes are not whole, or there are 2^63 or more.
std::optional<uint64_t> parse_byte_size(std::string_view text);

}  // namespace tandem
