// Floats as integers that compare in the same order, with or without the row they came from.
//
// Flipping the lower bits of negative floats makes their bits compare as the floats do; a descending
// column has all bits of its keys flipped. With the row below the key in one integer, a min and a max
// sort stably and carry the index along. torch holds -0.0 and 0.0 equal, and every NaN equal to every
// other and above infinity: where there are such values the keys are made `exact`, which costs more
// and does not tell the bits they had.
#pragma once

#include <utility>

#include "vector.h"

#if defined(__AVX512DQ__)
// GCC 12 warns about its own header, where it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace slicegraph::SLICEGRAPH_LEVEL {

template <class Bits>
constexpr Bits kMagnitude = static_cast<Bits>(~(Bits(1) << (8 * sizeof(Bits) - 1)));

// Of one value or of a vector of them.
template <class Bits, class V>
SLICEGRAPH_INLINE V flip_negative(V bits) {
  return bits ^ ((bits >> (8 * sizeof(Bits) - 1)) & kMagnitude<Bits>);
}
template <class Bits, class V>
SLICEGRAPH_INLINE V exact_key(V bits, Bits infinity) {
  const V key = flip_negative<Bits>(bits), largest = V{} + kMagnitude<Bits>;
  return (bits & kMagnitude<Bits>) > infinity ? largest : (key == -1 ? V{} : key);
}

// A key as an unsigned number of the same order.
template <class Bits>
SLICEGRAPH_INLINE uint64_t unsigned_bits(Bits key) {
  const uint64_t top = static_cast<uint64_t>(key) << (64 - 8 * sizeof(Bits));
  return (top ^ (uint64_t(1) << 63)) >> (64 - 8 * sizeof(Bits));
}

// Watches for -0.0 and NaN.
template <class Bits, class V>
class Special {
 public:
  explicit Special(Bits infinity) : infinity_(infinity) {}
  SLICEGRAPH_INLINE void watch(V bits) {
#if defined(__AVX512DQ__)
    constexpr int kClass = 0x01 | 0x04 | 0x80;  // quiet NaN, -0.0, signalling NaN
    if constexpr (sizeof(Bits) == 4) mask_ |= _mm512_fpclass_ps_mask((__m512)bits, kClass);
    else if constexpr (sizeof(Bits) == 8) mask_ |= _mm512_fpclass_pd_mask((__m512d)bits, kClass);
    else
#endif
      seen_ |= ((bits & kMagnitude<Bits>) > infinity_) | (bits == static_cast<Bits>(~kMagnitude<Bits>));
  }
  bool seen() const { return mask_ != 0 || total<Bits, sizeof(V) / sizeof(Bits)>(seen_) != 0; }

 private:
  const Bits infinity_;
  V seen_{};
  unsigned mask_ = 0;
};

// The key alone.
template <class B>
struct ValueKey {
  using Bits = B;
  static constexpr int kLanes = kVectorBytes / sizeof(B), kParts = 1;
  using Values = Vector<B, kLanes>;
  using Element = Values;
  using Scalar = B;

  static SLICEGRAPH_INLINE void make(Values key, int64_t, Element (&e)[1]) { e[0] = key; }
  static SLICEGRAPH_INLINE Values key(const Element (&e)[1]) { return e[0]; }

  static SLICEGRAPH_INLINE Scalar scalar(B key, int64_t) { return key; }
  static SLICEGRAPH_INLINE B scalar_key(Scalar s) { return s; }
};

// The key in the upper half of an integer twice as wide, the row in the lower half. The columns of a
// register of values come to lie in two registers as the unpack instructions leave them, within groups
// of 16 bytes, and come back the same way.
template <class B, class Wide, class Row>
struct RowKey {
  using Bits = B;
  static constexpr int kLanes = kVectorBytes / sizeof(B), kParts = 2;
  static constexpr int kKeyBits = 8 * sizeof(B);
  static constexpr int kGroup = 16 / sizeof(B);
  using Values = Vector<B, kLanes>;
  using Rows = Vector<Row, kLanes>;
  using Element = Vector<Wide, kLanes / 2>;
  using Scalar = Wide;
  using Lanes = std::make_integer_sequence<int, kLanes>;
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a key is above its row");

  static SLICEGRAPH_INLINE void make(Values key, int64_t row, Element (&e)[2]) {
    const Values rows = Values{} + static_cast<B>(row);
    e[0] = interleave<0>(rows, key, Lanes());
    e[1] = interleave<1>(rows, key, Lanes());
  }
  static SLICEGRAPH_INLINE Values key(const Element (&e)[2]) {
    return separate<1>((Values)e[0], (Values)e[1], Lanes());
  }
  static SLICEGRAPH_INLINE Rows row(const Element (&e)[2]) {
    return (Rows)separate<0>((Values)e[0], (Values)e[1], Lanes());
  }
  static constexpr int column(int part, int lane) {
    constexpr int kHalf = kGroup / 2;
    return lane / kHalf * kGroup + part * kHalf + lane % kHalf;
  }

  static SLICEGRAPH_INLINE Scalar scalar(B key, int64_t row) {
    return static_cast<Wide>(key) * (Wide(1) << kKeyBits) | static_cast<Wide>(row);
  }
  static SLICEGRAPH_INLINE B scalar_key(Scalar s) { return static_cast<B>(s >> kKeyBits); }
  static SLICEGRAPH_INLINE int64_t scalar_row(Scalar s) { return static_cast<Row>(s); }

 private:
  template <int kPart, int... i>
  static SLICEGRAPH_INLINE Element interleave(Values a, Values b, std::integer_sequence<int, i...>) {
    return (Element)shuffle<B, kLanes, (i % 2 * kLanes + column(kPart, i / 2))...>(a, b);
  }
  template <int kOdd, int... i>
  static SLICEGRAPH_INLINE Values separate(Values a, Values b, std::integer_sequence<int, i...>) {
    return shuffle<B, kLanes, source(i, kOdd)...>(a, b);
  }
  // Where column i lies in the two registers, counted in halves.
  static constexpr int source(int i, int odd) {
    constexpr int kHalf = kGroup / 2;
    const int within = i % kGroup, part = within / kHalf;
    return part * kLanes + i / kGroup * kGroup + 2 * (within % kHalf) + odd;
  }
};

// Key and row side by side: no integer holds a 64-bit key and a row.
struct PairKey {
  using Bits = int64_t;
  static constexpr int kLanes = kVectorBytes / 8, kParts = 1;
  using Values = Vector<int64_t, kLanes>;
  using Rows = Values;
  using Element = Pair<Values>;
  struct Scalar {
    int64_t key, row;
  };

  static SLICEGRAPH_INLINE void make(Values key, int64_t row, Element (&e)[1]) {
    e[0] = {key, Values{} + row};
  }
  static SLICEGRAPH_INLINE Values key(const Element (&e)[1]) { return e[0].key; }
  static SLICEGRAPH_INLINE Rows row(const Element (&e)[1]) { return e[0].row; }

  static SLICEGRAPH_INLINE Scalar scalar(int64_t key, int64_t row) { return {key, row}; }
  static SLICEGRAPH_INLINE int64_t scalar_key(Scalar s) { return s.key; }
  static SLICEGRAPH_INLINE int64_t scalar_row(Scalar s) { return s.row; }
};

}  // namespace slicegraph::SLICEGRAPH_LEVEL
