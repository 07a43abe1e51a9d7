#pragma once
#include <memory>

#include "core/base/error.h"

namespace tandem {

/// While it lives, SIGINT and SIGTERM ask the run to stop: the first one is remembered, a second one ends the
/// process at once with the same status (130, 143) and no save. A file that outgrows the process's limit
/// (SIGXFSZ) fails with an error of the write, and ends nothing. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// ok while nobody has asked; interrupted or terminated afterwards.
  [[nodiscard]] Status asked() const;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace tandem
