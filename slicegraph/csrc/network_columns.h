// Short columns: the keys of a block in registers, sorted by a network across the columns.
#pragma once

#include "block.h"
#include "keys.h"
#include "narrow.h"
#include "network.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

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
      : block_(block),
        rows_(static_cast<Element*>(scratch)),
        padded_(padded_rows(block.rows)),
        vectors_((block.width + K::kLanes - 1) / K::kLanes) {
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
        if constexpr (kExact) {
          put(v, r, exact_key(bits, infinity) ^ flip_[v]);
        } else {
          special.watch(bits);
          put(v, r, flip_negative<Bits>(bits) ^ flip_[v]);
        }
      }
    }
    return special.seen();
  }

  void sort() {
    for (int64_t v = 0; v < vectors_; ++v) {
      for (int64_t r = block_.rows; r < padded_; ++r) put(v, r, Values{} + kMagnitude<Bits>);
      for (int part = 0; part < K::kParts && part < block_.parts; ++part)
        sort_network(rows(v, part), block_.rows);
    }
  }

  template <class Index>
  void write() const {
    for (int64_t r = 0; r < block_.rows; ++r) {
      for (int64_t v = 0; v < vectors_; ++v) {
        Element e[K::kParts];
        get(v, r, e);
        store(block_.value_to<Bits>(r, column(v)), flip_negative<Bits>(K::key(e) ^ flip_[v]));
        if constexpr (!__is_same(Index, void))
          store_narrow<Index>(block_.index_to<Index>(r, column(v)), K::row(e));
      }
    }
  }

  // Puts back the bits that exact keys left out.
  void restore() const {
    for (int64_t v = 0; v < vectors_; ++v) {
      for (int64_t r = 0; r < block_.rows; ++r) {
        Element e[K::kParts];
        get(v, r, e);
        const auto row = K::row(e);
        for (int64_t l = 0; l < K::kLanes && column(v) + l < block_.lanes; ++l) {
          block_.copy_value<Bits>(r, row[l], column(v) + l);
        }
      }
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
    for (int part = 0; part < K::kParts; ++part)
      if (part < block_.parts) rows(v, part)[r] = e[part];
  }
  SLICEGRAPH_INLINE void get(int64_t v, int64_t r, Element (&e)[K::kParts]) const {
    for (int part = 0; part < K::kParts; ++part)
      e[part] = part < block_.parts ? rows(v, part)[r] : Element{};
  }

  const Block& block_;
  Element* const rows_;
  const int64_t padded_, vectors_;
  Values flip_[2 * kBlockChannels * sizeof(Bits) / kVectorBytes];
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
