// The cases of LayerNorm and gelu_new, with their formulas in double.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/gpu/op_cases.h"

namespace tandem::op_cases {

// Of op_cases.cpp's table.
std::vector<OpCase> layer_norm_forward_cases();
std::vector<OpCase> layer_norm_backward_cases();
std::vector<OpCase> gelu_forward_cases();
std::vector<OpCase> gelu_backward_cases();

namespace {

constexpr DType kActs[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kShapes[][2] = {{3, 1}, {77, 8}, {70, 65}, {5, 1100}};
constexpr float kEps = 1e-5f;

CaseTensor input(std::string name, DType dtype, std::vector<int64_t> shape, uint64_t seed, double size = 1) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return {std::move(name), dtype, std::move(shape), random_values(count, dtype, seed, size), {}, {}};
}

/// An output over what the tensor held: one rounding to its type, and `work` fp32 roundings of its magnitude.
CaseTensor output(CaseTensor t, const Result& result, double work) {
  const double least = std::ldexp(1.0, t.dtype == DType::f16 ? -25 : -126);
  t.expected = result.value;
  for (size_t i = 0; i < result.value.size(); ++i)
    t.allowed.push_back(rounding_unit(t.dtype) * std::fabs(result.value[i]) + least +
                        work * std::ldexp(1.0, -24) * result.magnitude[i]);
  return t;
}
CaseTensor fresh(std::string name, DType dtype, std::vector<int64_t> shape, const Result& result,
                 double work) {
  const Values nothing(result.value.size(), std::numeric_limits<double>::quiet_NaN());
  return output({std::move(name), dtype, std::move(shape), nothing, {}, {}}, result, work);
}

Result zeros(size_t n) { return {Values(n), Values(n)}; }

/// Adds what a tensor held to a result.
Result plus(Result r, const Values& before) {
  for (size_t i = 0; i < before.size(); ++i) {
    r.value[i] += before[i];
    r.magnitude[i] += std::fabs(before[i]);
  }
  return r;
}

struct Forward {
  Result y, mean, rstd;
};
Forward layer_norm(const Values& x, const Values& w, const Values& b) {
  const size_t width = w.size(), rows = x.size() / width;
  const double n = static_cast<double>(width);
  Forward f{zeros(x.size()), zeros(rows), zeros(rows)};
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0, size = 0, squares = 0;
    for (size_t c = 0; c < width; ++c) sum += x[r * width + c], size += std::fabs(x[r * width + c]);
    const double mean = sum / n;
    for (size_t c = 0; c < width; ++c) squares += std::pow(x[r * width + c] - mean, 2);
    const double rstd = 1 / std::sqrt(squares / n + static_cast<double>(kEps));
    f.mean.value[r] = mean, f.mean.magnitude[r] = size / n;
    // a mean that is off by e adds e^2 to the variance, which eps bounds from below: relative to rstd, small
    f.rstd.value[r] = rstd, f.rstd.magnitude[r] = rstd;
    for (size_t c = 0; c < width; ++c) {
      f.y.value[r * width + c] = (x[r * width + c] - mean) * rstd * w[c] + b[c];
      f.y.magnitude[r * width + c] =
          (std::fabs(x[r * width + c]) + std::fabs(mean) + size / n) * rstd * std::fabs(w[c]) +
          std::fabs(b[c]);
    }
  }
  return f;
}

struct Backward {
  Result dx, dw, db;
};
Backward layer_norm_backward(const Values& dy, const Values& x, const Values& w, const Values& mean,
                             const Values& rstd) {
  const size_t width = w.size(), rows = rstd.size();
  const double n = static_cast<double>(width);
  Backward r{zeros(x.size()), zeros(width), zeros(width)};
  for (size_t i = 0; i < rows; ++i) {
    const auto g = [&](size_t c) { return dy[i * width + c] * w[c]; };
    const auto h = [&](size_t c) { return (x[i * width + c] - mean[i]) * rstd[i]; };
    const auto h_size = [&](size_t c) {
      return (std::fabs(x[i * width + c]) + std::fabs(mean[i])) * std::fabs(rstd[i]);
    };
    double sum = 0, along = 0, sum_size = 0, along_size = 0;
    for (size_t c = 0; c < width; ++c) {
      sum += g(c), along += g(c) * h(c);
      sum_size += std::fabs(g(c)), along_size += std::fabs(g(c)) * h_size(c);
      r.dw.value[c] += dy[i * width + c] * h(c);
      r.dw.magnitude[c] += std::fabs(dy[i * width + c]) * h_size(c);
      r.db.value[c] += dy[i * width + c];
      r.db.magnitude[c] += std::fabs(dy[i * width + c]);
    }
    for (size_t c = 0; c < width; ++c) {
      r.dx.value[i * width + c] = rstd[i] * (g(c) - sum / n - h(c) * along / n);
      r.dx.magnitude[i * width + c] =
          std::fabs(rstd[i]) * (std::fabs(g(c)) + sum_size / n + h_size(c) * along_size / n);
    }
  }
  return r;
}

/// The tanh form as it is published.
double gelu(double x) {
  const double k = std::sqrt(2 / std::acos(-1.0));
  return 0.5 * x * (1 + std::tanh(k * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double k = std::sqrt(2 / std::acos(-1.0)), t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

std::string name(DType act, int64_t rows, int64_t width, const char* what = "") {
  return fmt::format("{} {}x{}{}", name_of(act), rows, width, what);
}

/// Elements from ordinary to where the tanh is 1, and beyond.
CaseTensor gelu_input(DType act, std::vector<int64_t> shape) {
  CaseTensor x = input("x", act, std::move(shape), 1, 4);
  const double extremes[] = {0, 100, -100, 9, -9, 1e-3, -1e-3};
  for (size_t i = 0; i < std::size(extremes) && i < x.before.size(); ++i)
    x.before[i] = rounded(extremes[i], act);
  return x;
}

}  // namespace

std::vector<OpCase> layer_norm_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const auto& [rows, width] : kShapes) {
      const CaseTensor x = input("x", act, {rows, width}, 1, 3), w = input("w", act, {width}, 2),
                       b = input("b", act, {width}, 3);
      const Forward f = layer_norm(x.before, w.before, b.before);
      cases.push_back({name(act, rows, width),
                       {fresh("y", act, {rows, width}, f.y, 8), fresh("mean", DType::f32, {rows}, f.mean, 4),
                        fresh("rstd", DType::f32, {rows}, f.rstd, 8), x, w, b},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.layer_norm_forward(s, t[0], t[1], t[2], t[3], t[4], t[5], kEps);
                       }});
    }
  return cases;
}

std::vector<OpCase> layer_norm_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const auto& [rows, width] : kShapes) {
      const CaseTensor dy = input("dy", act, {rows, width}, 1), x = input("x", act, {rows, width}, 2, 3);
      const CaseTensor w = input("w", act, {width}, 3), before = input("dx", act, {rows, width}, 4);
      const CaseTensor mean = input("mean", DType::f32, {rows}, 5),
                       rstd = input("rstd", DType::f32, {rows}, 6);
      const Backward r = layer_norm_backward(dy.before, x.before, w.before, mean.before, rstd.before);
      const CaseTensor dw0 = input("dw", DType::f32, {width}, 7), db0 = input("db", DType::f32, {width}, 8);
      const double sums = 6 + std::sqrt(static_cast<double>(rows));
      const CaseTensor dw = output(dw0, plus(r.dw, dw0.before), sums),
                       db = output(db0, plus(r.db, db0.before), sums);
      cases.push_back({name(act, rows, width, " no residual"),
                       {fresh("dx", act, {rows, width}, r.dx, 10), dw, db, dy, x, w, mean, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.layer_norm_backward(s, t[0], t[1], t[2], {}, t[3], t[4], t[5], t[6], t[7]);
                       }});
      const CaseTensor dx = fresh("dx", act, {rows, width}, r.dx, 10);
      cases.push_back({name(act, rows, width, " frozen weight"),
                       {dx, db, dy, x, w, mean, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.layer_norm_backward(s, t[0], {}, t[1], {}, t[2], t[3], t[4], t[5], t[6]);
                       }});
      cases.push_back({name(act, rows, width, " frozen bias"),
                       {dx, dw, dy, x, w, mean, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.layer_norm_backward(s, t[0], t[1], {}, {}, t[2], t[3], t[4], t[5], t[6]);
                       }});
      cases.push_back({name(act, rows, width, " residual in place"),
                       {output(before, plus(r.dx, before.before), 10), dw, db, dy, x, w, mean, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.layer_norm_backward(s, t[0], t[1], t[2], t[0], t[3], t[4], t[5], t[6], t[7]);
                       }});
    }
  return cases;
}

// The sigmoid's argument u is off by a few roundings of |u|, and the sigmoid by as much, relatively.
std::vector<OpCase> gelu_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const auto& [rows, width] : kShapes) {
      const CaseTensor x = gelu_input(act, {rows, width});
      Result y = zeros(x.before.size());
      for (size_t i = 0; i < y.value.size(); ++i) {
        y.value[i] = gelu(x.before[i]);
        y.magnitude[i] = std::fabs(x.before[i]);
      }
      cases.push_back({name(act, rows, width),
                       {fresh("y", act, {rows, width}, y, 12), x},
                       [](Ops& ops, Stream& s, auto t) { ops.gelu_forward(s, t[0], t[1]); }});
    }
  return cases;
}

std::vector<OpCase> gelu_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const auto& [rows, width] : kShapes) {
      const CaseTensor x = gelu_input(act, {rows, width}), dy = input("dy", act, {rows, width}, 2);
      Result dx = zeros(x.before.size());
      for (size_t i = 0; i < dx.value.size(); ++i) {
        dx.value[i] = dy.before[i] * gelu_slope(x.before[i]);
        dx.magnitude[i] = std::fabs(dy.before[i]) * (1 + std::fabs(x.before[i]));
      }
      cases.push_back({name(act, rows, width),
                       {fresh("dx", act, {rows, width}, dx, 12), dy, x},
                       [](Ops& ops, Stream& s, auto t) { ops.gelu_backward(s, t[0], t[1], t[2]); }});
      cases.push_back({name(act, rows, width, " in place"),
                       {output(x, dx, 12), dy},
                       [](Ops& ops, Stream& s, auto t) { ops.gelu_backward(s, t[0], t[1], t[0]); }});
    }
  return cases;
}

}  // namespace tandem::op_cases
