// Short columns: a sorting network laid across channels, where every comparator is a min and a max of
// two whole rows. The keys of a block of neighbouring columns stay in registers and the first cache.
#pragma once

#include <utility>

#include "keys.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int64_t kBlockChannels = 64;     // at most, and
constexpr int64_t kBlockBytes = 24 << 10;  // keys that stay in the first cache

struct Block {
  const char* from;
  char* values;
  char* indices;
  int64_t from_stride, to_stride;  // in elements
  int64_t rows;
  int64_t width;        // columns that can be read and written
  int64_t lanes;        // columns in use, at most `width`
  const uint8_t* mask;  // their directions, or null
  bool descending;

  SLICEGRAPH_INLINE bool descends(int64_t c) const { return mask ? mask[c] != 0 : descending; }

  // Where the values and the indices of a row begin with column c.
  template <class T>
  SLICEGRAPH_INLINE const T* value_from(int64_t row, int64_t c) const {
    return reinterpret_cast<const T*>(from) + row * from_stride + c;
  }
  template <class T>
  SLICEGRAPH_INLINE T* value_to(int64_t row, int64_t c) const {
    return reinterpret_cast<T*>(values) + row * to_stride + c;
  }
  template <class T>
  SLICEGRAPH_INLINE T* index_to(int64_t row, int64_t c) const {
    return reinterpret_cast<T*>(indices) + row * to_stride + c;
  }
  template <class Bits>
  SLICEGRAPH_INLINE void copy_value(int64_t to, int64_t row, int64_t c) const {
    std::memcpy(value_to<Bits>(to, c), value_from<Bits>(row, c), sizeof(Bits));
  }
};

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
  with_number<1, kChunk / 2>((n + 1) / 2, [=](auto half) { sort_in_registers<2 * half>(rows); });
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
  for (int64_t block = 0; block < n; block += 2 * span)
    for (int64_t i = block; i < block + step && i < n; ++i) {
      E r[kRows];
      for (int j = 0; j < kRows; ++j) r[j] = rows[i + j * step];
      half_clean<kRows>(r);
      for (int j = 0; j < kRows; ++j) rows[i + j * step] = r[j];
    }
}

// Merges the sorted halves of 2 * run rows; only the first n rows are needed. The first stage compares
// row i with its mirror image, so the smaller key always goes to the smaller row and keys above all
// others never move: no comparator depends on n.
template <class E>
void merge(E* rows, int64_t run, int64_t n) {
  constexpr int kHalf = kGroup / 2;
  const int64_t step = run / kHalf, last = 2 * run - 1;
  for (int64_t i = 0; i < step; ++i) {
    E low[kHalf], high[kHalf];  // the upper half from its far end, so that it is cleaned in the same way
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
    with_number<1, kStages>(now, [=](auto stages) { clean_pass<1 << stages>(rows, n, span); });
    span >>= now, stages -= now;
  }
}

template <class E>
void sort_network(E* rows, int64_t n) {
  for (int64_t i = 0; i < n; i += kChunk) sort_chunk(rows + i, smaller(n - i, kChunk));
  for (int64_t run = kChunk; run < n; run *= 2)
    for (int64_t i = 0; i + run < n; i += 2 * run) merge(rows + i, run, smaller(n - i, 2 * run));
}

// Stores row numbers, as wide as a key, in the width of the indices.
template <class Index, class V>
SLICEGRAPH_INLINE void store_narrow(Index* to, V rows) {
  constexpr int kLanes = sizeof(V) / sizeof(rows[0]);
#if defined(__AVX512BW__)
  // The compiler takes the vector apart lane by lane where one instruction narrows it.
  if constexpr (sizeof(Index) == 1 && sizeof(rows[0]) == 2)
    return store(to, _mm512_cvtepi16_epi8((__m512i)rows));
  if constexpr (sizeof(Index) == 1 && sizeof(rows[0]) == 4)
    return store(to, _mm512_cvtepi32_epi8((__m512i)rows));
  if constexpr (sizeof(Index) == 2 && sizeof(rows[0]) == 4)
    return store(to, _mm512_cvtepi32_epi16((__m512i)rows));
#endif
  Index out[kLanes];
  for (int l = 0; l < kLanes; ++l) out[l] = static_cast<Index>(rows[l]);
  std::memcpy(to, out, sizeof out);
}

// The keys of a block, register by register: the last one overlaps its neighbour where the width is
// no multiple of the lanes, and writes the same bits once more.
constexpr int64_t kSecondCacheBytes = 1 << 20, kLastCacheBytes = 16 << 20;

template <class K>
class NetworkColumns {
 public:
  using Bits = typename K::Bits;
  using Values = typename K::Values;
  using Element = typename K::Element;

  // Nanoseconds to sort the columns of one register, as measured, to compare with the radix sort's.
  static double cost(int64_t n) {
    double log = 1, padded = 2;
    while (padded < n) padded *= 2, ++log;
    const int64_t bytes = n * kVectorBytes;
    const double spill = bytes > kLastCacheBytes ? 5.0 : bytes > kSecondCacheBytes ? 1.4 : 1.0;
    const double width = sizeof(Element) > kVectorBytes ? 3 : 1;
    return 0.1 * log * log * (n + padded) * spill * width;
  }

  static int64_t scratch_bytes(int64_t n, int64_t vectors) {
    return vectors * K::kParts * padded_rows(n) * int64_t(sizeof(Element));
  }

  NetworkColumns(const Block& block, void* scratch)
      : block_(block), rows_(static_cast<Element*>(scratch)) {
    for (int64_t v = 0; v < vectors_; ++v) {
      flip_[v] = Values{} - static_cast<Bits>(block_.descending);
      for (int l = 0; block_.mask && l < K::kLanes && column(v) + l < block_.lanes; ++l)
        flip_[v][l] = -static_cast<Bits>(block_.mask[column(v) + l] != 0);
    }
  }

  // Makes the keys; true if there is a -0.0 or NaN among the values and the keys are not `exact`.
  template <bool kExact>
  bool read(Bits infinity) {
    Special<Bits, Values> special(infinity);
    const int64_t bytes = block_.width * int64_t(sizeof(Bits));
    for (int64_t r = 0; r < block_.rows; ++r) {
      expect_read(block_.value_from<Bits>(r + kRowsAhead, 0), bytes);
      expect_write(block_.value_to<Bits>(r, 0), bytes);
      for (int64_t v = 0; v < vectors_; ++v) {
        const auto bits = load<Values>(block_.value_from<Bits>(r, column(v)));
        if constexpr (!kExact) special.watch(bits);
        put(v, r, (kExact ? exact_key(bits, infinity) : flip_negative<Bits>(bits)) ^ flip_[v]);
      }
    }
    return special.seen();
  }

  void sort() {
    for (int64_t v = 0; v < vectors_; ++v) {
      for (int64_t r = block_.rows; r < padded_; ++r) put(v, r, Values{} + kMagnitude<Bits>);
      for (int part = 0; part < K::kParts; ++part)
        sort_network(rows(v, part), block_.rows);
    }
  }

  template <class Index>
  void write() const {
    for (int64_t r = 0; r < block_.rows; ++r)
      for (int64_t v = 0; v < vectors_; ++v) {
        Element e[K::kParts];
        get(v, r, e);
        store(block_.value_to<Bits>(r, column(v)), flip_negative<Bits>(K::key(e) ^ flip_[v]));
        if constexpr (!__is_same(Index, void))
          store_narrow<Index>(block_.index_to<Index>(r, column(v)), K::row(e));
      }
  }

  // Puts back the bits that exact keys left out.
  void restore() const {
    for (int64_t v = 0; v < vectors_; ++v)
      for (int64_t r = 0; r < block_.rows; ++r) {
        Element e[K::kParts];
        get(v, r, e);
        const auto row = K::row(e);
        for (int64_t l = 0; l < K::kLanes && column(v) + l < block_.lanes; ++l)
          block_.copy_value<Bits>(r, row[l], column(v) + l);
      }
  }

 private:
  int64_t column(int64_t v) const {
    const int64_t c = v * K::kLanes;
    return c + K::kLanes <= block_.width ? c : block_.width - K::kLanes;
  }
  Element* rows(int64_t v, int part) const { return rows_ + (v * K::kParts + part) * padded_; }
  SLICEGRAPH_INLINE void put(int64_t v, int64_t r, Values key) {
    Element e[K::kParts];
    K::make(key, r, e);
    for (int part = 0; part < K::kParts; ++part) rows(v, part)[r] = e[part];
  }
  SLICEGRAPH_INLINE void get(int64_t v, int64_t r, Element (&e)[K::kParts]) const {
    for (int part = 0; part < K::kParts; ++part) e[part] = rows(v, part)[r];
  }

  const Block& block_;
  Element* const rows_;
  const int64_t padded_ = padded_rows(block_.rows), vectors_ = parts_of(block_.width, K::kLanes);
  Values flip_[2 * kBlockChannels * sizeof(Bits) / kVectorBytes];
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
