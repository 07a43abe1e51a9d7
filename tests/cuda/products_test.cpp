// Products by cuBLASLt: how row-major arrays are put in column-major terms, which algorithm is chosen, and
// what is refused. In plain memory, on the fake library.
#include "gpu/cuda/products.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda/cuda_rig.h"
#include "tests/cuda_fake/cublaslt.h"
#include "tests/gpu/op_cases.h"

namespace tandem::gpu::cuda {
namespace {

constexpr int kCapability = 80;
constexpr Storage kStorages[] = {Storage::nt, Storage::nn, Storage::tn};
constexpr int64_t kSlack = 4096;  // elements around an array that a planted fault may reach

/// A row-major array of small whole numbers, so that sums are exact in every order.
class Array {
 public:
  Array(int64_t rows, int64_t width, DType dtype, int64_t seed) : rows_(rows), width_(width), dtype_(dtype) {
    for (int64_t i = 0; i < rows * width + kSlack; ++i)
      values_.push_back(static_cast<double>((i * 7 + i * i % 11 + seed) % 9 - 4));
    bytes_ = op_cases::encode(dtype, values_);
    memory_.resize(bytes_.size() / sizeof(double) + 3);
    void* at = memory_.data();
    size_t room = memory_.size() * sizeof(double);
    data_ = std::align(16, bytes_.size(), at, room);
    std::memcpy(data_, bytes_.data(), bytes_.size());
  }
  [[nodiscard]] Tensor tensor() const { return {data_, dtype_, {rows_, width_}}; }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * width_ + column)];
  }
  /// What the memory holds now.
  [[nodiscard]] op_cases::Values now() const {
    return op_cases::decode(dtype_, {static_cast<const std::byte*>(data_), bytes_.size()});
  }

 private:
  int64_t rows_, width_;
  DType dtype_;
  op_cases::Values values_;
  std::vector<std::byte> bytes_;
  std::vector<double> memory_;
  void* data_;
};

struct Case {
  Storage storage;
  int64_t m, n, k;
  DType act, out;
  Into into;
};

std::vector<double> workspace_memory() {
  return std::vector<double>(product_workspace_bytes(kCapability) / sizeof(double));
}

/// Elements that differ from the sums written out below, or that lie beyond the output and changed.
int64_t wrong_elements(Products& products, const Case& c) {
  const bool a_turned = c.storage == Storage::tn, b_turned = c.storage == Storage::nt;
  const Array a(a_turned ? c.k : c.m, a_turned ? c.m : c.k, c.act, 1);
  const Array b(b_turned ? c.n : c.k, b_turned ? c.k : c.n, c.act, 2);
  const Array out(c.m, c.n, c.out, 5);
  static std::vector<double> workspace = workspace_memory();
  op_cases::Values expected = out.now();
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = c.into == Into::add ? out.at(i, j) : 0;
      for (int64_t k = 0; k < c.k; ++k)
        sum += (a_turned ? a.at(k, i) : a.at(i, k)) * (b_turned ? b.at(j, k) : b.at(k, j));
      expected[static_cast<size_t>(i * c.n + j)] = op_cases::rounded(sum, c.out);
    }
  products.enqueue(nullptr, workspace.data(), c.storage, out.tensor(), a.tensor(), b.tensor(), c.into);
  const op_cases::Values got = out.now();
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected[i];
  return wrong;
}

const std::vector<std::array<int64_t, 3>> kShapes = {{1, 1, 1},   {1, 17, 3},  {17, 1, 3},  {5, 3, 7},
                                                     {33, 65, 9}, {8, 16, 24}, {16, 16, 16}};

TEST(FakeCudaProducts, MapRowMajorArraysToColumnMajorOnes) {
  Products products(cuda_fake::cublas_lt(), kCapability);
  for (const Storage storage : kStorages)
    for (const auto& [m, n, k] : kShapes)
      for (const DType act : {DType::f32, DType::bf16, DType::f16})
        for (const DType out : {act, DType::f32})
          for (const Into into : {Into::replace, Into::add})
            EXPECT_EQ(wrong_elements(products, {storage, m, n, k, act, out, into}), 0)
                << verb_of(storage) << " " << m << "x" << n << "x" << k << " " << name_of(act) << " to "
                << name_of(out);
}

/// What the library is asked for instead of what products ask for. -1: nothing is changed.
int flipped_attribute = -1;
int64_t wider_columns_of = -1;

cublasStatus_t flip(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                    size_t bytes) {
  int32_t op = 0;
  std::memcpy(&op, value, sizeof op);
  if (attribute == flipped_attribute) op = op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
  return cuda_fake::cublas_lt().desc_set(desc, attribute, &op, bytes);
}
cublasStatus_t widen(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows, uint64_t columns,
                     int64_t ld) {
  const int64_t wider = wider_columns_of == static_cast<int64_t>(columns) ? 1 : 0;
  return cuda_fake::cublas_lt().layout_create(layout, type, rows, columns, ld + wider);
}

/// Products that come out wrong or are refused, of the shapes and storages above.
bool all_are_noticed(const CublasLt& faulty, const std::vector<std::array<int64_t, 3>>& shapes) {
  for (const Storage storage : kStorages)
    for (const auto& [m, n, k] : shapes) {
      Products products(faulty, kCapability);
      try {
        if (wrong_elements(products, {storage, m, n, k, DType::f32, DType::f32, Into::replace}) == 0)
          return false;
      } catch (const Error&) {
      }
    }
  return true;
}

TEST(FakeCudaProducts, NoticeATransposedOperand) {
  CublasLt faulty = cuda_fake::cublas_lt();
  faulty.desc_set = flip;
  for (const int attribute : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB}) {
    flipped_attribute = attribute;
    // 16x16x16 is one that no check of shapes can refuse.
    EXPECT_TRUE(all_are_noticed(faulty, {{16, 16, 16}, {5, 3, 7}, {33, 65, 9}})) << attribute;
  }
}

TEST(FakeCudaProducts, NoticeAWrongLeadingDimension) {
  CublasLt faulty = cuda_fake::cublas_lt();
  faulty.layout_create = widen;
  for (const int64_t columns : {5, 7}) {  // rows of one operand and of the output; rows of the other
    wider_columns_of = columns;
    bool noticed = false;
    for (const Storage storage : kStorages) {
      Products products(faulty, kCapability);
      noticed |= wrong_elements(products, {storage, 5, 3, 7, DType::f32, DType::f32, Into::replace}) > 0;
    }
    EXPECT_TRUE(noticed) << columns;
  }
}

TEST(FakeCudaProducts, TakeTheFirstAlgorithmWhoseBitsDontChange) {
  Products products(cuda_fake::cublas_lt(), kCapability);
  EXPECT_EQ(wrong_elements(products, {Storage::nt, 8, 16, 24, DType::bf16, DType::bf16, Into::replace}), 0);
  EXPECT_EQ(wrong_elements(products, {Storage::nt, 5, 3, 7, DType::bf16, DType::bf16, Into::replace}), 0);
  const AlgorithmTable table = products.algorithms();
  ASSERT_EQ(table.size(), 2u);
  for (const auto& [key, entry] : table) {
    // Rows of 16 and of 24 elements can be read 16 bytes at a time, those of 3 and of 7 can't.
    const cuda_fake::LtAlgorithm& expected = cuda_fake::lt_algorithms()[key.m == 8 ? 4 : 5];
    const Algorithm& a = entry.algorithm;
    EXPECT_EQ(a, (Algorithm{expected.id, expected.tile, expected.stages, expected.split_k, expected.reduction,
                            0, 0, 0, expected.cluster_shape}))
        << key.m;
  }
}

/// Proves that the choice matters: the same list, with in-place reduction called by the other's name.
TEST(FakeCudaProducts, NoticeAnAlgorithmThatReducesInPlace) {
  CublasLt faulty = cuda_fake::cublas_lt();
  faulty.config_get = [](const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                         void* value, size_t bytes, size_t* written) {
    const cublasStatus_t status = cuda_fake::cublas_lt().config_get(algo, attribute, value, bytes, written);
    auto* const scheme = static_cast<uint32_t*>(value);
    if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME && *scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE)
      *scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return status;
  };
  faulty.config_set = [](cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                         const void* value, size_t bytes) {
    const uint32_t in_place = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) value = &in_place;
    return cuda_fake::cublas_lt().config_set(algo, attribute, value, bytes);
  };
  Products products(faulty, kCapability);
  EXPECT_GT(wrong_elements(products, {Storage::nt, 8, 16, 24, DType::f32, DType::f32, Into::replace}), 0);
}

TEST(FakeCudaProducts, TakeRowsOfTensorsButNoOtherAddresses) {
  Products products(cuda_fake::cublas_lt(), kCapability);
  std::vector<double> workspace = workspace_memory();
  const Array x(9, 7, DType::bf16, 1), w(3, 7, DType::bf16, 2), y(9, 3, DType::bf16, 3);
  products.enqueue(nullptr, workspace.data(), Storage::nt, y.tensor().rows(4, 5), x.tensor().rows(4, 5),
                   w.tensor(), Into::replace);
  const op_cases::Values got = y.now();
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < 7; ++k) sum += x.at(i, k) * w.at(j, k);
      const double expected = i < 4 ? y.at(i, j) : op_cases::rounded(sum, DType::bf16);
      EXPECT_EQ(got[static_cast<size_t>(i * 3 + j)], expected) << i << " " << j;
    }
  const Array wide(8, 8, DType::bf16, 1);
  const Tensor astray(wide.tensor().bytes_at(2), DType::bf16, {5, 8});
  EXPECT_THROW(products.enqueue(nullptr, workspace.data(), Storage::nt, wide.tensor().rows(0, 5), astray,
                                wide.tensor(), Into::replace),
               InternalError);
}

TEST(FakeCudaProducts, TakeTheTablesAlgorithm) {
  AlgorithmTable table;
  {
    Products products(cuda_fake::cublas_lt(), kCapability);
    (void)wrong_elements(products, {Storage::tn, 8, 16, 24, DType::bf16, DType::f32, Into::add});
    table = products.algorithms();
  }
  const cuda_fake::LtAlgorithm& other = cuda_fake::lt_algorithms()[5];
  table.begin()->second = {{other.id, other.tile, other.stages}};
  Products products(cuda_fake::cublas_lt(), kCapability, table);
  EXPECT_EQ(wrong_elements(products, {Storage::tn, 8, 16, 24, DType::bf16, DType::f32, Into::add}), 0);
  EXPECT_EQ(products.algorithms().begin()->second.algorithm, table.begin()->second.algorithm);
}

TEST(FakeCudaProducts, RefuseEntriesThatTheLibraryOrTheContractRefuses) {
  const Case c{Storage::nn, 5, 3, 7, DType::f32, DType::f32, Into::replace};
  const ProductKey key{c.storage, c.m, c.n, c.k, c.act, c.out, false, kCapability};
  const auto message_with = [&](const Algorithm& algorithm) {
    Products products(cuda_fake::cublas_lt(), kCapability, {{key, {algorithm, "a.json:7:3 (products[0])"}}});
    return message_of<Error>([&] { (void)wrong_elements(products, c); });
  };
  const std::string unknown = message_with({66, 1, 2});
  EXPECT_TRUE(contains(unknown,
                       "cuBLASLt refuses algorithm 66 for linear_backward_input of m 5, n 3, k 7 in "
                       "float32 to float32: CUBLAS_STATUS_NOT_SUPPORTED"))
      << unknown;
  EXPECT_TRUE(contains(unknown, "at: a.json:7:3 (products[0])")) << unknown;
  EXPECT_TRUE(contains(message_with({99, 1, 2}), "refuses algorithm 99"));
  const cuda_fake::LtAlgorithm& in_place = cuda_fake::lt_algorithms()[0];
  const std::string atomics =
      message_with({in_place.id, in_place.tile, in_place.stages, in_place.split_k, in_place.reduction});
  EXPECT_TRUE(contains(atomics, "differs from run to run")) << atomics;
  EXPECT_TRUE(contains(atomics, "at: a.json:7:3")) << atomics;
}

TEST(FakeCudaProducts, GiveBackAllThatTheyMade) {
  const size_t before = cuda_fake::lt_objects_alive();
  {
    Products products(cuda_fake::cublas_lt(), kCapability);
    (void)wrong_elements(products, {Storage::nn, 5, 3, 7, DType::f32, DType::f32, Into::add});
    EXPECT_GT(cuda_fake::lt_objects_alive(), before);
  }
  EXPECT_EQ(cuda_fake::lt_objects_alive(), before);
}

TEST(FakeCudaProducts, OpenTheLibraryWholeOrSayThatItIsMissing) {
  try {
    EXPECT_STREQ(cublas_lt().status_name(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  } catch (const Error& missing) {
    EXPECT_TRUE(contains(missing.message(), "libcublasLt.so.")) << missing.what();
    EXPECT_TRUE(contains(missing.hint(), "install cuBLAS ")) << missing.what();
  }
}

TEST(FakeCudaProducts, HaveAWorkspaceByArchitectureAlone) {
  EXPECT_EQ(product_workspace_bytes(80), size_t{8} << 20);
  EXPECT_EQ(product_workspace_bytes(89), size_t{8} << 20);
  EXPECT_EQ(product_workspace_bytes(90), size_t{32} << 20);
  EXPECT_EQ(product_workspace_bytes(120), size_t{32} << 20);
}

}  // namespace
}  // namespace tandem::gpu::cuda
