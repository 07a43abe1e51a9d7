#include "gpu/host/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "gpu/host/kernels/area.h"

namespace tandem::gpu {

namespace {

constexpr int64_t kQueryRows = 64;

int64_t tiles_of(const AttentionShape& s) { return (s.length + kQueryRows - 1) / kQueryRows; }

/// Rows [first, first + rows) of the queries, and the keys [key, key + keys) that any of them sees.
struct QueryTile {
  int64_t first, rows, key, keys;

  QueryTile(const AttentionShape& s, int64_t tile)
      : first(tile * kQueryRows),
        rows(std::min(kQueryRows, s.length - first)),
        key(s.window == 0 ? 0 : std::max<int64_t>(0, first - s.window + 1)),
        keys(first + rows - key) {}

  /// The keys that row i of the tile sees, counted from `key`: [begin, end).
  struct Seen {
    int64_t begin, end;
  };
  [[nodiscard]] Seen seen(const AttentionShape& s, int64_t i) const {
    const int64_t row = first + i;
    return {s.window == 0 ? 0 : std::max<int64_t>(0, row - s.window + 1) - key, row + 1 - key};
  }
};

/// [B, T, heads, D] as the matrix [B * T, heads * D].
Tensor as_matrix(const Tensor& t) { return t.view({t.dim(0) * t.dim(1), t.dim(2) * t.dim(3)}); }

/// Positions [first, first + rows) of one head in that matrix.
Area head_area(const AttentionShape& s, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  return {batch * s.length + first, rows, head * s.head_dim, s.head_dim};
}

/// Zeroes what a row of scores holds outside of the keys that it sees.
void clear_unseen(float* row, int64_t keys, QueryTile::Seen seen) {
  std::fill(row, row + seen.begin, 0.0f);
  std::fill(row + seen.end, row + keys, 0.0f);
}

/// Scores to probabilities, in place: [rows, keys]; lse: of the tile's rows.
void softmax_tile(const RowKernels& rows, const AttentionShape& s, const QueryTile& tile, float* scores,
                  float* lse) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    float* row = scores + i * tile.keys;
    const QueryTile::Seen seen = tile.seen(s, i);
    const int64_t count = seen.end - seen.begin;
    const RowSoftmax softmax = rows.softmax_sum(row + seen.begin, count);
    lse[i] = static_cast<float>(static_cast<double>(softmax.max) + std::log(softmax.sum));
    rows.softmax_write(row + seen.begin, DType::f32, row + seen.begin, softmax.max,
                       static_cast<float>(1.0 / softmax.sum), count);
    clear_unseen(row, tile.keys, seen);
  }
}

}  // namespace

void attention_forward(Workers& workers, const KernelTools& tools, Tensor out, Tensor lse, Tensor q, Tensor k,
                       Tensor v, AttentionShape s) {
  const Tensor outs = as_matrix(out), queries = as_matrix(q), keys = as_matrix(k), values = as_matrix(v);
  const int64_t tiles = tiles_of(s), group = s.heads / s.kv_heads;
  workers.run(s.batch * s.heads * tiles, [&](int64_t task) {
    const int64_t batch = task / tiles / s.heads, head = task / tiles % s.heads;
    const QueryTile tile(s, task % tiles);
    const Area rows = head_area(s, batch, head, tile.first, tile.rows);
    const Area seen = head_area(s, batch, head / group, tile.key, tile.keys);
    Scratch::Loan loan = tools.scratch.take(attention_scratch_floats(s.length, s.head_dim));
    const Matrix tile_q = load_area(tools.rows, queries, rows, loan.cut(rows.size()));
    const Matrix seen_k = load_area(tools.rows, keys, seen, loan.cut(seen.size()));
    const Matrix seen_v = load_area(tools.rows, values, seen, loan.cut(seen.size()));
    float* scores = loan.cut(tile.rows * tile.keys);
    float* result = loan.cut(rows.size());
    gemm({Storage::nt, tile.rows, tile.keys, s.head_dim, s.scale, tile_q, seen_k, 0.0f, scores, tile.keys});
    softmax_tile(tools.rows, s, tile, scores,
                 lse.data<float>() + (batch * s.heads + head) * s.length + tile.first);
    gemm({Storage::nn,
          tile.rows,
          s.head_dim,
          tile.keys,
          1.0f,
          {scores, tile.keys},
          seen_v,
          0.0f,
          result,
          s.head_dim});
    store_area(tools.rows, outs, rows, result);
  });
}

namespace {

/// The tensors of one backward as matrices, and what every task knows.
struct Backward {
  const KernelTools& tools;
  const AttentionShape& shape;
  Tensor dq, dk, dv, dout, q, k, v, out;  // [B * T, heads * D]
  const float* lse;                       // [B, heads, T]
};

/// One (batch, kv head): its keys and values, and the fp32 sums of their gradients. All [T, D].
struct KvHead {
  int64_t batch;
  Matrix k, v;
  float *dk, *dv;
};

/// What one query tile works in.
struct TileRoom {
  float *p, *ds;         // [rows, keys]
  float *q, *dout, *dq;  // [rows, D]
};

/// Scores to probabilities (p), and the probabilities' gradients to the scores' (ds), both in place.
void backward_rows(const Backward& in, const QueryTile& tile, const Area& area, const float* lse, float* p,
                   float* ds) {
  const RowKernels& rows = in.tools.rows;
  for (int64_t i = 0; i < tile.rows; ++i) {
    const QueryTile::Seen seen = tile.seen(in.shape, i);
    const int64_t count = seen.end - seen.begin;
    float *p_row = p + i * tile.keys, *ds_row = ds + i * tile.keys;
    const double delta = rows.dot(address(in.dout, area.row + i, area.column),
                                  address(in.out, area.row + i, area.column), in.out.dtype(), area.columns);
    rows.softmax_write(p_row + seen.begin, DType::f32, p_row + seen.begin, lse[i], 1.0f, count);
    rows.softmax_backward(ds_row + seen.begin, p_row + seen.begin, ds_row + seen.begin,
                          static_cast<float>(delta), in.shape.scale, count);
    clear_unseen(p_row, tile.keys, seen);
    clear_unseen(ds_row, tile.keys, seen);
  }
}

/// One tile of one query head: writes its dq, adds to the kv head's dk and dv.
void backward_tile(const Backward& in, const KvHead& kv, int64_t head, const QueryTile& tile,
                   const TileRoom& room) {
  const AttentionShape& s = in.shape;
  const Area area = head_area(s, kv.batch, head, tile.first, tile.rows);
  const Matrix q = load_area(in.tools.rows, in.q, area, room.q);
  const Matrix dout = load_area(in.tools.rows, in.dout, area, room.dout);
  const Matrix k{kv.k.data + tile.key * kv.k.ld, kv.k.ld}, v{kv.v.data + tile.key * kv.v.ld, kv.v.ld};
  const Matrix p{room.p, tile.keys}, ds{room.ds, tile.keys};
  float *dk = kv.dk + tile.key * s.head_dim, *dv = kv.dv + tile.key * s.head_dim;
  gemm({Storage::nt, tile.rows, tile.keys, s.head_dim, s.scale, q, k, 0.0f, room.p, tile.keys});
  gemm({Storage::nt, tile.rows, tile.keys, s.head_dim, 1.0f, dout, v, 0.0f, room.ds, tile.keys});
  backward_rows(in, tile, area, in.lse + (kv.batch * s.heads + head) * s.length + tile.first, room.p,
                room.ds);
  gemm({Storage::nn, tile.rows, s.head_dim, tile.keys, 1.0f, ds, k, 0.0f, room.dq, s.head_dim});
  gemm({Storage::tn, tile.keys, s.head_dim, tile.rows, 1.0f, ds, q, 1.0f, dk, s.head_dim});
  gemm({Storage::tn, tile.keys, s.head_dim, tile.rows, 1.0f, p, dout, 1.0f, dv, s.head_dim});
  store_area(in.tools.rows, in.dq, area, room.dq);
}

void backward_kv_head(const Backward& in, int64_t batch, int64_t kv_head) {
  const AttentionShape& s = in.shape;
  const int64_t group = s.heads / s.kv_heads;
  const Area whole = head_area(s, batch, kv_head, 0, s.length);
  Scratch::Loan loan = in.tools.scratch.take(attention_scratch_floats(s.length, s.head_dim));
  const KvHead kv{batch, load_area(in.tools.rows, in.k, whole, loan.cut(whole.size())),
                  load_area(in.tools.rows, in.v, whole, loan.cut(whole.size())), loan.cut(whole.size()),
                  loan.cut(whole.size())};
  std::fill(kv.dk, kv.dk + whole.size(), 0.0f);
  std::fill(kv.dv, kv.dv + whole.size(), 0.0f);
  const int64_t scores = kQueryRows * s.length, rows = kQueryRows * s.head_dim;
  const TileRoom room{loan.cut(scores), loan.cut(scores), loan.cut(rows), loan.cut(rows), loan.cut(rows)};
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t i = 0; i < tiles_of(s); ++i) backward_tile(in, kv, head, QueryTile(s, i), room);
  store_area(in.tools.rows, in.dk, whole, kv.dk);
  store_area(in.tools.rows, in.dv, whole, kv.dv);
}

}  // namespace

void attention_backward(Workers& workers, const KernelTools& tools, Tensor dq, Tensor dk, Tensor dv,
                        Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, AttentionShape s) {
  const Backward in{tools,
                    s,
                    as_matrix(dq),
                    as_matrix(dk),
                    as_matrix(dv),
                    as_matrix(dout),
                    as_matrix(q),
                    as_matrix(k),
                    as_matrix(v),
                    as_matrix(out),
                    lse.data<float>()};
  workers.run(s.batch * s.kv_heads,
              [&](int64_t task) { backward_kv_head(in, task / s.kv_heads, task % s.kv_heads); });
}

int64_t attention_scratch_floats(int64_t length, int64_t head_dim) {
  const auto rounded = [](int64_t count) { return Scratch::rounded(count); };
  return 4 * rounded(length * head_dim) + 2 * rounded(kQueryRows * length) +
         3 * rounded(kQueryRows * head_dim);
}

}  // namespace tandem::gpu
