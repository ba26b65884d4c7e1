// Long columns: least-significant-digit radix sort of the keys, one column at a time.
#pragma once

#include "network.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// The columns of a block, each in an array of its own. The interface is that of `NetworkColumns`.
template <class K>
class RadixColumns {
 public:
  using Bits = typename K::Bits;
  using Scalar = typename K::Scalar;

  // Wide digits need fewer passes, narrow ones fewer buckets.
  static constexpr int kWide = 11, kNarrow = 8;
  static constexpr int64_t kNarrowRows = 1500;
  static constexpr int passes(int digit) { return (8 * sizeof(Bits) + digit - 1) / digit; }

  // Nanoseconds to sort one of some columns, as measured, to compare with the network's.
  static constexpr double cost(int64_t n, int64_t columns) {
    const int digit = n < kNarrowRows ? kNarrow : kWide;
    return passes(digit) * ((columns < 8 ? 2.0 : 3.5) * n + 0.5 * (1 << digit));
  }

  static int64_t scratch_bytes(int64_t n, int64_t columns) {
    return (columns + 1) * pitch(n) * int64_t(sizeof(Scalar));
  }

  RadixColumns(const Block& block, void* scratch)
      : block_(block), columns_(static_cast<Scalar*>(scratch)), pitch_(pitch(block.rows)) {}

  template <bool kExact>
  bool read(Bits infinity) {
    Bits seen = 0;
    for_each_tile([&](int64_t c, int64_t first, int64_t end) {
      const Bits flip = -static_cast<Bits>(block_.descends(c));
      Scalar* column = columns_ + c * pitch_;
      for (int64_t r = first; r < end; ++r) {
        Bits bits;
        std::memcpy(&bits, block_.value_from<Bits>(r, c), sizeof bits);
        seen |= ((bits & kMagnitude<Bits>) > infinity) | (bits == ~kMagnitude<Bits>);
        const Bits key = kExact ? exact_key(bits, infinity) : flip_negative<Bits>(bits);
        column[r] = K::scalar(key ^ flip, r);
      }
    });
    return seen != 0;
  }

  void sort() {
    Scalar* spare = columns_ + block_.lanes * pitch_;
    for (int c = 0; c < block_.lanes; ++c) {
      // The passes end in one of two buffers; the other one serves the next column.
      Scalar* column = columns_ + c * pitch_;
      sorted_[c] = block_.rows < kNarrowRows ? sort_column<kNarrow>(column, spare, block_.rows)
                                             : sort_column<kWide>(column, spare, block_.rows);
      spare = sorted_[c] == column ? spare : column;
    }
  }

  template <class Index>
  void write() const {
    for_each_tile([&](int64_t c, int64_t first, int64_t end) {
      const Bits flip = -static_cast<Bits>(block_.descends(c));
      for (int64_t r = first; r < end; ++r) {
        const Scalar s = sorted_[c][r];
        const Bits bits = flip_negative<Bits, Bits>(K::scalar_key(s) ^ flip);
        std::memcpy(block_.value_to<Bits>(r, c), &bits, sizeof bits);
        if constexpr (!__is_same(Index, void)) {
          const Index row = static_cast<Index>(K::scalar_row(s));
          std::memcpy(block_.index_to<Index>(r, c), &row, sizeof row);
        }
      }
    });
  }

  void restore() const {
    for_each_tile([&](int64_t c, int64_t first, int64_t end) {
      for (int64_t r = first; r < end; ++r)
        block_.copy_value<Bits>(r, K::scalar_row(sorted_[c][r]), c);
    });
  }

 private:
  // Columns start at addresses that do not fall on the same lines of the cache.
  static int64_t pitch(int64_t n) { return n + 128 / int64_t(sizeof(Scalar)); }

  // Column after column within a few rows at a time, whose cache lines stay near.
  template <class Work>
  SLICEGRAPH_INLINE void for_each_tile(const Work& work) const {
    constexpr int64_t kTile = 64;
    for (int64_t first = 0; first < block_.rows; first += kTile) {
      const int64_t end = smaller(first + kTile, block_.rows);
      for (int64_t c = 0; c < block_.lanes; ++c) work(c, first, end);
    }
  }

  template <int kDigit>
  static Scalar* sort_column(Scalar* from, Scalar* to, int64_t n) {
    constexpr int kPasses = passes(kDigit), kBuckets = 1 << kDigit;
    const auto digit = [](Scalar s, int pass) {
      return static_cast<int>(unsigned_bits(K::scalar_key(s)) >> (pass * kDigit)) & (kBuckets - 1);
    };
    uint32_t counts[kPasses][kBuckets] = {};
    for (int64_t i = 0; i < n; ++i)
      for (int pass = 0; pass < kPasses; ++pass) ++counts[pass][digit(from[i], pass)];
    for (int pass = 0; pass < kPasses; ++pass) {
      uint32_t* start = counts[pass];
      if (start[digit(from[0], pass)] == n) continue;  // all in one bucket
      uint32_t sum = 0;
      for (int b = 0; b < kBuckets; ++b) {
        const uint32_t count = start[b];
        start[b] = sum, sum += count;
      }
      for (int64_t i = 0; i < n; ++i) to[start[digit(from[i], pass)]++] = from[i];
      Scalar* swap = from;
      from = to, to = swap;
    }
    return from;
  }

  const Block& block_;
  Scalar* const columns_;
  const int64_t pitch_;
  const Scalar* sorted_[2 * kBlockChannels];
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
