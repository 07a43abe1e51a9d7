#include "gpu/host/kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

namespace {

int64_t token_at(const Tensor& tokens, int64_t n, int64_t vocab) {
  const int32_t token = tokens.data<int32_t>()[n];
  ASSERT(token >= 0 && token < vocab, "token {} at {} of a vocabulary of {}", token, n, vocab);
  return token;
}

}  // namespace

void embedding_forward(Workers& workers, const KernelTools&, Tensor y, Tensor table, Tensor tokens) {
  const int64_t width = y.dim(1);
  const size_t row_bytes = static_cast<size_t>(width) * size_of(y.dtype());
  share(workers, y.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      std::memcpy(address(y, n, 0), address(table, token_at(tokens, n, table.dim(0)), 0), row_bytes);
  });
}

void embedding_backward(Workers& workers, const KernelTools& tools, Tensor dtable, Tensor dy, Tensor tokens) {
  constexpr int64_t kColumns = 128;
  workers.ranges(dy.dim(1), kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < dy.dim(0); ++n)
      tools.rows.accumulate(
          reinterpret_cast<float*>(address(dtable, token_at(tokens, n, dtable.dim(0)), begin)),
          address(dy, n, begin), dy.dtype(), end - begin);
  });
}

}  // namespace tandem::gpu
