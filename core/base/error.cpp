#include "core/base/error.h"

namespace tandem {

namespace {

std::string block(const std::string& what, const std::string& where, const std::string& hint) {
  std::string text = "error: " + what;
  if (!where.empty()) text += "\n  at: " + where;
  if (!hint.empty()) text += "\n  try: " + hint;
  return text;
}

/// Length of the well-formed UTF-8 sequence at the front of text, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto trails = [&](size_t n) {
    if (text.size() < n + 1) return false;
    for (size_t i = 1; i <= n; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF && trails(1)) return 2;
  if ((byte(0) & 0xF0) == 0xE0 && trails(2)) {
    const unsigned code = (byte(0) & 0xFu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    return code >= 0x800 && (code < 0xD800 || code > 0xDFFF) ? 3 : 0;
  }
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4 && trails(3)) {
    const unsigned code =
        (byte(0) & 7u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    return code >= 0x10000 && code <= 0x10FFFF ? 4 : 0;
  }
  return 0;
}

}  // namespace

Error::Error(Status status, std::string what, std::string where, std::string hint)
    : status_(status),
      message_(std::move(what)),
      where_(std::move(where)),
      hint_(std::move(hint)),
      block_(block(message_, where_, hint_)) {}

ErrorList::ErrorList(std::vector<Error> errors) : errors_(std::move(errors)) {
  ASSERT(!errors_.empty(), "an ErrorList holds at least one error");
  for (const Error& error : errors_) text_ += (text_.empty() ? "" : "\n") + std::string(error.what());
  if (errors_.size() > 1) text_ += fmt::format("\n{} errors", errors_.size());
}

InternalError::InternalError(const char* file, int line, std::string what)
    : text_(fmt::format("internal error: {} ({}:{})", what, file, line)) {}

std::string printable(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string out;
  while (!text.empty()) {
    if (out.size() >= kMost) return out + "...";
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += fmt::format("\\x{:02x}", first);
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += text[0];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace tandem
