// Rows less their mean, over their deviation, scaled and shifted; and the gradients of all that.
#pragma once

#include <cmath>

#include "job.h"
#include "vector.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

template <class T>
class LayerNorm {
 public:
  explicit LayerNorm(const NormJob& job)
      : scale_(reinterpret_cast<const T*>(job.scale)),
        shift_(reinterpret_cast<const T*>(job.shift)),
        width_(job.width),
        eps_(static_cast<T>(job.eps)) {}

  void forward(const T* x, T* y) const {
    const Spread s = spread(x);
    cover<kLanes>(width_, [&](int64_t c, auto lanes) {
      store(y + c, normed(x, c, lanes, s) * at(scale_, c, lanes) + at(shift_, c, lanes), lanes);
    });
  }

  // Adds to `of_scale` and `of_shift`; `of_x` may be `g`.
  void backward(const T* x, const T* g, T* y, T* of_x, T* of_scale, T* of_shift) const {
    const Spread s = spread(x);
    V of_mean{}, of_deviation{};
    cover<kLanes>(width_, [&](int64_t c, auto lanes) {
      const V z = normed(x, c, lanes, s), of_y = at(g, c, lanes), scale = at(scale_, c, lanes);
      store(y + c, z * scale + at(shift_, c, lanes), lanes);
      store(of_scale + c, at(of_scale, c, lanes) + of_y * z, lanes);
      store(of_shift + c, at(of_shift, c, lanes) + of_y, lanes);
      of_mean += of_y * scale;
      of_deviation += of_y * scale * z;
    });
    const T mean = sum(of_mean) / width_, deviation = sum(of_deviation) / width_;
    cover<kLanes>(width_, [&](int64_t c, auto lanes) {
      const V of_z = at(g, c, lanes) * at(scale_, c, lanes);
      store(of_x + c, s.inverse * (of_z - mean - normed(x, c, lanes, s) * deviation), lanes);
    });
  }

 private:
  static constexpr int kLanes = kVectorBytes / sizeof(T);
  using V = Vector<T, kLanes>;

  struct Spread {
    T mean, inverse;  // of the deviation
  };

  static T sum(V v) { return total<T, kLanes>(v); }

  template <class Lanes>
  static SLICEGRAPH_INLINE V at(const T* from, int64_t c, Lanes lanes) {
    return load<V>(from + c, lanes, T(0));
  }
  template <class Lanes>
  static SLICEGRAPH_INLINE V normed(const T* x, int64_t c, Lanes lanes, const Spread& s) {
    return (load<V>(x + c, lanes, s.mean) - s.mean) * s.inverse;
  }

  SLICEGRAPH_INLINE Spread spread(const T* x) const {
    V values{}, squares{};
    cover<kLanes>(width_, [&](int64_t c, auto lanes) { values += at(x, c, lanes); });
    const T mean = sum(values) / width_;
    cover<kLanes>(width_, [&](int64_t c, auto lanes) {
      const V away = load<V>(x + c, lanes, mean) - mean;
      squares += away * away;
    });
    return {mean, T(1) / std::sqrt(sum(squares) / width_ + eps_)};
  }

  const T *scale_, *shift_;
  const int64_t width_;
  const T eps_;
};

template <class T>
void norm_rows(const NormJob& job, int64_t task) {
  const LayerNorm<T> norm(job);
  const int64_t width = job.width, first = task * kNormRows, next = first + kNormRows;
  const int64_t end = next < job.rows ? next : job.rows;
  const T *x = reinterpret_cast<const T*>(job.x), *g = reinterpret_cast<const T*>(job.g);
  T *y = reinterpret_cast<T*>(job.y), *of_x = reinterpret_cast<T*>(job.of_x);
  if (!g) {
    for (int64_t at = first * width; at < end * width; at += width) norm.forward(x + at, y + at);
    return;
  }
  T* of_scale = reinterpret_cast<T*>(job.sums) + task * 2 * width;
  std::memset(of_scale, 0, 2 * width * sizeof(T));
  for (int64_t at = first * width; at < end * width; at += width)
    norm.backward(x + at, g + at, y + at, of_x + at, of_scale, of_scale + width);
}

inline void norm_task(const NormJob& job, int64_t task) {
  return job.dtype == kFloat32 ? norm_rows<float>(job, task) : norm_rows<double>(job, task);
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
