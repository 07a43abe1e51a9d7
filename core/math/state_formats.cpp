#include "core/math/state_formats.h"

namespace tandem {

namespace {

template <class Format, class Rows>
std::optional<Format> format_of(const Rows& rows, std::string_view name) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == name) return static_cast<Format>(i);
  return std::nullopt;
}

}  // namespace

std::string name_of(StateFormat format) {
  return std::string(row_of(format.master).name) + "+" + std::string(row_of(format.moments).name);
}
std::optional<MasterFormat> master_format(std::string_view name) {
  return format_of<MasterFormat>(kMasterFormats, name);
}
std::optional<MomentFormat> moment_format(std::string_view name) {
  return format_of<MomentFormat>(kMomentFormats, name);
}

double bytes_held(StateFormat format) {
  double bytes = 0;
  for (size_t i = 0; i < kStatePlanes; ++i) {
    const PlaneShape shape = shape_of(format, static_cast<StatePlane>(i));
    bytes += static_cast<double>(shape.bytes) / static_cast<double>(shape.elements);
  }
  return bytes;
}
double bytes_read(StateFormat format, DType grad) {
  return bytes_held(format) + static_cast<double>(bytes_beside(format)) + static_cast<double>(size_of(grad));
}
double bytes_written(StateFormat format, DType weight) {
  return bytes_held(format) + static_cast<double>(size_of(weight));
}

std::string_view refusal(StateFormat format, DType weight) {
  if (!row_of(format.master).beside_weights || weight == DType::bf16) return {};
  return format.master == MasterFormat::split
             ? "keeps the lower half of each fp32 master beside its bfloat16 weight, so weights must be "
               "bfloat16"
             : "keeps each master as an 8-bit correction of its bfloat16 weight, so weights must be bfloat16";
}

}  // namespace tandem
