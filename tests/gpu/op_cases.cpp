#include "tests/gpu/op_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace tandem::op_cases {

// Of op_cases_gpt2.cpp.
std::vector<OpCase> layer_norm_forward_cases();
std::vector<OpCase> layer_norm_backward_cases();
std::vector<OpCase> gelu_forward_cases();
std::vector<OpCase> gelu_backward_cases();
// Of op_cases_updates.cpp.
std::vector<OpCase> cast_cases();
std::vector<OpCase> round_weights_cases();
std::vector<OpCase> sum_of_squares_cases();
std::vector<OpCase> adam_cases();

namespace {

constexpr DType kActs[] = {DType::f32, DType::bf16, DType::f16};
constexpr double kNaN =
    std::numeric_limits<double>::quiet_NaN();  // what outputs hold before they are written
using Shape = std::vector<int64_t>;
using Call = std::function<void(Ops&, Stream&, std::span<const Tensor>)>;

int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

CaseTensor input(std::string name, DType dtype, Shape shape, Values values) {
  return {std::move(name), dtype, std::move(shape), std::move(values), {}, {}};
}
CaseTensor random_input(std::string name, DType dtype, Shape shape, uint64_t seed, double size = 1) {
  Values values = random_values(count_of(shape), dtype, seed, size);
  return input(std::move(name), dtype, std::move(shape), std::move(values));
}

/// One rounding to the output's type, and `work` fp32 roundings of what was added up. f16 rounds to multiples
/// of 2^-24 at the low end.
void expect(CaseTensor& t, const Result& result, double work) {
  t.expected = result.value;
  t.allowed.clear();
  const double least = t.dtype == DType::f16 ? std::ldexp(1.0, -25) : std::ldexp(1.0, -126);
  for (size_t i = 0; i < result.value.size(); ++i)
    t.allowed.push_back(rounding_unit(t.dtype) * std::fabs(result.value[i]) + least +
                        work * std::ldexp(1.0, -24) * result.magnitude[i]);
}
CaseTensor output(std::string name, DType dtype, Shape shape, const Result& result, double work) {
  CaseTensor t{std::move(name), dtype, std::move(shape), Values(result.value.size(), kNaN), {}, {}};
  expect(t, result, work);
  return t;
}
/// An output that is added to.
CaseTensor sum_output(std::string name, DType dtype, Shape shape, Result result, double work, uint64_t seed) {
  CaseTensor t = random_input(std::move(name), dtype, std::move(shape), seed);
  for (size_t i = 0; i < t.before.size(); ++i) {
    result.value[i] += t.before[i];
    result.magnitude[i] += std::fabs(t.before[i]);
  }
  expect(t, result, work);
  return t;
}

std::string name(DType act, const Shape& shape, std::string_view what = "") {
  std::string text(name_of(act));
  for (const int64_t size : shape) text += (&size == shape.data() ? " " : "x") + std::to_string(size);
  return text + (what.empty() ? "" : " ") + std::string(what);
}

std::vector<int32_t> token_ids(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  for (const double v : random_values(count, DType::f64, seed, 1))
    ids.push_back(static_cast<int32_t>((v + 1) / 2 * static_cast<double>(vocab - 1)));
  return ids;
}
Values as_values(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

std::vector<OpCase> embedding_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs) {
    const int64_t n = 77, vocab = 50, width = 65;
    const std::vector<int32_t> tokens = token_ids(n, vocab, 1);
    const CaseTensor table = random_input("table", act, {vocab, width}, 2);
    CaseTensor y{"y", act, {n, width}, Values(static_cast<size_t>(n * width), kNaN), {}, {}};
    for (const int32_t token : tokens)
      y.expected.insert(y.expected.end(), table.before.begin() + token * width,
                        table.before.begin() + (token + 1) * width);
    cases.push_back({name(act, {n, width}),
                     {y, table, input("tokens", DType::i32, {n}, as_values(tokens))},
                     [](Ops& ops, Stream& s, auto t) { ops.embedding_forward(s, t[0], t[1], t[2]); }});
  }
  return cases;
}

OpCase embedding_backward_case(DType act, int64_t n, int64_t vocab, int64_t width) {
  std::vector<int32_t> tokens = token_ids(n, vocab, 1);
  tokens[1] = tokens[0];  // neighbours, the first of their token
  const CaseTensor dy = random_input("dy", act, {n, width}, 2);
  Result sum{Values(static_cast<size_t>(vocab * width)), Values(static_cast<size_t>(vocab * width))};
  for (int64_t e = 0; e < n * width; ++e) {
    const size_t to = static_cast<size_t>(tokens[static_cast<size_t>(e / width)] * width + e % width);
    sum.value[to] += dy.before[static_cast<size_t>(e)];
    sum.magnitude[to] += std::fabs(dy.before[static_cast<size_t>(e)]);
  }
  return {name(act, {n, width}, "several rows of one token"),
          {sum_output("dtable", DType::f32, {vocab, width}, sum, 8, 3), dy,
           input("tokens", DType::i32, {n}, as_values(tokens))},
          [](Ops& ops, Stream& s, auto t) { ops.embedding_backward(s, t[0], t[1], t[2]); }};
}

std::vector<OpCase> embedding_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs) {
    cases.push_back(embedding_backward_case(act, 77, 10, 300));
    cases.push_back(embedding_backward_case(act, 270, 40, 9));
  }
  return cases;
}

const Shape kNormShapes[] = {{3, 1}, {77, 8}, {70, 65}, {5, 1100}};
constexpr float kEps = 1e-5f;

std::vector<OpCase> rms_norm_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kNormShapes) {
      const CaseTensor x = random_input("x", act, shape, 1, 3), w = random_input("w", act, {shape[1]}, 2);
      const NormForward r = rms_norm_forward(x.before, w.before, static_cast<double>(kEps));
      cases.push_back(
          {name(act, shape),
           {output("y", act, shape, r.y, 6), output("rstd", DType::f32, {shape[0]}, r.rstd, 4), x, w},
           [](Ops& ops, Stream& s, auto t) { ops.rms_norm_forward(s, t[0], t[1], t[2], t[3], kEps); }});
    }
  return cases;
}

std::vector<OpCase> rms_norm_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kNormShapes) {
      const CaseTensor dy = random_input("dy", act, shape, 1), x = random_input("x", act, shape, 2, 3);
      const CaseTensor w = random_input("w", act, {shape[1]}, 3),
                       residual = random_input("dresidual", act, shape, 4);
      const CaseTensor rstd = input("rstd", DType::f32, {shape[0]},
                                    random_values(shape[0], DType::f32, 5));  // an input like any other
      const NormBackward r = rms_norm_backward(dy.before, x.before, w.before, rstd.before);
      const double rows = std::sqrt(static_cast<double>(shape[0]));
      const CaseTensor dw = sum_output("dw", DType::f32, {shape[1]}, r.dw, 6 + rows, 6);
      const CaseTensor dx = output("dx", act, shape, r.dx, 8),
                       dx_sum = sum_output("dx", act, shape, r.dx, 8, 4);
      CaseTensor dx_apart = dx_sum;
      dx_apart.before = dx.before;
      cases.push_back(
          {name(act, shape, "no residual"), {dx, dw, dy, x, w, rstd}, [](Ops& ops, Stream& s, auto t) {
             ops.rms_norm_backward(s, t[0], t[1], {}, t[2], t[3], t[4], t[5]);
           }});
      cases.push_back({name(act, shape, "frozen"), {dx, dy, x, w, rstd}, [](Ops& ops, Stream& s, auto t) {
                         ops.rms_norm_backward(s, t[0], {}, {}, t[1], t[2], t[3], t[4]);
                       }});
      cases.push_back({name(act, shape, "residual in place"),
                       {dx_sum, dw, dy, x, w, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.rms_norm_backward(s, t[0], t[1], t[0], t[2], t[3], t[4], t[5]);
                       }});
      cases.push_back({name(act, shape, "residual"),
                       {dx_apart, dw, residual, dy, x, w, rstd},
                       [](Ops& ops, Stream& s, auto t) {
                         ops.rms_norm_backward(s, t[0], t[1], t[2], t[3], t[4], t[5], t[6]);
                       }});
    }
  return cases;
}

// {m, n, k}: one tile and several, edges of every size; k beyond one panel of a 16-bit product (1024).
const Shape kProductShapes[] = {{1, 1, 1}, {5, 3, 7}, {77, 130, 65}, {270, 200, 33}, {9, 101, 1100}};

/// c = op(a) * op(b) in all types of c that the op knows, replaced and added to.
std::vector<OpCase> product_cases(bool a_turned, bool b_turned, std::vector<bool> adds, bool wide_output,
                                  void (*call)(Ops&, Stream&, std::span<const Tensor>, Into)) {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kProductShapes) {
      const int64_t m = shape[0], n = shape[1], k = shape[2];
      const CaseTensor a = random_input("a", act, a_turned ? Shape{k, m} : Shape{m, k}, 1);
      const CaseTensor b = random_input("b", act, b_turned ? Shape{n, k} : Shape{k, n}, 2);
      const Result r = product(m, n, k, a.before, a_turned, b.before, b_turned);
      const double work = 4 + std::sqrt(static_cast<double>(k));  // sums in fp32, in order
      for (const DType type :
           wide_output&& act != DType::f32 ? std::vector{act, DType::f32} : std::vector{act})
        for (const bool add : adds) {
          const CaseTensor c =
              add ? sum_output("c", type, {m, n}, r, work, 3) : output("c", type, {m, n}, r, work);
          const Into into = add ? Into::add : Into::replace;
          cases.push_back({name(act, shape, fmt::format("to {}{}", name_of(type), add ? ", added" : "")),
                           {c, a, b},
                           [=](Ops& ops, Stream& s, auto t) { call(ops, s, t, into); }});
        }
    }
  return cases;
}

std::vector<OpCase> linear_forward_cases() {
  return product_cases(false, true, {false, true}, true, [](Ops& ops, Stream& s, auto t, Into into) {
    ops.linear_forward(s, t[0], t[1], t[2], into);
  });
}
std::vector<OpCase> linear_backward_input_cases() {
  return product_cases(false, false, {false, true}, false, [](Ops& ops, Stream& s, auto t, Into into) {
    ops.linear_backward_input(s, t[0], t[1], t[2], into);
  });
}
std::vector<OpCase> linear_backward_weight_cases() {
  std::vector<OpCase> cases = product_cases(true, false, {true}, true, [](Ops& ops, Stream& s, auto t, Into) {
    ops.linear_backward_weight(s, t[0], t[1], t[2]);
  });
  std::erase_if(cases, [](const OpCase& c) { return c.tensors[0].dtype != DType::f32; });  // dw is fp32
  return cases;
}

std::vector<OpCase> add_bias_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : {Shape{1, 1}, Shape{77, 65}, Shape{40, 1100}}) {
      const CaseTensor bias = random_input("bias", act, {shape[1]}, 1);
      CaseTensor y = random_input("y", act, shape, 2);
      for (size_t i = 0; i < y.before.size(); ++i)  // one rounding: exact
        y.expected.push_back(rounded(y.before[i] + bias.before[i % bias.before.size()], act));
      cases.push_back(
          {name(act, shape), {y, bias}, [](Ops& ops, Stream& s, auto t) { ops.add_bias(s, t[0], t[1]); }});
    }
  return cases;
}

std::vector<OpCase> bias_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : {Shape{1, 1}, Shape{77, 65}, Shape{1100, 130}}) {
      const CaseTensor dy = random_input("dy", act, shape, 1);
      Result sum{Values(static_cast<size_t>(shape[1])), Values(static_cast<size_t>(shape[1]))};
      for (size_t i = 0; i < dy.before.size(); ++i) {
        sum.value[i % sum.value.size()] += dy.before[i];
        sum.magnitude[i % sum.value.size()] += std::fabs(dy.before[i]);
      }
      const double work = 2 + std::sqrt(static_cast<double>(shape[0]));
      cases.push_back({name(act, shape),
                       {sum_output("dbias", DType::f32, {shape[1]}, sum, work, 2), dy},
                       [](Ops& ops, Stream& s, auto t) { ops.bias_backward(s, t[0], t[1]); }});
    }
  return cases;
}

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const int64_t head_dim : {2, 10, 16, 64})
      for (const int direction : {1, -1}) {
        const Shape shape = {2, 9, 3, head_dim};
        Values cos, sin;
        for (const double angle :
             random_values(12 * head_dim / 2, DType::f64, 1, 3)) {  // more positions than used
          cos.push_back(rounded(std::cos(angle), DType::f32));
          sin.push_back(rounded(std::sin(angle), DType::f32));
        }
        const CaseTensor x = random_input("x", act, shape, 2),
                         c = input("cos", DType::f32, {12, head_dim / 2}, cos),
                         s = input("sin", DType::f32, {12, head_dim / 2}, sin);
        const Result r = rope(x.before, cos, sin, shape[1], shape[2], head_dim, direction);
        CaseTensor in_place = x;
        expect(in_place, r, 2);
        const std::string title = name(act, shape, direction > 0 ? "forward" : "backward");
        cases.push_back(
            {title, {output("y", act, shape, r, 2), x, c, s}, [=](Ops& ops, Stream& stream, auto t) {
               ops.rope(stream, t[0], t[1], t[2], t[3], direction);
             }});
        cases.push_back({title + " in place", {in_place, c, s}, [=](Ops& ops, Stream& stream, auto t) {
                           ops.rope(stream, t[0], t[0], t[1], t[2], direction);
                         }});
      }
  return cases;
}

AttentionShape attention_shape(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads,
                               int64_t head_dim, int64_t window) {
  return {batch,
          length,
          heads,
          kv_heads,
          head_dim,
          window,
          static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}
const AttentionShape kAttentionShapes[] = {
    attention_shape(1, 1, 1, 1, 2, 0),    attention_shape(2, 77, 4, 2, 16, 0),
    attention_shape(1, 130, 3, 1, 10, 0), attention_shape(1, 130, 2, 2, 16, 40),
    attention_shape(1, 9, 2, 1, 8, 1),    attention_shape(2, 70, 2, 2, 64, 65)};

std::string name(DType act, const AttentionShape& s) {
  return name(act, {s.batch, s.length, s.heads, s.kv_heads, s.head_dim}, fmt::format("window {}", s.window));
}
/// Roundings of a score (a dot product of head_dim terms), of exp and of the sums of probabilities.
double attention_work(const AttentionShape& s) { return 12 + 2 * std::sqrt(static_cast<double>(s.head_dim)); }

std::vector<OpCase> attention_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const AttentionShape& s : kAttentionShapes) {
      const Shape wide = {s.batch, s.length, s.heads, s.head_dim},
                  narrow = {s.batch, s.length, s.kv_heads, s.head_dim};
      const CaseTensor q = random_input("q", act, wide, 1, 2), k = random_input("k", act, narrow, 2, 2),
                       v = random_input("v", act, narrow, 3);
      const AttentionForward r = attention_forward(q.before, k.before, v.before, s);
      const double work = attention_work(s);
      cases.push_back({name(act, s),
                       {output("out", act, wide, r.out, work),
                        output("lse", DType::f32, {s.batch, s.heads, s.length}, r.lse, work), q, k, v},
                       [=](Ops& ops, Stream& stream, auto t) {
                         ops.attention_forward(stream, t[0], t[1], t[2], t[3], t[4], s);
                       }});
    }
  return cases;
}

std::vector<OpCase> attention_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const AttentionShape& s : kAttentionShapes) {
      const Shape wide = {s.batch, s.length, s.heads, s.head_dim},
                  narrow = {s.batch, s.length, s.kv_heads, s.head_dim};
      const CaseTensor dout = random_input("dout", act, wide, 4), q = random_input("q", act, wide, 1, 2),
                       k = random_input("k", act, narrow, 2, 2), v = random_input("v", act, narrow, 3);
      AttentionForward f = attention_forward(q.before, k.before, v.before, s);
      for (double& x : f.out.value) x = rounded(x, act);
      for (double& x : f.lse.value) x = rounded(x, DType::f32);
      const AttentionBackward r =
          attention_backward(dout.before, q.before, k.before, v.before, f.out.value, f.lse.value, s);
      const double work = attention_work(s);
      cases.push_back(
          {name(act, s),
           {output("dq", act, wide, r.dq, work), output("dk", act, narrow, r.dk, work),
            output("dv", act, narrow, r.dv, work), dout, q, k, v, input("out", act, wide, f.out.value),
            input("lse", DType::f32, {s.batch, s.heads, s.length}, f.lse.value)},
           [=](Ops& ops, Stream& stream, auto t) {
             ops.attention_backward(stream, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], s);
           }});
    }
  return cases;
}

const Shape kPointwiseShapes[] = {{1, 1}, {7, 65}, {130, 129}};

/// Ordinary gates, and those whose exp(-gate) overflows or vanishes.
Values gates(int64_t count, DType act) {
  Values values = random_values(count, act, 1, 6);
  const double extremes[] = {100, -100, 0, 20, -20, 60, -60};
  for (size_t i = 1; i < values.size() && i <= std::size(extremes); ++i)
    values[i] = rounded(extremes[i - 1], act);
  return values;
}

std::vector<OpCase> swiglu_forward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kPointwiseShapes) {
      const CaseTensor gate = input("gate", act, shape, gates(count_of(shape), act)),
                       up = random_input("up", act, shape, 2);
      cases.push_back({name(act, shape),
                       {output("y", act, shape, swiglu_forward(gate.before, up.before), 12), gate, up},
                       [](Ops& ops, Stream& s, auto t) { ops.swiglu_forward(s, t[0], t[1], t[2]); }});
    }
  return cases;
}

std::vector<OpCase> swiglu_backward_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kPointwiseShapes) {
      const CaseTensor dy = random_input("dy", act, shape, 3), up = random_input("up", act, shape, 2),
                       gate = input("gate", act, shape, gates(count_of(shape), act));
      const SwigluBackward r = swiglu_backward(dy.before, gate.before, up.before);
      CaseTensor over_gate = gate, over_up = up;
      expect(over_gate, r.dgate, 12);
      expect(over_up, r.dup, 12);
      cases.push_back(
          {name(act, shape),
           {output("dgate", act, shape, r.dgate, 12), output("dup", act, shape, r.dup, 12), dy, gate, up},
           [](Ops& ops, Stream& s, auto t) { ops.swiglu_backward(s, t[0], t[1], t[2], t[3], t[4]); }});
      cases.push_back(
          {name(act, shape, "in place"), {over_gate, over_up, dy}, [](Ops& ops, Stream& s, auto t) {
             ops.swiglu_backward(s, t[0], t[1], t[2], t[0], t[1]);
           }});
    }
  return cases;
}

std::vector<OpCase> add_cases() {
  std::vector<OpCase> cases;
  for (const DType act : kActs)
    for (const Shape& shape : kPointwiseShapes) {
      const CaseTensor a = random_input("a", act, shape, 1), b = random_input("b", act, shape, 2);
      CaseTensor y{"y", act, shape, Values(a.before.size(), kNaN), {}, {}};  // one rounding: exact
      for (size_t i = 0; i < a.before.size(); ++i)
        y.expected.push_back(rounded(a.before[i] + b.before[i], act));
      CaseTensor over_a = a, over_b = b;
      over_a.expected = over_b.expected = y.expected;
      cases.push_back(
          {name(act, shape), {y, a, b}, [](Ops& ops, Stream& s, auto t) { ops.add(s, t[0], t[1], t[2]); }});
      cases.push_back({name(act, shape, "over a"), {over_a, b}, [](Ops& ops, Stream& s, auto t) {
                         ops.add(s, t[0], t[0], t[1]);
                       }});
      cases.push_back({name(act, shape, "over b"), {a, over_b}, [](Ops& ops, Stream& s, auto t) {
                         ops.add(s, t[1], t[0], t[1]);
                       }});
    }
  return cases;
}

std::vector<OpCase> softmax_cross_entropy_cases() {
  std::vector<OpCase> cases;
  const float scale = 0.125f;
  for (const Shape& shape : {Shape{1, 1}, Shape{9, 257}, Shape{5, 3000}, Shape{300, 3}}) {
    const CaseTensor logits = random_input("logits", DType::f32, shape, 1, 8);
    std::vector<int32_t> ids = token_ids(shape[0], shape[1], 2);
    if (ids.size() > 4) ids[0] = ids[3] = -100;
    const CaseTensor targets = input("targets", DType::i32, {shape[0]}, as_values(ids));
    const CrossEntropy r = softmax_cross_entropy(logits.before, ids, static_cast<double>(scale));
    CaseTensor loss = input("loss", DType::f64, {1}, {2.5}), in_place = logits;
    loss.expected = {2.5 + r.loss.value[0]};
    loss.allowed = {6 * std::ldexp(1.0, -24) * r.loss.magnitude[0]};
    expect(in_place, r.dlogits, 6);
    cases.push_back(
        {name(DType::f32, shape, "loss only"), {loss, logits, targets}, [=](Ops& ops, Stream& s, auto t) {
           ops.softmax_cross_entropy(s, t[0], {}, t[1], t[2], scale);
         }});
    cases.push_back(
        {name(DType::f32, shape, "in place"), {loss, in_place, targets}, [=](Ops& ops, Stream& s, auto t) {
           ops.softmax_cross_entropy(s, t[0], t[1], t[1], t[2], scale);
         }});
    for (const DType act : kActs)
      cases.push_back({name(act, shape),
                       {loss, output("dlogits", act, shape, r.dlogits, 6), logits, targets},
                       [=](Ops& ops, Stream& s, auto t) {
                         ops.softmax_cross_entropy(s, t[0], t[1], t[2], t[3], scale);
                       }});
  }
  return cases;
}

using Maker = std::vector<OpCase> (*)();
const std::map<std::string, Maker>& table() {
  static const std::map<std::string, Maker> kTable = {
      {"embedding_forward", embedding_forward_cases},
      {"embedding_backward", embedding_backward_cases},
      {"rms_norm_forward", rms_norm_forward_cases},
      {"rms_norm_backward", rms_norm_backward_cases},
      {"layer_norm_forward", layer_norm_forward_cases},
      {"layer_norm_backward", layer_norm_backward_cases},
      {"gelu_forward", gelu_forward_cases},
      {"gelu_backward", gelu_backward_cases},
      {"linear_forward", linear_forward_cases},
      {"linear_backward_input", linear_backward_input_cases},
      {"linear_backward_weight", linear_backward_weight_cases},
      {"add_bias", add_bias_cases},
      {"bias_backward", bias_backward_cases},
      {"rope", rope_cases},
      {"attention_forward", attention_forward_cases},
      {"attention_backward", attention_backward_cases},
      {"swiglu_forward", swiglu_forward_cases},
      {"swiglu_backward", swiglu_backward_cases},
      {"add", add_cases},
      {"cast", cast_cases},
      {"softmax_cross_entropy", softmax_cross_entropy_cases},
      {"sum_of_squares", sum_of_squares_cases},
      {"adam", adam_cases},
      {"round_weights", round_weights_cases},
  };
  return kTable;
}

}  // namespace

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const auto& [op, maker] : table()) names.push_back(op);
  return names;
}

std::vector<OpCase> cases_of(const std::string& op) { return table().at(op)(); }

}  // namespace tandem::op_cases
