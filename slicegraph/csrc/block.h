// A block of neighbouring columns: what one task sorts at a time.
#pragma once

#include "vector.h"

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
  int parts;            // registers of keys that a register of values fills
  const uint8_t* mask;  // their directions, or null
  bool descending;

  SLICEGRAPH_INLINE bool descends(int64_t c) const { return mask ? mask[c] != 0 : descending; }

  template <class Bits>
  SLICEGRAPH_INLINE const char* value_from(int64_t row, int64_t c) const {
    return from + (row * from_stride + c) * int64_t(sizeof(Bits));
  }
  template <class Bits>
  SLICEGRAPH_INLINE char* value_to(int64_t row, int64_t c) const {
    return values + (row * to_stride + c) * int64_t(sizeof(Bits));
  }
  template <class Index>
  SLICEGRAPH_INLINE char* index_to(int64_t row, int64_t c) const {
    return indices + (row * to_stride + c) * int64_t(sizeof(Index));
  }
  template <class Bits>
  SLICEGRAPH_INLINE void copy_value(int64_t to, int64_t row, int64_t c) const {
    std::memcpy(value_to<Bits>(to, c), value_from<Bits>(row, c), sizeof(Bits));
  }
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
