// Vectors of one SIMD register, in the compiler's own vector extension: `a < b ? a : b` becomes one
// min instruction where the machine has it. Included once per SIMD level, in a namespace of its own:
// no standard template may be instantiated here, or the linker could keep the copy of the wrong level.
#pragma once

#include <cstring>

#include "jobs.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int kVectorBytes = SLICEGRAPH_VECTOR_BYTES;

template <class T, int kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <class T>
struct VectorOf<T, 1> {
  typedef T type;
};
template <class T, int kLanes>
using Vector = typename VectorOf<T, kLanes>::type;

template <class V>
SLICEGRAPH_INLINE V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
SLICEGRAPH_INLINE void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// The first `count` values from memory, at most the lanes, then zeros.
template <class V, class T>
SLICEGRAPH_INLINE V load_first(const T* from, int64_t count) {
  if (count * sizeof(T) >= sizeof(V)) return load<V>(from);
  V v{};
  std::memcpy(&v, from, count * sizeof(T));
  return v;
}

template <class T, class V>
SLICEGRAPH_INLINE void store_first(T* to, V v, int64_t count) {
  if (count * sizeof(T) >= sizeof(V)) return store(to, v);
  std::memcpy(to, &v, count * sizeof(T));
}

// The sum of the lanes, or the largest of them, by halves.
template <class T, int kLanes, bool kLargest = false>
SLICEGRAPH_INLINE T total(Vector<T, kLanes> v) {
  if constexpr (kLanes == 1) {
    return v;
  } else {
    Vector<T, kLanes / 2> a[2];
    std::memcpy(a, &v, sizeof v);
    if constexpr (kLargest) return total<T, kLanes / 2, true>(a[0] > a[1] ? a[0] : a[1]);
    else return total<T, kLanes / 2>(a[0] + a[1]);
  }
}

template <class T, int kLanes, int... i>
SLICEGRAPH_INLINE Vector<T, kLanes> shuffle(Vector<T, kLanes> a, Vector<T, kLanes> b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, i...);
#else
  return __builtin_shuffle(a, b, Vector<T, kLanes>{i...});
#endif
}

// A number that the compiler knows, and one from kFirst to kLast for the one that it does not.
template <int k>
struct Number {
  constexpr operator int() const { return k; }
};
template <int kFirst, int kLast, class Use>
SLICEGRAPH_INLINE auto with_number(int64_t n, const Use& use) {
  constexpr int kMiddle = (kFirst + kLast) / 2;
  if constexpr (kFirst == kLast) return use(Number<kFirst>());
  else if (n <= kMiddle) return with_number<kFirst, kMiddle>(n, use);
  else return with_number<kMiddle + 1, kLast>(n, use);
}

// Calls use(zero) with a zero of the type of a job's values or indices.
template <class Use>
SLICEGRAPH_INLINE auto with_float(int64_t dtype, const Use& use) {
  return dtype == kFloat32 ? use(float()) : use(double());
}
template <class Use>
SLICEGRAPH_INLINE auto with_index(int64_t bytes, const Use& use) {
  if (bytes <= 2) return bytes == 1 ? use(uint8_t()) : use(int16_t());
  return bytes == 4 ? use(int32_t()) : use(int64_t());
}

constexpr int64_t kRowsAhead = 8;

// Ask for memory ahead of its use: rows lie too far apart for the machine to guess.
SLICEGRAPH_INLINE void expect_read(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i, 0);
}
SLICEGRAPH_INLINE void expect_write(void* to, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<char*>(to) + i, 1);
}

// A key and the row it came from, for keys that leave no room for the row.
template <class V>
struct Pair {
  V key, row;
};

template <class V>
SLICEGRAPH_INLINE void compare_exchange(V& a, V& b) {
  const V low = a < b ? a : b;
  b = a < b ? b : a;
  a = low;
}

template <class V>
SLICEGRAPH_INLINE void compare_exchange(Pair<V>& a, Pair<V>& b) {
  const V swap = (b.key < a.key) | ((b.key == a.key) & (b.row < a.row));
  const Pair<V> low{swap ? b.key : a.key, swap ? b.row : a.row};
  b = {swap ? a.key : b.key, swap ? a.row : b.row};
  a = low;
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
