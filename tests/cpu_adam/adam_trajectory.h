#pragma once
// The cases of tests/golden/adam_trajectory.json (make_adam.py beside it says what they are), their gradients
// again, Adam in double along them, and the rounding of a state format in double.
#include <cmath>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/math/adam_formula.h"
#include "core/math/state_formats.h"

namespace tandem::trajectory {

constexpr int64_t kElements = 1024;
constexpr int64_t kSteps = 1000;

struct Case {
  std::string name;
  Decay decay;
  AdamHyper hyper;
  double lr, start;
  double torch_error;    ///< relative L2 error of p, of PyTorch's more exact implementation
  double norm, p, m, v;  ///< of the script's double trajectory
  [[nodiscard]] std::vector<float> first_masters() const;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }  // GoogleTest's
/// Throws where the file isn't what this header is for.
std::vector<Case> cases();

/// Gradients [kSteps, kElements], element by element as the script has them.
std::vector<float> gradients();
/// Those of update t, from 1.
inline std::span<const float> of_update(const std::vector<float>& gradients, int64_t t) {
  return std::span(gradients).subspan(static_cast<size_t>((t - 1) * kElements), kElements);
}

/// What a format makes of the states that an update leaves, in double: a value between two that the format
/// holds becomes one of them; with Rounding::stochastic, such that the mean is the value itself, but in fp32
/// always the nearer one. Exponents are unlimited.
enum class Rounding : uint8_t { stochastic, nearest };
class FormatModel {
 public:
  /// bits_less: significant bits fewer than the format has (of int8: none).
  explicit FormatModel(StateFormat format, Rounding rounding = Rounding::stochastic, int bits_less = 0);
  /// All elements after one update.
  void round(std::span<double> p, std::span<double> m, std::span<double> v);

 private:
  /// The magnitudes that a moment of int8 may have in a group, for each bf16 scale in [1, 2).
  using Grids = std::vector<std::vector<double>>;
  static Grids grids_of_int8(bool second);
  double between(double below, double above, double x, Rounding rounding);
  void round_bits(std::span<double> values, int bits);
  void round_groups(std::span<double> values, const Grids& grids);

  StateFormat format_;
  Rounding rounding_;
  int bits_less_;
  uint64_t drawn_ = 0;
  Grids grids1_, grids2_;
};

/// p, m and v after all updates of a case, in double (Kingma & Ba 2015; Loshchilov & Hutter 2019).
struct States {
  std::vector<double> p, m, v;
};
States double_trajectory(const Case& c, const std::vector<float>& gradients);
/// The same, the states rounded after every update.
States double_trajectory(const Case& c, const std::vector<float>& gradients, FormatModel model);

/// L2 norm of the difference over that of the second.
double relative_error(std::span<const double> p, std::span<const double> wanted);

}  // namespace tandem::trajectory
