#pragma once
// Rectangles of matrices, in fp32 whatever the matrix is stored in.
#include <cstdint>

#include "core/base/tensor.h"
#include "gpu/host/kernels/row_kernels.h"
#include "gpu/host/linear_blas.h"

namespace tandem::gpu {

/// Rows [row, row + rows) and columns [column, column + columns) of a matrix.
struct Area {
  int64_t row, rows, column, columns;
  [[nodiscard]] int64_t size() const { return rows * columns; }
};

/// Where element (row, column) of a readable [R, C] tensor lies.
inline std::byte* address(const Tensor& t, int64_t row, int64_t column) {
  return t.bytes_at(static_cast<size_t>(row * t.dim(1) + column) * size_of(t.dtype()));
}

/// Floats of room that load_area needs.
inline int64_t area_room(const Tensor& t, const Area& area) {
  return t.dtype() == DType::f32 ? 0 : area.size();
}

/// The area in fp32: where it lies if the tensor is fp32, else converted into `room`.
inline Matrix load_area(const RowKernels& rows, const Tensor& t, const Area& area, float* room) {
  if (t.dtype() == DType::f32)
    return {reinterpret_cast<const float*>(address(t, area.row, area.column)), t.dim(1)};
  for (int64_t i = 0; i < area.rows; ++i)
    rows.cast(room + i * area.columns, DType::f32, address(t, area.row + i, area.column), t.dtype(),
              area.columns);
  return {room, area.columns};
}

/// Writes [rows, columns] floats into the area, rounded to nearest even.
inline void store_area(const RowKernels& rows, const Tensor& t, const Area& area, const float* values) {
  for (int64_t i = 0; i < area.rows; ++i)
    rows.cast(address(t, area.row + i, area.column), t.dtype(), values + i * area.columns, DType::f32,
              area.columns);
}

}  // namespace tandem::gpu
