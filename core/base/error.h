#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// Exit status of the program. One meaning each; every Error carries one.
enum class Status : int {
  ok = 0,
  failed =
      1,  ///< a file's content is wrong, a device or disk failed, too many skipped steps, a locked run folder
  usage = 2,          ///< command line or config; a named path that does not exist; a used run folder
  does_not_fit = 3,   ///< device, host or disk is too small; the hint names the first knob that makes it fit
  interrupted = 130,  ///< SIGINT, after saving
  terminated = 143,   ///< SIGTERM, after saving
};

/// Something that a user, a file or a device caused. what() is the full block:
///   error: WHAT
///     at: WHERE       (left out when empty)
///     try: HINT       (left out when empty)
class Error : public std::exception {
 public:
  Error(Status status, std::string what, std::string where = {}, std::string hint = {});
  [[nodiscard]] const char* what() const noexcept override { return block_.c_str(); }
  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  Status status_;
  std::string message_, where_, hint_, block_;
};

/// What the action returns; an Error of it that says nothing to do gets this hint.
template <class Action>
auto hinted(const char* hint, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (!error.hint().empty()) throw;
    throw Error(error.status(), error.message(), error.where(), hint);
  }
}

/// Several errors found in one pass (a config). what() is their blocks, then "N errors" if there is more than
/// one. status() is that of the first.
class ErrorList : public std::exception {
 public:
  explicit ErrorList(std::vector<Error> errors);
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] Status status() const { return errors_.front().status(); }
  [[nodiscard]] const std::vector<Error>& errors() const { return errors_; }

 private:
  std::vector<Error> errors_;
  std::string text_;
};

/// A fault of ours: a broken promise between parts of the program. Never caused by input.
class InternalError : public std::exception {
 public:
  InternalError(const char* file, int line, std::string what);
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// A name or path that comes from a file, made printable: control characters, quotes and invalid UTF-8
/// escaped, cut at 200 characters.
std::string printable(std::string_view text);

}  // namespace tandem

/// CHECK(condition, status, what, where, hint): for what a user, a file or a device can cause.
/// The arguments after the condition are those of tandem::Error and are evaluated only on failure.
#define CHECK(condition, ...)                             \
  do {                                                    \
    if (!(condition)) throw ::tandem::Error(__VA_ARGS__); \
  } while (false)

/// ASSERT(condition, format, args...): for our own mistakes. Holds in all builds.
#define ASSERT(condition, ...)                                                                       \
  do {                                                                                               \
    if (!(condition)) throw ::tandem::InternalError(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
