#pragma once
// Mistakes that a model of a family could make, one or more for each golden: what every comparison with the
// golden has to see.
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/model/arch.h"
#include "core/model/params.h"

namespace tandem::golden {

using Fill = std::function<void(const ParamSpec&, std::span<float>)>;

struct Fault {
  std::string variant, name;
  std::function<void(Arch&)> arch = {};  ///< changes the model; none: the golden's
  Fill weights = {};                     ///< fills them wrongly; none: as the golden's
  /// Too small for bf16 and fp16 to tell from their own rounding.
  bool fine = false;

  /// The golden's model with the fault, and its weights.
  [[nodiscard]] Arch planted_arch() const;
  [[nodiscard]] Fill planted_weights() const;
};

void PrintTo(const Fault& fault, std::ostream* out);

const std::vector<Fault>& faults();
/// "gpt2_positions_shifted".
std::string name_of(const Fault& fault);

}  // namespace tandem::golden
