#include "tests/gpu/op_cases_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::op_cases {

namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }
Result zeros(size_t n) { return {Values(n), Values(n)}; }

void add_term(Result& r, int64_t i, double term) {
  r.value[at(i)] += term;
  r.magnitude[at(i)] += std::fabs(term);
}

}  // namespace

Result product(int64_t m, int64_t n, int64_t k, const Values& a, bool a_turned, const Values& b,
               bool b_turned) {
  Result c = zeros(at(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        add_term(c, i * n + j,
                 a[at(a_turned ? l * m + i : i * k + l)] * b[at(b_turned ? j * k + l : l * n + j)]);
  return c;
}

NormForward rms_norm_forward(const Values& x, const Values& w, double eps) {
  const int64_t width = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(x.size()) / width;
  NormForward r{zeros(x.size()), zeros(at(rows))};
  for (int64_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += x[at(i * width + c)] * x[at(i * width + c)];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    add_term(r.rstd, i, rstd);
    for (int64_t c = 0; c < width; ++c) add_term(r.y, i * width + c, x[at(i * width + c)] * rstd * w[at(c)]);
  }
  return r;
}

NormBackward rms_norm_backward(const Values& dy, const Values& x, const Values& w, const Values& rstd) {
  const int64_t width = static_cast<int64_t>(w.size()), rows = static_cast<int64_t>(rstd.size());
  NormBackward r{zeros(x.size()), zeros(w.size())};
  for (int64_t i = 0; i < rows; ++i) {
    const double s = rstd[at(i)];
    for (int64_t c = 0; c < width; ++c) {
      const int64_t e = i * width + c;
      add_term(r.dx, e, s * dy[at(e)] * w[at(c)]);
      add_term(r.dw, c, dy[at(e)] * x[at(e)] * s);
      for (int64_t o = i * width; o < (i + 1) * width; ++o)
        add_term(
            r.dx, e,
            -x[at(e)] * s * s * s / static_cast<double>(width) * dy[at(o)] * w[at(o - i * width)] * x[at(o)]);
    }
  }
  return r;
}

Result rope(const Values& x, const Values& cos, const Values& sin, int64_t length, int64_t heads,
            int64_t head_dim, int direction) {
  Result y = zeros(x.size());
  const int64_t half = head_dim / 2;
  for (int64_t head = 0; head < static_cast<int64_t>(x.size()) / head_dim; ++head) {
    const int64_t t = head / heads % length;
    for (int64_t j = 0; j < half; ++j) {
      const int64_t first = head * head_dim + j, second = first + half;
      const double c = cos[at(t * half + j)], s = sin[at(t * half + j)] * direction;
      add_term(y, first, x[at(first)] * c);
      add_term(y, first, -x[at(second)] * s);
      add_term(y, second, x[at(second)] * c);
      add_term(y, second, x[at(first)] * s);
    }
  }
  return y;
}

namespace {

/// Where one query row and the keys that it sees lie.
struct Row {
  const AttentionShape& s;
  int64_t batch, head, i;

  [[nodiscard]] int64_t first_key() const {
    return s.window == 0 ? 0 : std::max<int64_t>(0, i - s.window + 1);
  }
  [[nodiscard]] int64_t query() const { return ((batch * s.length + i) * s.heads + head) * s.head_dim; }
  [[nodiscard]] int64_t key(int64_t j) const {
    return ((batch * s.length + j) * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_dim;
  }
  [[nodiscard]] size_t lse() const { return at((batch * s.heads + head) * s.length + i); }
  /// scale * q.k, and the same of absolute values.
  [[nodiscard]] std::pair<double, double> score(const Values& q, const Values& k, int64_t j) const {
    double sum = 0, magnitude = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      const double term = q[at(query() + d)] * k[at(key(j) + d)] * static_cast<double>(s.scale);
      sum += term;
      magnitude += std::fabs(term);
    }
    return {sum, magnitude};
  }
};

template <class Body>
void for_rows(const AttentionShape& s, const Body& body) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.length; ++i) body(Row{s, b, h, i});
}

/// sum of a[i..] * b[j..] over one head, and the same of absolute values.
std::pair<double, double> head_dot(const Values& a, int64_t i, const Values& b, int64_t j, int64_t n) {
  double sum = 0, magnitude = 0;
  for (int64_t d = 0; d < n; ++d) {
    sum += a[at(i + d)] * b[at(j + d)];
    magnitude += std::fabs(a[at(i + d)] * b[at(j + d)]);
  }
  return {sum, magnitude};
}

}  // namespace

// A score's rounding error is relative to its magnitude; as an exponent it multiplies the probability.
AttentionForward attention_forward(const Values& q, const Values& k, const Values& v,
                                   const AttentionShape& shape) {
  AttentionForward r{zeros(q.size()), zeros(at(shape.batch * shape.heads * shape.length))};
  for_rows(shape, [&](const Row& row) {
    double sum = 0, spread = 0;
    for (int64_t j = row.first_key(); j <= row.i; ++j) {
      const auto [score, magnitude] = row.score(q, k, j);
      sum += std::exp(score);
      spread = std::max(spread, magnitude);
    }
    r.lse.value[row.lse()] = std::log(sum);
    r.lse.magnitude[row.lse()] = 1 + spread + std::fabs(std::log(sum));
    for (int64_t j = row.first_key(); j <= row.i; ++j) {
      const double p = std::exp(row.score(q, k, j).first) / sum;
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const double term = p * v[at(row.key(j) + d)];
        r.out.value[at(row.query() + d)] += term;
        r.out.magnitude[at(row.query() + d)] += std::fabs(term) * (1 + spread);
      }
    }
  });
  return r;
}

AttentionBackward attention_backward(const Values& dout, const Values& q, const Values& k, const Values& v,
                                     const Values& out, const Values& lse, const AttentionShape& shape) {
  AttentionBackward r{zeros(q.size()), zeros(k.size()), zeros(v.size())};
  const int64_t width = shape.head_dim;
  const double scale = static_cast<double>(shape.scale);
  for_rows(shape, [&](const Row& row) {
    const auto [delta, delta_magnitude] = head_dot(dout, row.query(), out, row.query(), width);
    for (int64_t j = row.first_key(); j <= row.i; ++j) {
      const auto [score, score_magnitude] = row.score(q, k, j);
      const auto [dp, dp_magnitude] = head_dot(dout, row.query(), v, row.key(j), width);
      const double p = std::exp(score - lse[row.lse()]);
      const double spread = 1 + score_magnitude + std::fabs(lse[row.lse()]);
      const double ds = p * (dp - delta) * scale;
      const double ds_magnitude = p * (dp_magnitude + delta_magnitude) * scale * spread;
      for (int64_t d = 0; d < width; ++d) {
        const size_t qi = at(row.query() + d), kj = at(row.key(j) + d);
        r.dq.value[qi] += ds * k[kj];
        r.dq.magnitude[qi] += ds_magnitude * std::fabs(k[kj]);
        r.dk.value[kj] += ds * q[qi];
        r.dk.magnitude[kj] += ds_magnitude * std::fabs(q[qi]);
        r.dv.value[kj] += p * dout[qi];
        r.dv.magnitude[kj] += p * spread * std::fabs(dout[qi]);
      }
    }
  });
  return r;
}

Result swiglu_forward(const Values& gate, const Values& up) {
  Result y = zeros(gate.size());
  for (size_t i = 0; i < gate.size(); ++i)
    add_term(y, static_cast<int64_t>(i), gate[i] / (1 + std::exp(-gate[i])) * up[i]);
  return y;
}

SwigluBackward swiglu_backward(const Values& dy, const Values& gate, const Values& up) {
  SwigluBackward r{zeros(dy.size()), zeros(dy.size())};
  for (size_t i = 0; i < dy.size(); ++i) {
    const double s = 1 / (1 + std::exp(-gate[i])), one_minus_s = 1 / (1 + std::exp(gate[i]));
    add_term(r.dgate, static_cast<int64_t>(i), dy[i] * up[i] * s);
    add_term(r.dgate, static_cast<int64_t>(i), dy[i] * up[i] * s * gate[i] * one_minus_s);
    add_term(r.dup, static_cast<int64_t>(i), dy[i] * gate[i] * s);
  }
  return r;
}

CrossEntropy softmax_cross_entropy(const Values& logits, const std::vector<int32_t>& targets, double scale) {
  CrossEntropy r{zeros(1), zeros(logits.size())};
  const size_t width = logits.size() / targets.size();
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const double* x = logits.data() + row * width;
    const auto [least, most] = std::minmax_element(x, x + width);
    const double spread = 1 + *most - *least;
    double sum = 0;
    for (size_t c = 0; c < width; ++c) sum += std::exp(x[c]);
    r.loss.value[0] += std::log(sum) - x[targets[row]];
    r.loss.magnitude[0] += spread;
    for (size_t c = 0; c < width; ++c) {
      const double one = static_cast<int32_t>(c) == targets[row] ? 1 : 0, p = std::exp(x[c]) / sum;
      r.dlogits.value[row * width + c] = (p - one) * scale;
      r.dlogits.magnitude[row * width + c] = (p * spread + one) * std::fabs(scale);
    }
  }
  return r;
}

}  // namespace tandem::op_cases
