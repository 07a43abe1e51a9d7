// algorithms.json: what is written is what is read, and a bad file says where it is bad.
#include "gpu/cuda/algorithms.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cuda/cuda_rig.h"

namespace tandem::gpu::cuda {
namespace {

class FakeCudaAlgorithms : public testing::Test {
 protected:
  FakeCudaAlgorithms()
      : folder_(std::filesystem::temp_directory_path() /
                ("tandem_algorithms_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~FakeCudaAlgorithms() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return (folder_ / "algorithms.json").string(); }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// What is said of the good file after `what` in it was replaced.
  [[nodiscard]] std::string complaint(const std::string& what, const std::string& by) const {
    write_algorithms(path(), table_);
    std::string bad = text();
    const size_t at = bad.find(what);
    if (at == std::string::npos) ADD_FAILURE() << "the file has no " << what;
    bad.replace(at, what.size(), by);
    std::ofstream(path()) << bad;
    const std::string said = message_of<Error>([&] { (void)read_algorithms(path()); });
    EXPECT_TRUE(contains(said, "algorithms.json:")) << said;
    return said;
  }

  const std::filesystem::path folder_;
  const AlgorithmTable table_ = {{{Storage::nt, 4096, 12288, 4096, DType::bf16, DType::bf16, false, 90},
                                  {{66, 601, 36, 1, 0, 1, 7, 65535, 12}}},
                                 {{Storage::tn, 7, 5, int64_t{1} << 40, DType::f16, DType::f32, true, 120},
                                  {{2147483647, 4294967295u, 4294967294u, 8, 2, 4294967293u, 1, 2, 3}}},
                                 {{Storage::nn, 1, 1, 1, DType::f32, DType::f32, true, 80}, {{}}}};
};

TEST_F(FakeCudaAlgorithms, ComeBackAsTheyWereWritten) {
  write_algorithms(path(), table_);
  const AlgorithmTable read = read_algorithms(path());
  ASSERT_EQ(read.size(), table_.size());
  for (const auto& [key, entry] : table_) {
    ASSERT_TRUE(read.contains(key)) << key.m;
    EXPECT_EQ(read.at(key).algorithm, entry.algorithm) << key.m;
    EXPECT_TRUE(contains(read.at(key).where, path() + ":")) << read.at(key).where;
  }
  const std::string first = text();
  write_algorithms(path(), read);
  EXPECT_EQ(text(), first);
}

TEST_F(FakeCudaAlgorithms, RefuseBadFiles) {
  EXPECT_TRUE(contains(complaint("\"tandem-algorithms\"", "\"other\""), "tandem-algorithms"));
  EXPECT_TRUE(contains(complaint("\"version\": 1", "\"version\": 2"), "version 2, not 1"));
  EXPECT_TRUE(contains(complaint("\"linear_backward_input\"", "\"linear\""),
                       "is none of linear_forward, linear_backward_input, linear_backward_weight"));
  EXPECT_TRUE(contains(complaint("\"act\": \"bfloat16\"", "\"act\": \"float64\""),
                       "is none of float32, bfloat16, float16"));
  EXPECT_TRUE(contains(complaint("\"out\": \"bfloat16\"", "\"out\": \"float16\""), "is none of bfloat16"));
  EXPECT_TRUE(contains(complaint("\"inner_shape\": 65535", "\"inner_shape\": 65536"), "inner_shape"));
  EXPECT_TRUE(contains(complaint("\"split_k\": 8", "\"split_k\": 0"), "split_k"));
  EXPECT_TRUE(contains(complaint("\"tile\": 601,", ""), "tile"));
  EXPECT_TRUE(contains(complaint("\"tile\"", "\"tiles\""), "unknown key \"tiles\""));
  EXPECT_TRUE(contains(complaint("\"m\": 4096", "\"m\": 4096.5"), "products["));
  EXPECT_TRUE(contains(complaint("]", ""), "algorithms.json:"));
}

TEST_F(FakeCudaAlgorithms, RefuseAProductThatComesTwice) {
  AlgorithmTable two = table_;
  write_algorithms(path(), two);
  const std::string good = text();
  const size_t begin = good.find("    {"), end = good.find("    },", begin) + 7;
  std::ofstream(path()) << good.substr(0, end) + good.substr(begin);
  const std::string said = message_of<Error>([&] { (void)read_algorithms(path()); });
  EXPECT_TRUE(contains(said, "this product has an algorithm at " + path() + ":5:")) << said;
}

TEST_F(FakeCudaAlgorithms, NeedTheirFile) {
  const std::string said = message_of<Error>([&] { (void)read_algorithms(path()); });
  EXPECT_TRUE(contains(said, "algorithms.json")) << said;
}

}  // namespace
}  // namespace tandem::gpu::cuda
