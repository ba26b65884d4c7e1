// Products within sets: rows added up by the weights of pairs, and the products of pairs of rows.
#pragma once

#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// Heads and sets are short: half of a wider vector would often be idle.
constexpr int kPairBytes = kVectorBytes < 32 ? kVectorBytes : 32;
// A tile's sums fill most of 16 registers.
constexpr int64_t kTileRows = 4, kTileVectors = 3;

// A matrix whose entry (i, k) is data[i * row + k * column].
template <class T>
struct Strided {
  const T* data;
  int64_t row, column;
};

template <class T>
struct Product {
  Strided<T> a;  // [rows, inner]
  Strided<T> b;  // [inner, width], of contiguous rows
  T* out;        // [rows, width], likewise
  int64_t out_row, rows, inner, width;
  const T* added = nullptr;  // like out, or null: what the sums begin with
};

// The last vector of a row begins before its place, so that it ends where the row does.
template <int kRows, int kVectors, int kLanes, class T>
void product_tile(const Product<T>& p, int64_t i, int64_t c0) {
  using V = Vector<T, kLanes>;
  constexpr int64_t kLast = (kVectors - 1) * kLanes;
  const int64_t last = c0 + kLast < p.width - kLanes ? kLast : p.width - kLanes - c0;
  const auto at = [=](int v) { return v < kVectors - 1 ? v * kLanes : last; };
  const int64_t row = p.a.row;
  const T *a = p.a.data + i * row, *b = p.b.data + c0;
  V sums[kRows][kVectors] = {};
  if (p.added)
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = load<V>(p.added + (i + r) * p.out_row + c0 + at(v));
  for (int64_t k = 0; k < p.inner; ++k, a += p.a.column, b += p.b.row) {
    V values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = load<V>(b + at(v));
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sums[r][v] += a[r * row] * values[v];
  }
  T* out = p.out + i * p.out_row + c0;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(out + r * p.out_row + at(v), sums[r][v]);
}

template <int kVectors, int kLanes, class T>
void product_columns(const Product<T>& p, int64_t c0) {
  int64_t i = 0;
  if constexpr (kVectorBytes == 64)  // there are 32 registers
    for (; i + 2 * kTileRows <= p.rows; i += 2 * kTileRows)
      product_tile<2 * kTileRows, kVectors, kLanes>(p, i, c0);
  for (; i + kTileRows <= p.rows; i += kTileRows) product_tile<kTileRows, kVectors, kLanes>(p, i, c0);
  const auto rest = [&](auto rows) { product_tile<rows, kVectors, kLanes>(p, i, c0); };
  if (i < p.rows) with_number<1, kTileRows - 1>(p.rows - i, rest);
}

// out = a b, every sum in the order of k, whatever the tile.
template <int kLanes, class T>
void product(const Product<T>& p) {
  if constexpr (kLanes > 1) {
    if (p.width < kLanes) return product<kLanes / 2>(p);
  }
  for (int64_t c0 = 0; c0 < p.width;) {
    const int64_t left = parts_of(p.width - c0, kLanes);
    const int64_t vectors = left == kTileVectors + 1 ? 2 : smaller(left, kTileVectors);
    with_number<1, kTileVectors>(vectors, [&](auto count) { product_columns<count, kLanes>(p, c0); });
    c0 += vectors * kLanes;
  }
}

template <class T>
SLICEGRAPH_INLINE void turn_4x4(const T* from, int64_t from_row, T* to, int64_t to_row) {
  using V = Vector<T, 4>;
  const V a = load<V>(from), b = load<V>(from + from_row);
  const V c = load<V>(from + 2 * from_row), d = load<V>(from + 3 * from_row);
  const V ab = shuffle<T, 4, 0, 4, 1, 5>(a, b), ab2 = shuffle<T, 4, 2, 6, 3, 7>(a, b);
  const V cd = shuffle<T, 4, 0, 4, 1, 5>(c, d), cd2 = shuffle<T, 4, 2, 6, 3, 7>(c, d);
  store(to, shuffle<T, 4, 0, 1, 4, 5>(ab, cd));
  store(to + to_row, shuffle<T, 4, 2, 3, 6, 7>(ab, cd));
  store(to + 2 * to_row, shuffle<T, 4, 0, 1, 4, 5>(ab2, cd2));
  store(to + 3 * to_row, shuffle<T, 4, 2, 3, 6, 7>(ab2, cd2));
}

// to[c * to_row + r] = from[r * from_row + c]; the last blocks overlap those before them.
template <class T>
void turn(const T* from, int64_t from_row, int64_t rows, int64_t columns, T* to, int64_t to_row) {
  if (rows < 4 || columns < 4) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) to[c * to_row + r] = from[r * from_row + c];
    return;
  }
  for (int64_t r0 = 0; r0 < rows; r0 += 4) {
    const int64_t r = smaller(r0, rows - 4);
    for (int64_t c0 = 0; c0 < columns; c0 += 4) {
      const int64_t c = smaller(c0, columns - 4);
      turn_4x4(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
    }
  }
}

template <class T>
void expect_next_head(const PairJob& job, const Set& set, const T* rows) {
  for (int64_t r = 0; r < set.length; ++r)
    expect_read(rows + job.width + r * job.heads * job.width, job.width * sizeof(T));
}

template <class T>
void pair_outer(const PairJob& job, const Set& set, const T* left, const T* right, const T* added,
                T* out, T* turned) {
  const int64_t n = set.length, width = job.width, channels = job.heads * width;
  expect_next_head(job, set, left);
  turn(right, channels, n, width, turned, n);
  if (n < job.length && !added) std::memset(out, 0, job.length * job.length * sizeof(T));
  product<kPairBytes / sizeof(T), T>(
      {{left, channels, 1}, {turned, n, 1}, out, job.length, n, width, n, added});
  // The padding. A copy of the whole square above would hold up the loads of its next rows.
  for (int64_t r = 0; r < job.length && n < job.length && added; ++r) {
    const int64_t from = r * job.length + (r < n ? n : 0), end = (r + 1) * job.length;
    std::memcpy(out + from, added + from, (end - from) * sizeof(T));
  }
}

template <class T>
void pair_task(const PairJob& job, int64_t task, void* scratch) {
  const int64_t b = task / job.heads, head = task % job.heads;
  const Set set = job.sets[b];
  const int64_t rows = (set.first * job.heads + head) * job.width;
  const int64_t square = task * job.length * job.length;
  const T *left = reinterpret_cast<const T*>(job.left), *right = reinterpret_cast<const T*>(job.right);
  T *out = reinterpret_cast<T*>(job.out), *turned = static_cast<T*>(scratch);
  expect_next_head(job, set, right + rows);
  const T* added = job.added ? reinterpret_cast<const T*>(job.added) + square : nullptr;
  if (job.outer) return pair_outer(job, set, left + rows, right + rows, added, out + square, turned);
  const int64_t n = set.length, channels = job.heads * job.width;
  const Strided<T> a{left + square, job.transposed ? 1 : job.length, job.transposed ? job.length : 1};
  product<kPairBytes / sizeof(T), T>({a, {right + rows, channels, 1}, out + rows, channels, n, n, job.width});
}

inline Plan pair_plan(const PairJob& job) {
  const int64_t bytes = value_bytes(job.dtype), longest = job.sets.longest, tasks = job.sets.count * job.heads;
  const int64_t squares = tasks * job.length * job.length, entries = job.sets.rows * job.heads * job.width;
  return {tasks, job.outer * longest * job.width * bytes, (entries * longest + squares) / 8,
          {{job.out, (job.outer ? squares : entries) * bytes}}};
}
inline void pair_task(const PairJob& job, int64_t task, void* scratch) {
  with_float(job.dtype, [&](auto zero) { pair_task<decltype(zero)>(job, task, scratch); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
