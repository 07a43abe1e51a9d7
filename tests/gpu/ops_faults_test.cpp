// Teeth: the op cases' tolerances notice planted faults, each of a kind that someone has shipped.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_adam/plain_pool.h"
#include "tests/gpu/op_cases_host.h"

namespace tandem::op_cases {
namespace {

using Fault = std::function<void(OpCase&)>;

/// Plants the fault into every case of the op that `where` picks; each must complain.
void expect_noticed(
    const std::string& op, const Fault& fault,
    const std::function<bool(const OpCase&)>& where = [](const OpCase&) { return true; }) {
  const auto pool = make_plain_pool(1);
  HostRunner runner(*pool, *gpu::row_kernels().front());
  int planted = 0;
  for (OpCase& op_case : cases_of(op)) {
    if (!where(op_case)) continue;
    ++planted;
    fault(op_case);
    const auto after = runner.run(op_case);
    std::string complaints;
    for (size_t i = 0; i < after.size(); ++i)
      if (!op_case.tensors[i].expected.empty()) complaints += complaint(op_case.tensors[i], after[i]);
    EXPECT_NE(complaints, "") << op << " " << op_case.name;
  }
  EXPECT_GT(planted, 0) << op;
}

size_t index_of(const OpCase& op_case, const std::string& name) {
  for (size_t i = 0; i < op_case.tensors.size(); ++i)
    if (op_case.tensors[i].name == name) return i;
  return op_case.tensors.size();
}
CaseTensor& tensor(OpCase& op_case, const std::string& name) {
  return op_case.tensors.at(index_of(op_case, name));
}
bool many_rows(const OpCase& c) { return c.tensors.back().shape[0] > 1; }

/// The case with another call in its place.
Fault instead(const std::function<void(Ops&, Stream&, std::span<const Tensor>)>& run) {
  return [=](OpCase& op_case) { op_case.run = run; };
}

TEST(NumbersOfPlantedFaults, TargetsOfTheNextRow) {
  expect_noticed(
      "softmax_cross_entropy",
      [](OpCase& c) {
        std::rotate(tensor(c, "targets").before.begin(), tensor(c, "targets").before.begin() + 1,
                    tensor(c, "targets").before.end());
      },
      many_rows);
}

TEST(NumbersOfPlantedFaults, LossThatIsNotAdded) {
  expect_noticed("softmax_cross_entropy", [](OpCase& c) { tensor(c, "loss").before = {0}; });
}

TEST(NumbersOfPlantedFaults, RotationTheWrongWay) {
  expect_noticed("rope", [](OpCase& c) {
    for (double& x : tensor(c, "sin").before) x = -x;
  });
}

TEST(NumbersOfPlantedFaults, RotationOneTokenLate) {
  expect_noticed("rope", [](OpCase& c) {
    for (const std::string name : {"cos", "sin"}) {
      Values& v = tensor(c, name).before;
      std::rotate(v.begin(), v.begin() + tensor(c, name).shape[1], v.end());
    }
  });
}

TEST(NumbersOfPlantedFaults, ProductThatReplacesInsteadOfAdding) {
  expect_noticed("linear_forward",
                 instead([](Ops& ops, Stream& s, auto t) { ops.linear_forward(s, t[0], t[1], t[2]); }),
                 [](const OpCase& c) { return c.name.ends_with("added"); });
}

TEST(NumbersOfPlantedFaults, ProductWithoutItsLastTerm) {
  expect_noticed("linear_forward", [](OpCase& c) {
    CaseTensor& a = tensor(c, "a");
    const int64_t k = a.shape[1];
    for (int64_t i = k - 1; i < static_cast<int64_t>(a.before.size()); i += k)
      a.before[static_cast<size_t>(i)] = 0;
  });
}

TEST(NumbersOfPlantedFaults, NormWithAnotherEps) {
  expect_noticed("rms_norm_forward", instead([](Ops& ops, Stream& s, auto t) {
                   ops.rms_norm_forward(s, t[0], t[1], t[2], t[3],
                                        1.2e-5f);  // 1e-5; HF configs differ this way
                 }),
                 [](const OpCase& c) { return c.tensors[0].shape[1] > 1; });
}

TEST(NumbersOfPlantedFaults, NormWithoutItsResidual) {
  expect_noticed("rms_norm_backward", instead([](Ops& ops, Stream& s, auto t) {
                   ops.rms_norm_backward(s, t[0], t[1], {}, t[2], t[3], t[4], t[5]);
                 }),
                 [](const OpCase& c) { return c.name.ends_with("in place"); });
}

AttentionShape shape_of(std::span<const Tensor> t, int64_t window) {
  const Tensor &q = t[2], &k = t[3];
  return {q.dim(0),
          q.dim(1),
          q.dim(2),
          k.dim(2),
          q.dim(3),
          window,
          static_cast<float>(1 / std::sqrt(static_cast<double>(q.dim(3))))};
}

TEST(NumbersOfPlantedFaults, AttentionWindowOneKeyTooWide) {
  expect_noticed("attention_forward", instead([](Ops& ops, Stream& s, auto t) {
                   ops.attention_forward(s, t[0], t[1], t[2], t[3], t[4], shape_of(t, 41));
                 }),
                 [](const OpCase& c) { return c.name.ends_with("window 40"); });
}

TEST(NumbersOfPlantedFaults, AttentionThatSeesOneKeyLess) {
  expect_noticed(
      "attention_forward",
      [](OpCase& c) {  // the first key of each kv head takes another's place
        CaseTensor& k = tensor(c, "k");
        const auto width = static_cast<ptrdiff_t>(k.shape[2] * k.shape[3]);
        std::copy(k.before.begin() + width, k.before.begin() + 2 * width, k.before.begin());
      },
      [](const OpCase& c) { return c.tensors[0].shape[1] > 1 && c.name.ends_with("window 0"); });
}

TEST(NumbersOfPlantedFaults, QueryHeadsThatReadTheWrongKvHead) {
  expect_noticed(
      "attention_backward",
      [](OpCase& c) {
        CaseTensor& v = tensor(c, "v");
        const auto width = static_cast<ptrdiff_t>(v.shape[3]);
        for (auto i = v.before.begin(); i != v.before.end(); i += 2 * width)
          std::swap_ranges(i, i + width, i + width);
      },
      [](const OpCase& c) { return c.tensors[1].shape[2] == 2; });
}

TEST(NumbersOfPlantedFaults, GateAndUpExchanged) {
  expect_noticed("swiglu_forward",
                 instead([](Ops& ops, Stream& s, auto t) { ops.swiglu_forward(s, t[0], t[2], t[1]); }));
}

TEST(NumbersOfPlantedFaults, WeightsRoundedToEven) {
  expect_noticed("round_weights", instead([](Ops& ops, Stream& s, auto t) { ops.cast(s, t[0], t[1]); }),
                 [](const OpCase& c) { return c.name == "to bfloat16"; });
}

TEST(NumbersOfPlantedFaults, AdamOneStepLate) {
  expect_noticed(
      "adam", instead([](Ops& ops, Stream& s, auto t) {
        const AdamHyper h{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true};
        ops.adam(s, {t[0], t[1], t[2], t[3], t[4]}, Decay::none, adam_scalars(h, 3e-3, 4, 0.5, 64), {});
      }),
      [](const OpCase& c) { return c.name.ends_with("decay 0, prediction 0"); });
}

TEST(NumbersOfPlantedFaults, NonFiniteElementThatIsNotCounted) {
  expect_noticed(
      "sum_of_squares", [](OpCase& c) { tensor(c, "x").before.front() = 0; },
      [](const OpCase& c) { return c.name.ends_with("with faults"); });
}

}  // namespace
}  // namespace tandem::op_cases
