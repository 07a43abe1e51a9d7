#include "offload/checkpoint_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/core/expect_error.h"

namespace tandem {
namespace {

RunState some_state() {
  RunState state;
  state.step = 17;
  state.sample = (uint64_t{1} << 63) + 5;
  state.epoch = 0.1 + 0.2;
  state.seed = UINT64_MAX;
  state.dtype = DType::f16;
  state.config_hash = "0123456789abcdef";
  state.data = {{"/data/a \"b\".bin", {161, 0xfedcba9876543210u}}};
  state.train.progress = {14, 1, 3};
  PolicyState& policy = state.train.policy;
  policy.step = 17;
  policy.lag = 1;
  policy.since_step = 12;
  policy.zero_until_step = 11;
  policy.scaler = {1.0 / 3, 4, 2};
  policy.staleness = {{1.0 / 3, 2.5}, 0.1 + 0.2};
  policy.pending = {{15, true, std::numeric_limits<double>::infinity(), 65536},
                    {16, false, 2.7182818284590451, 32768}};
  return state;
}

const FileSums kFiles = {{"model.safetensors", {5, 7}}, {"optimizer/master.safetensors", {0, UINT64_MAX}}};

json::Document written() {
  return json::parse(json::dump(render_state(some_state(), kFiles), 2), "state.json");
}

TEST(CheckpointState, ComesBackExactly) {
  const json::Document document = written();
  const ParsedState parsed = parse_state(json::Node(document));
  EXPECT_EQ(parsed.files, kFiles);
  const RunState a = some_state(), &b = parsed.state;
  EXPECT_EQ(b.step, a.step);
  EXPECT_EQ(b.sample, a.sample);
  EXPECT_EQ(b.epoch, a.epoch);
  EXPECT_EQ(b.seed, a.seed);
  EXPECT_EQ(b.dtype, a.dtype);
  EXPECT_EQ(b.config_hash, a.config_hash);
  ASSERT_EQ(b.data.size(), 1u);
  EXPECT_EQ(b.data[0].path, a.data[0].path);
  EXPECT_EQ(b.data[0].sum, a.data[0].sum);
  EXPECT_EQ(b.train.progress.updates, 14);
  EXPECT_EQ(b.train.progress.skipped, 3);
  EXPECT_EQ(b.train.progress.skipped_in_a_row, 1);
  const PolicyState &p = a.train.policy, &q = b.train.policy;
  EXPECT_EQ(q.step, p.step);
  EXPECT_EQ(q.lag, p.lag);
  EXPECT_EQ(q.since_step, p.since_step);
  EXPECT_EQ(q.zero_until_step, p.zero_until_step);
  EXPECT_EQ(q.scaler, p.scaler);
  EXPECT_EQ(q.staleness, p.staleness);
  ASSERT_EQ(q.pending.size(), 2u);
  EXPECT_EQ(q.pending[0].step, 15);
  EXPECT_TRUE(q.pending[0].nonfinite);
  EXPECT_FALSE(std::isfinite(q.pending[0].loss));
  EXPECT_EQ(q.pending[0].scale, 65536);
  EXPECT_EQ(q.pending[1].loss, p.pending[1].loss);
  // Written again it is the same text.
  EXPECT_EQ(json::dump(render_state(parsed.state, parsed.files), 2), json::dump(document.root, 2));
}

TEST(CheckpointState, HoldsAnEmptyOrUnfinishedStaleness) {
  for (const StalenessState& staleness : {StalenessState{}, StalenessState{{2.5}, {}}}) {
    RunState state = some_state();
    state.train.policy.staleness = staleness;
    const json::Document document = json::parse(json::dump(render_state(state, kFiles), 2), "state.json");
    EXPECT_TRUE(document.root.find("staleness")->is_object());
    EXPECT_EQ(parse_state(json::Node(document)).state.train.policy.staleness, staleness);
  }
}

TEST(CheckpointState, NoticesEveryChangedNumber) {
  RunState state = some_state();
  state.epoch = 0.5;  // numbers of few digits: another last digit of a long one may be the same number
  state.train.policy.scaler.scale = 0.25;
  state.train.policy.staleness = {{1.5, 2.5}, 1.25};
  state.train.policy.pending[1].loss = 2.5;
  const std::string text = json::dump(render_state(state, kFiles), 2);
  size_t changed = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] < '1' || text[at] > '8') continue;
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] + 1);
    ++changed;
    EXPECT_THROW(
        {
          const json::Document document = json::parse(flipped, "state.json");
          (void)parse_state(json::Node(document));
        },
        Error)
        << "at " << at << ": " << text.substr(at > 20 ? at - 20 : 0, 40);
  }
  EXPECT_GT(changed, 100u);
}

TEST(CheckpointState, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const char* key, const char* value, std::initializer_list<const char*> parts) {
    json::Document document = written();
    document.root.set(key, json::parse(value, "value").root);
    expect_error(Status::usage, parts, [&] { (void)parse_state(json::Node(document)); });
  };
  refused("format_version", "2", {"is 2; this program reads 1", "format_version"});
  refused("sample", "6", {"is not the hash of this state"});
}

}  // namespace
}  // namespace tandem
