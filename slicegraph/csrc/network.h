// A sorting network laid across channels: every comparator is a min and a max of two whole rows.
#pragma once

#include <utility>

#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int kChunk = 32;                              // rows sorted in registers
constexpr int kStages = kVectorBytes == 64 ? 4 : 3;     // 2^kStages rows fit the registers
constexpr int kGroup = 1 << kStages;

template <int kRows>
struct Comparators {
  int count = 0;
  int a[256] = {}, b[256] = {};

  // Batcher's merge exchange (Knuth 5.2.2 M), which needs no power of two.
  constexpr Comparators() {
    int top = 1;
    while (2 * top < kRows) top *= 2;
    for (int p = top; p > 0; p /= 2) {
      int q = top, r = 0, d = p;
      while (d > 0) {
        for (int i = 0; i + d < kRows; ++i)
          if ((i & p) == r) a[count] = i, b[count++] = i + d;
        d = q - p, q /= 2, r = p;
      }
    }
  }
};

template <int kRows, class E, int... i>
SLICEGRAPH_INLINE void apply(E (&r)[kRows], std::integer_sequence<int, i...>) {
  constexpr Comparators<kRows> network;
  (compare_exchange(r[network.a[i]], r[network.b[i]]), ...);
}

template <int kRows, class E>
void sort_in_registers(E* rows) {
  E r[kRows];
  for (int i = 0; i < kRows; ++i) r[i] = rows[i];
  apply<kRows>(r, std::make_integer_sequence<int, Comparators<kRows>().count>());
  for (int i = 0; i < kRows; ++i) rows[i] = r[i];
}

// Rows that a network for n rows works on; those from n on must hold keys above all others.
inline int64_t padded_rows(int64_t n) {
  if (n <= kChunk) return n < 2 ? 2 : n + (n & 1);
  int64_t padded = 2 * kChunk;
  while (padded < n) padded *= 2;
  return padded;
}

template <class E>
void sort_chunk(E* rows, int64_t n) {
  switch ((n + 1) / 2) {
    case 1: return sort_in_registers<2>(rows);
    case 2: return sort_in_registers<4>(rows);
    case 3: return sort_in_registers<6>(rows);
    case 4: return sort_in_registers<8>(rows);
    case 5: return sort_in_registers<10>(rows);
    case 6: return sort_in_registers<12>(rows);
    case 7: return sort_in_registers<14>(rows);
    case 8: return sort_in_registers<16>(rows);
    case 9: return sort_in_registers<18>(rows);
    case 10: return sort_in_registers<20>(rows);
    case 11: return sort_in_registers<22>(rows);
    case 12: return sort_in_registers<24>(rows);
    case 13: return sort_in_registers<26>(rows);
    case 14: return sort_in_registers<28>(rows);
    case 15: return sort_in_registers<30>(rows);
    case 16: return sort_in_registers<32>(rows);
  }
}

// Half-cleaners: distances kRows / 2 down to 1, counted in elements of r.
template <int kRows, class E>
SLICEGRAPH_INLINE void half_clean(E* r) {
  if constexpr (kRows > 1) {
    for (int i = 0; i < kRows / 2; ++i) compare_exchange(r[i], r[i + kRows / 2]);
    half_clean<kRows / 2>(r);
    half_clean<kRows / 2>(r + kRows / 2);
  }
}

// The stages `2 * span` rows need at distances span, span / 2, ..., step: log2(kRows) of them, with
// one load and one store a row.
template <int kRows, class E>
void clean_pass(E* rows, int64_t n, int64_t span) {
  const int64_t step = 2 * span / kRows;
  for (int64_t block = 0; block < n; block += 2 * span) {
    for (int64_t i = block; i < block + step && i < n; ++i) {
      E r[kRows];
      for (int j = 0; j < kRows; ++j) r[j] = rows[i + j * step];
      half_clean<kRows>(r);
      for (int j = 0; j < kRows; ++j) rows[i + j * step] = r[j];
    }
  }
}

// Merges the sorted halves of 2 * run rows, of which the first n matter. The first stage compares
// row i with its mirror image, so the smaller key always goes to the smaller row and keys above all
// others never move: no comparator depends on n.
template <class E>
void merge(E* rows, int64_t run, int64_t n) {
  constexpr int kHalf = kGroup / 2;
  const int64_t step = run / kHalf, last = 2 * run - 1;
  for (int64_t i = 0; i < step; ++i) {
    E low[kHalf], high[kHalf];  // the upper half from its far end: mirrored, so it is cleaned alike
    for (int j = 0; j < kHalf; ++j) low[j] = rows[i + j * step];
    for (int j = 0; j < kHalf; ++j) high[kHalf - 1 - j] = rows[last - i - j * step];
    for (int j = 0; j < kHalf; ++j) compare_exchange(low[j], high[kHalf - 1 - j]);
    half_clean<kHalf>(low);
    half_clean<kHalf>(high);
    for (int j = 0; j < kHalf; ++j) rows[i + j * step] = low[j];
    for (int j = 0; j < kHalf; ++j) rows[last - i - j * step] = high[kHalf - 1 - j];
  }
  int stages = 0;
  for (int64_t span = step / 2; span > 0; span /= 2) ++stages;
  for (int64_t span = step / 2; stages > 0;) {
    const int passes = (stages + kStages - 1) / kStages, now = (stages + passes - 1) / passes;
    switch (now) {
      case 1: clean_pass<2>(rows, n, span); break;
      case 2: clean_pass<4>(rows, n, span); break;
      case 3: clean_pass<8>(rows, n, span); break;
      default: clean_pass<16>(rows, n, span);
    }
    span >>= now, stages -= now;
  }
}

template <class E>
void sort_network(E* rows, int64_t n) {
  for (int64_t i = 0; i < n; i += kChunk) sort_chunk(rows + i, n - i < kChunk ? n - i : kChunk);
  for (int64_t run = kChunk; run < n; run *= 2)
    for (int64_t i = 0; i + run < n; i += 2 * run)
      merge(rows + i, run, n - i < 2 * run ? n - i : 2 * run);
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
