// Attention within sets: softmax(q k^T / sqrt(width) + bias) v of each head, with weights dropped at
// random. Nothing of the size of the pairs is stored: the backward pass computes the weights again.
#pragma once

#include <cmath>

#include "dropout.h"
#include "pair_mix.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

constexpr int kFloatLanes = kPairBytes / sizeof(float), kDoubleLanes = kPairBytes / sizeof(double);

// e^z for z <= 0, within a relative error of 1.2e-7; 0 below 2^-126. Powers of two times a polynomial
// with a relative error of 3.1e-9.
SLICEGRAPH_INLINE Vector<float, kFloatLanes> exponential(Vector<float, kFloatLanes> z) {
  using V = Vector<float, kFloatLanes>;
  using Bits = Vector<uint32_t, kFloatLanes>;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  z = z < -100.0f ? V{} - 100.0f : z;
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
SLICEGRAPH_INLINE Vector<double, kDoubleLanes> exponential(Vector<double, kDoubleLanes> z) {
  for (int i = 0; i < kDoubleLanes; ++i) z[i] = ::exp(z[i]);
  return z;
}

// One head of one set. Its squares have rows of whole vectors, with zeros after the last column: a
// vector that overlaps the one before it would have to wait for it.
template <class T>
class Attention {
 public:
  Attention(const AttentionJob& job, int64_t task, void* scratch)
      : job_(job), task_(task), turned_(static_cast<T*>(scratch)) {}

  SLICEGRAPH_INLINE void forward(T* out) {
    multiply_pairs(qkv_, 3 * channels_, qkv_ + channels_, weights_);
    for_rows([this](auto rows, int64_t i) __attribute__((always_inline)) { weigh<rows>(i); });
    multiply({weights_, wide_, 1}, {qkv_ + 2 * channels_, 3 * channels_, 1}, n_, width_, out + row_,
             channels_);
  }

  SLICEGRAPH_INLINE void backward(const T* grad_out, T* grad_qkv, const T* added, T* grad_bias) {
    const int64_t triple = 3 * channels_;
    grad_out += row_, grad_qkv += triple_, grad_bias_ = grad_bias + square_;
    multiply_pairs(qkv_, triple, qkv_ + channels_, weights_);
    multiply_pairs(grad_out, channels_, qkv_ + 2 * channels_, grad_kept_);
    const int64_t bytes = length_ * length_ * sizeof(T);
    if (added) std::memcpy(grad_bias_, added + square_, bytes);
    else std::memset(grad_bias_, 0, bytes);
    for_rows([this](auto rows, int64_t i) __attribute__((always_inline)) { differentiate<rows>(i); });
    multiply({kept_, 1, wide_}, {grad_out, channels_, 1}, n_, width_, grad_qkv + 2 * channels_, triple);
    multiply({grad_kept_, wide_, 1}, {qkv_ + channels_, triple, 1}, n_, width_, grad_qkv, triple);
    multiply({grad_kept_, 1, wide_}, {qkv_, triple, 1}, n_, width_, grad_qkv + channels_, triple);
  }

 private:
  static constexpr int kLanes = kPairBytes / sizeof(T);
  using V = Vector<T, kLanes>;
  using Mask = decltype(V{} < V{});

  // Calls step(rows, i) for blocks of `rows` rows from row i on: one row at a time would wait for its
  // own sums.
  template <class Step>
  SLICEGRAPH_INLINE void for_rows(const Step& step) const {
    int64_t i = 0;
    for (; i + 4 <= n_; i += 4) step(Number<4>(), i);
    for (; i < n_; ++i) step(Number<1>(), i);
  }

  SLICEGRAPH_INLINE void multiply(Strided<T> a, Strided<T> b, int64_t inner, int64_t width, T* out,
                                  int64_t row) const {
    product<kLanes, T>({a, b, out, row, n_, inner, width});
  }

  // Every row of the left by every row of the right, which is of qkv.
  SLICEGRAPH_INLINE void multiply_pairs(const T* left, int64_t left_row, const T* right,
                                        T* out) const {
    turn(right, 3 * channels_, n_, width_, turned_, wide_);
    for (int64_t c = 0; c < width_; ++c)
      for (int64_t j = n_; j < wide_; ++j) turned_[c * wide_ + j] = 0;
    multiply({left, left_row, 1}, {turned_, wide_, 1}, width_, wide_, out, wide_);
  }

  // How many entries of a square of the job there are from column j of row i on.
  SLICEGRAPH_INLINE int64_t left(int64_t i, int64_t j) const {
    return (length_ - i) * length_ - j;
  }

  // A score with its bias, far below all others after the last column.
  SLICEGRAPH_INLINE V score(int64_t i, int64_t j) const {
    const V bias = load_first<V>(bias_ + i * length_ + j, left(i, j));
    Mask lane{};
    for (int l = 0; l < kLanes; ++l) lane[l] = l;
    const T lowest = -INFINITY;
    const V sum = load<V>(weights_ + i * wide_ + j) * scale_ + bias;
    return lane < decltype(lane[0] + 0)(n_ - j) ? sum : V{} + lowest;
  }

  // The weights from column j of row i on, those that are dropped as 0.
  SLICEGRAPH_INLINE V drop(V weights, int64_t i, int64_t j) const {
    if (!job_.dropped) return weights;
    return only_kept<T, kLanes>(weights * kept_scale_, job_.seed, job_.dropped, square_ + i * length_ + j);
  }

  // A row whose pairs are all forbidden has a sum of 0, and no weights.
  template <int kRows>
  SLICEGRAPH_INLINE void weigh(int64_t i) const {
    const T lowest = -INFINITY;
    V tops[kRows], sums[kRows] = {};
    T top[kRows], inverse[kRows];
    for (V& v : tops) v = V{} + lowest;
    for (int64_t j = 0; j < wide_; j += kLanes)
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
        const V s = score(i + r, j);
        store(weights_ + (i + r) * wide_ + j, s);
        tops[r] = s > tops[r] ? s : tops[r];
      }
    _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
      top[r] = total<T, kLanes, true>(tops[r]);
      top[r] = top[r] == lowest ? T(0) : top[r];
    }
    for (int64_t j = 0; j < wide_; j += kLanes)
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
        T* at = weights_ + (i + r) * wide_ + j;
        const V e = exponential(load<V>(at) - top[r]);
        store(at, e);
        sums[r] += e;
      }
    _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
      const T sum = total<T, kLanes>(sums[r]);
      inverse[r] = sum == 0 ? T(0) : 1 / sum;
      T* to = totals_ + (i + r) * 2 * heads_;
      to[0] = top[r], to[1] = inverse[r];
    }
    for (int64_t j = 0; j < wide_; j += kLanes)
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
        T* at = weights_ + (i + r) * wide_ + j;
        store(at, drop(load<V>(at) * inverse[r], i + r, j));
      }
  }

  // What comes after the last column is 0: it changes nothing in the next row.
  SLICEGRAPH_INLINE void add_grad_bias(int64_t i, int64_t j, V grad) const {
    T* to = grad_bias_ + i * length_ + j;
    store_first(to, load_first<V>(to, left(i, j)) + grad, left(i, j));
  }

  // From the scores to the weights that were kept, and from their gradient to that of the scores,
  // times the scale.
  template <int kRows>
  SLICEGRAPH_INLINE void differentiate(int64_t i) const {
    V sums[kRows] = {};
    T mean[kRows];
    for (int64_t j = 0; j < wide_; j += kLanes)
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
        const int64_t at = (i + r) * wide_ + j;
        const T* total = totals_ + (i + r) * 2 * heads_;
        const V weights = exponential(score(i + r, j) - total[0]) * total[1];
        const V kept = drop(weights, i + r, j), grad = kept * load<V>(grad_kept_ + at);
        store(weights_ + at, weights), store(kept_ + at, kept), store(grad_kept_ + at, grad);
        sums[r] += grad;
      }
    _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) mean[r] = total<T, kLanes>(sums[r]);
    for (int64_t j = 0; j < wide_; j += kLanes)
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
        const int64_t at = (i + r) * wide_ + j;
        const V grad = load<V>(grad_kept_ + at) - load<V>(weights_ + at) * mean[r];
        add_grad_bias(i + r, j, grad);
        store(grad_kept_ + at, grad * scale_);
      }
  }

  const AttentionJob& job_;
  const int64_t task_;
  const Set set_ = job_.sets[task_ / job_.heads];
  const int64_t n_ = set_.length, wide_ = parts_of(n_, kLanes) * kLanes, length_ = job_.length;
  const int64_t heads_ = job_.heads, width_ = job_.width, channels_ = heads_ * width_;
  // Where its rows, rows of qkv and pairs begin.
  const int64_t row_ = set_.first * channels_ + task_ % heads_ * width_;
  const int64_t triple_ = row_ + 2 * set_.first * channels_, square_ = task_ * length_ * length_;
  const T scale_ = static_cast<T>(1 / std::sqrt(static_cast<double>(width_)));
  const T kept_scale_ = static_cast<T>(job_.kept_scale);
  const T* qkv_ = reinterpret_cast<const T*>(job_.qkv) + triple_;
  const T* bias_ = reinterpret_cast<const T*>(job_.bias) + square_;
  T *totals_ = reinterpret_cast<T*>(job_.totals) + row_ / width_ * 2, *grad_bias_ = nullptr;
  T *turned_, *weights_ = turned_ + wide_ * width_, *kept_ = weights_ + n_ * wide_;
  T* grad_kept_ = kept_ + n_ * wide_;
};

// A head's share of the rows of the next set, and the next head's bias.
template <class T>
void expect_next(const AttentionJob& job, int64_t task) {
  const int64_t b = task / job.heads, head = task % job.heads, square = job.length * job.length;
  if (b + 1 >= job.sets.count) return;
  const Set next = job.sets[b + 1];
  const int64_t each = next.length * job.width, row = next.first * job.heads * job.width + head * each;
  expect_read(reinterpret_cast<const T*>(job.qkv) + 3 * row, 3 * each * sizeof(T));
  expect_read(reinterpret_cast<const T*>(job.bias) + (task + 1) * square, square * sizeof(T));
  if (!job.grad_out) return expect_write(reinterpret_cast<T*>(job.out) + row, each * sizeof(T));
  expect_read(reinterpret_cast<const T*>(job.grad_out) + row, each * sizeof(T));
  expect_write(reinterpret_cast<T*>(job.out) + 3 * row, 3 * each * sizeof(T));
  expect_write(reinterpret_cast<T*>(job.grad_bias) + (task + 1) * square, square * sizeof(T));
}

template <class T>
void attention_task(const AttentionJob& job, int64_t task, void* scratch) {
  expect_next<T>(job, task);
  const auto at = [](auto* from) { return reinterpret_cast<const T*>(from); };
  const auto to = [](char* from) { return reinterpret_cast<T*>(from); };
  Attention<T> attention(job, task, scratch);
  if (job.grad_out) attention.backward(at(job.grad_out), to(job.out), at(job.added), to(job.grad_bias));
  else attention.forward(to(job.out));
}

inline Plan attention_plan(const AttentionJob& job) {
  const int64_t bytes = value_bytes(job.dtype), longest = job.sets.longest, tasks = job.sets.count * job.heads;
  const int64_t factor = job.grad_out ? 3 : 1, squares = job.grad_bias ? tasks * job.length * job.length : 0;
  const int64_t rows = job.sets.rows * job.heads;
  return {tasks, (longest + kFloatLanes) * (job.width + factor * longest) * bytes,
          rows * (job.width + 8) * longest / 4,
          {{job.out, rows * job.width * factor * bytes}, {job.grad_bias, squares * bytes}}};
}
inline void attention_task(const AttentionJob& job, int64_t task, void* scratch) {
  with_float(job.dtype, [&](auto zero) { attention_task<decltype(zero)>(job, task, scratch); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
