// GELU, x P(X <= x) for a standard normal X, and its derivative.
#pragma once

#include "job.h"
#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// Of a standard normal X and u >= 0: e^(-u^2 / 2) and P(X > u).
template <class V>
struct Tail {
  V exponential, beyond;
};

// e^z for z in -100..0, within 1.2e-7 of it; below 2^-126 it is 0. Powers of two times a polynomial
// with a relative error of 3.1e-9.
template <int kLanes>
SLICEGRAPH_INLINE Vector<float, kLanes> exponential(Vector<float, kLanes> z) {
  using V = Vector<float, kLanes>;
  using Bits = Vector<uint32_t, kLanes>;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: an integer added to it stands in its low bits
  const V power = z * 1.44269504f;
  const V rounded = (power < -127.0f ? V{} - 127.0f : power) + kRound;
  const V n = rounded - kRound;
  const V r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  V p = r * 1.38144026e-3f + 8.36878621e-3f;
  p = p * r + 4.16683955e-2f;
  p = p * r + 1.66665200e-1f;
  p = p * r + 4.99999934e-1f;
  p = p * (r * r) + r + 1.0f;
  const Bits bits = (load<Bits>(&rounded) << 23) + 0x3f800000u;
  return p * load<V>(&bits);
}

// P(X > u) e^(u^2 / 2) as a quotient of polynomials with positive coefficients, which lose nothing
// to cancellation; its relative error is 5.8e-9 up to 14.2.
template <int kLanes>
SLICEGRAPH_INLINE Tail<Vector<float, kLanes>> tail(Vector<float, kLanes> u) {
  using V = Vector<float, kLanes>;
  V p = u * 4.09367601e-3f + 4.04814864e-2f;
  p = p * u + 1.82786014e-1f;
  p = p * u + 4.37690156e-1f;
  p = p * u + 5.00000003e-1f;
  V q = u * 1.02611992e-2f + 1.01478691e-1f;
  q = q * u + 4.68284619e-1f;
  q = q * u + 1.20063995f;
  q = q * u + 1.67326527f;
  q = q * u + 1.0f;
  const V e = exponential<kLanes>(u * u * -0.5f);
  return {e, e * (p / q)};
}

// gelu(x) is -u P(X > u) below 0 and x more than that above, with u = |x|. Its derivative likewise is
// P(X > u) - u e^(-u^2 / 2) / sqrt(2 pi), or 1 less that. From 14 on both P and e are 0 in float32.
inline void gelu_task(const GeluJob& job, int64_t task) {
  constexpr int kLanes = kVectorBytes / sizeof(float);
  using V = Vector<float, kLanes>;
  const int64_t first = task * kGeluSpan, left = job.count - first;
  const float *from = job.x + first, *of_y = job.g ? job.g + first : nullptr;
  float *y = job.y + first, *of_x = job.of_x + first;
  cover<kLanes>(left < kGeluSpan ? left : kGeluSpan, [=](int64_t i, auto lanes) {
    const V x = load<V>(from + i, lanes, 0.0f);
    const V size = x > 0.0f ? x : -x;
    const V u = size > 14.0f ? V{} + 14.0f : size;
    const Tail<V> t = tail<kLanes>(u);
    const V loss = u * t.beyond;
    store(y + i, x < 0.0f ? -loss : x - loss, lanes);
    if (!of_y) return;
    const V slope = t.beyond - u * t.exponential * 0.39894228f;
    const V g = load<V>(of_y + i, lanes, 0.0f);
    store(of_x + i, g * (x < 0.0f ? slope : 1.0f - slope), lanes);
  });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
