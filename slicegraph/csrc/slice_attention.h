// Slice attention with the Laplace kernel, given the sorted keys: two scans over the keys of each head.
//
// With the steps s_j = e^-(k_j - k_{j-1})/tau, at most 1, the sums at key j over the keys up to it and
// from it on are up_j = v_j + s_j up_{j-1} and down_j = v_j + s_{j+1} down_{j+1}. A query between the
// keys `low` and `low + 1` is a up_low + b down_{low + 1}, where a and b are the weights of these two
// keys over the sum of all weights. The gradients are the same steps backwards.
#pragma once

#include "pair_attention.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// In place, of values that are not positive.
template <class T>
void exponentials(T* z, int64_t count) {
  constexpr int kLanes = kPairBytes / sizeof(T);
  using V = Vector<T, kLanes>;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(z + i, exponential(load<V>(z + i)));
  if (i < count) store_first(z + i, exponential(load_first<V>(z + i, count - i)), count - i);
}

// One head of one set, whose channels share the keys; if kEach, as many heads of one channel as there
// are lanes, each with keys of its own. Arrays of the keys have kKeys columns, blocks kLanes.
template <class T, int kLanes, bool kEach>
class SliceScan {
 public:
  static constexpr int64_t kKeys = kEach ? kLanes : 1;

  static Plan plan(const SliceJob& job) {
    const int64_t arrays = job.grad_out ? 10 : 7, blocks = job.grad_out ? 7 : 4, n = job.sets.longest;
    const int64_t elements = job.sets.all_rows() * job.heads * job.width;
    return {job.sets.count * parts_of(job.heads, kKeys),
            n * int64_t(sizeof(T)) * (arrays * kKeys + blocks * kLanes) + n * 4 * kKeys, 8 * elements,
            {{job.out, elements * int64_t(sizeof(T))}}};
  }
  static void run_task(const SliceJob& job, int64_t task, void* scratch) {
    const int64_t blocks = parts_of(job.heads, kKeys), b = task / blocks, head = task % blocks * kKeys;
    T* grad_tau = reinterpret_cast<T*>(job.grad_tau) + b * job.heads + head;
    SliceScan(job, job.sets[b], head, scratch).run(grad_tau);
  }

  SliceScan(const SliceJob& job, const Set& set, int64_t head, void* scratch)
      : job_(job), set_(set), head_(head) {
    T* next = static_cast<T*>(scratch);
    T** blocks[] = {&up_, &down_, &values_, &stage_, &grads_, &grad_up_, &grad_down_};
    T** arrays[] = {&keys_, &steps_, &sum_up_, &sum_down_, &a_, &b_, &tilt_, &dot_low_, &dot_, &dot_keys_};
    for (int i = 0; i < (job.grad_out ? 7 : 4); ++i, next += n_ * kLanes) *blocks[i] = next;
    for (int i = 0; i < (job.grad_out ? 10 : 7); ++i, next += n_ * kKeys) *arrays[i] = next;
    low_ = reinterpret_cast<int32_t*>(next);
    for (int64_t c = 0; c < kKeys; ++c) {
      const T rate = c < used_ ? 1 / reinterpret_cast<const T*>(job.tau)[head + c] : T(1);
      constexpr T kLargest = sizeof(T) == 4 ? T(3e38) : T(1e308);
      rate_[c] = rate < kLargest ? rate : kLargest;  // infinity times a distance of 0 is not 0
    }
  }

  // The output, or with grad_out the gradients; that of tau at `grad_tau`.
  void run(T* grad_tau) {
    if (n_ > 0) {
      scan_keys();
      find_weights();
    }
    const int64_t width = kEach ? used_ : job_.width;
    for (int64_t c = 0; c < width; c += kLanes) {
      first_ = head_ * job_.width + c;
      lanes_ = smaller(width - c, kLanes);
      for (int64_t r = n_; r < set_.capacity; ++r) std::memset(row(job_.out, r), 0, lanes_ * sizeof(T));
      if (n_ == 0) continue;
      scan_values();
      if (job_.grad_out) differentiate(c == 0);
      else combine();
    }
    if (job_.grad_out) differentiate_keys(grad_tau);
  }

 private:
  using V = Vector<T, kLanes>;

  T* row(const char* tensor, int64_t r) const {
    return reinterpret_cast<T*>(const_cast<char*>(tensor)) + (set_.first + r) * channels_ + first_;
  }
  int64_t order(int64_t j, int64_t c) const { return order_[j * job_.heads + c]; }
  // A number for each lane.
  V spread(const T* numbers, int64_t j) const {
    if constexpr (kEach) return load<V>(numbers + j * kLanes);
    else return V{} + numbers[j];
  }
  void add_product(T* sums, int64_t j, V x, V y) const {
    if constexpr (kEach) store(sums + j * kLanes, load<V>(sums + j * kLanes) + x * y);
    else sums[j] += total<T, kLanes>(x * y);
  }

  void scan_keys() {
    const T* keys = reinterpret_cast<const T*>(job_.keys) + set_.first * job_.heads + head_;
    for (int64_t j = 0; j < n_; ++j)
      for (int64_t c = 0; c < kKeys; ++c) keys_[j * kKeys + c] = c < used_ ? keys[j * job_.heads + c] : 0;
    for (int64_t c = 0; c < kKeys; ++c) steps_[c] = 0;
    for (int64_t j = 1; j < n_; ++j)
      for (int64_t c = 0; c < kKeys; ++c)
        steps_[j * kKeys + c] = (keys_[(j - 1) * kKeys + c] - keys_[j * kKeys + c]) * rate_[c];
    exponentials(steps_ + kKeys, (n_ - 1) * kKeys);
    T sum[kKeys] = {};
    for (int64_t j = 0; j < n_; ++j)
      for (int64_t c = 0; c < kKeys; ++c)
        sum_up_[j * kKeys + c] = sum[c] = 1 + steps_[j * kKeys + c] * sum[c];
    for (int64_t c = 0; c < kKeys; ++c) sum_down_[(n_ - 1) * kKeys + c] = sum[c] = 1;
    for (int64_t j = n_ - 2; j >= 0; --j)
      for (int64_t c = 0; c < kKeys; ++c)
        sum_down_[j * kKeys + c] = sum[c] = 1 + steps_[(j + 1) * kKeys + c] * sum[c];
  }

  // The last key that is not above each query, -1 if all are: a binary search of several at a time.
  void find_places(const T* queries) {
    for (int64_t i = 0; i < n_ * kKeys; i += kLanes) {
      const int64_t count = smaller(n_ * kKeys - i, kLanes);
      T query[kLanes] = {};
      int32_t place[kLanes] = {};
      std::memcpy(query, queries + i, count * sizeof(T));
      const auto key = [&](int c, int32_t at) { return keys_[at * kKeys + (kEach ? c : 0)]; };
      for (int32_t left = static_cast<int32_t>(n_); left > 1; left -= left / 2)
        for (int c = 0; c < kLanes; ++c)
          place[c] += key(c, place[c] + left / 2 - 1) <= query[c] ? left / 2 : 0;
      for (int c = 0; c < kLanes; ++c) place[c] -= key(c, place[c]) <= query[c] ? 0 : 1;
      std::memcpy(low_ + i, place, count * sizeof(int32_t));
    }
  }

  // `low_`, `a_` and `b_` of each query, and the share of the weights below it less that above.
  void find_weights() {
    const int32_t last = static_cast<int32_t>(n_ - 1);
    for (int64_t j = 0; shared_ && j < n_; ++j) {  // each query is at its own key
      const int64_t next = at(j + 1) * kKeys;
      const T is_above = j < last;
      for (int64_t c = 0; c < kKeys; ++c) {
        const T b = is_above * steps_[next + c];
        weigh(j * kKeys + c, 1, b, sum_up_[j * kKeys + c], b * sum_down_[next + c]);
      }
      for (int64_t c = 0; c < kKeys; ++c) low_[j * kKeys + c] = static_cast<int32_t>(j);
    }
    if (shared_) return;
    T* queries = tilt_;
    for (int64_t t = 0; t < n_; ++t)
      for (int64_t c = 0; c < kKeys; ++c) queries[t * kKeys + c] = c < used_ ? query(t, c) : 0;
    find_places(queries);
    for (int64_t i = 0; i < n_ * kKeys; ++i) {
      const int64_t c = i % kKeys, low = at(low_[i]) * kKeys + c, high = at(low_[i] + 1) * kKeys + c;
      // How much further the key below is: the nearer one has a weight of 1 before the division.
      const T further = ((queries[i] - keys_[low]) - (keys_[high] - queries[i])) * rate_[c];
      a_[i] = low_[i] < last && further > 0 ? -further : 0;
      b_[i] = low_[i] >= 0 && further < 0 ? further : 0;
    }
    exponentials(a_, n_ * kKeys);
    exponentials(b_, n_ * kKeys);
    for (int64_t i = 0; i < n_ * kKeys; ++i) {
      const int64_t c = i % kKeys, low = at(low_[i]) * kKeys + c, high = at(low_[i] + 1) * kKeys + c;
      const T a = low_[i] < 0 ? 0 : a_[i], b = low_[i] == last ? 0 : b_[i];
      weigh(i, a, b, a * sum_up_[low], b * sum_down_[high]);
    }
  }
  void weigh(int64_t i, T a, T b, T below, T above) {
    const T scale = 1 / (below + above);
    a_[i] = a * scale, b_[i] = b * scale, tilt_[i] = (below - above) * scale;
  }
  T query(int64_t t, int64_t c) const {
    return reinterpret_cast<const T*>(job_.queries)[(set_.first + t) * job_.heads + head_ + c];
  }
  int64_t at(int64_t place) const { return larger(smaller(place, n_ - 1), 0); }

  // From rows of a tensor to a block, and back, in the order of the keys or in their own.
  void read(const char* tensor, bool sorted, T* block) {
    T* rows = kEach && sorted ? stage_ : block;
    for (int64_t j = 0; j < n_; ++j) {
      const T* from = row(tensor, !kEach && sorted ? order(j, 0) : j);
      if (kEach) expect_read(from + kRowsAhead * channels_, sizeof(V));
      store(rows + j * kLanes, lanes_ == kLanes ? load<V>(from) : load_first<V>(from, lanes_));
    }
    if (kEach && sorted && lanes_ < kLanes) std::memset(block, 0, n_ * sizeof(V));
    for (int64_t j = 0; kEach && sorted && j < n_; ++j)
      for (int64_t c = 0; c < lanes_; ++c) block[j * kLanes + c] = stage_[order(j, c) * kLanes + c];
  }
  void write(char* tensor, bool sorted, const T* block) {
    for (int64_t j = 0; kEach && sorted && j < n_; ++j)
      for (int64_t c = 0; c < lanes_; ++c) stage_[order(j, c) * kLanes + c] = block[j * kLanes + c];
    const T* rows = kEach && sorted ? stage_ : block;
    for (int64_t j = 0; j < n_; ++j) {
      T* to = row(tensor, !kEach && sorted ? order(j, 0) : j);
      if (lanes_ == kLanes) store(to, load<V>(rows + j * kLanes));
      else store_first(to, load<V>(rows + j * kLanes), lanes_);
    }
  }

  void scan_values() {
    read(job_.values, true, values_);
    V sum{};
    for (int64_t j = 0; j < n_; ++j) {
      sum = load<V>(values_ + j * kLanes) + spread(steps_, j) * sum;
      store(up_ + j * kLanes, sum);
    }
    store(down_ + (n_ - 1) * kLanes, sum = load<V>(values_ + (n_ - 1) * kLanes));
    for (int64_t j = n_ - 2; j >= 0; --j) {
      sum = load<V>(values_ + j * kLanes) + spread(steps_, j + 1) * sum;
      store(down_ + j * kLanes, sum);
    }
  }

  // The row of a block at the key below query t, or at the key above it.
  V near(const T* block, int64_t t, int above) const {
    if (!kEach || shared_) return load<V>(block + at(low_[t * kKeys] + above) * kLanes);
    V found;
    for (int c = 0; c < kLanes; ++c) found[c] = block[at(low_[t * kKeys + c * kEach] + above) * kLanes + c];
    return found;
  }
  void add_near(T* block, int64_t t, int above, V x) const {
    for (int c = 0; kEach && !shared_ && c < kLanes; ++c)
      block[at(low_[t * kKeys + c * kEach] + above) * kLanes + c] += x[c];
    if (kEach && !shared_) return;
    T* to = block + at(low_[t * kKeys] + above) * kLanes;
    store(to, load<V>(to) + x);
  }

  void combine() {
    for (int64_t t = 0; t < n_; ++t)
      store(values_ + t * kLanes, spread(a_, t) * near(up_, t, 0) + spread(b_, t) * near(down_, t, 1));
    write(job_.out, shared_, values_);
  }

  void differentiate(bool is_first) {
    T *sums[] = {dot_low_, dot_, dot_keys_}, *blocks[] = {grad_up_, grad_down_};
    for (int i = 0; is_first && i < 3; ++i) std::memset(sums[i], 0, n_ * kKeys * sizeof(T));
    for (T* block : blocks) std::memset(block, 0, n_ * kLanes * sizeof(T));
    read(job_.grad_out, shared_, grads_);
    for (int64_t t = 0; t < n_; ++t) {
      const V grad = load<V>(grads_ + t * kLanes), a = spread(a_, t) * grad, b = spread(b_, t) * grad;
      const V up = near(up_, t, 0);
      add_near(grad_up_, t, 0, a), add_near(grad_down_, t, 1, b);
      add_product(dot_low_, t, a, up);
      add_product(dot_, t, a, up), add_product(dot_, t, b, near(down_, t, 1));
    }
    V of_up{}, of_down{};
    for (int64_t j = n_ - 1; j >= 0; --j) {
      of_up = load<V>(grad_up_ + j * kLanes) + of_up;
      store(grad_up_ + j * kLanes, of_up);
      of_up *= spread(steps_, j);
    }
    for (int64_t j = 0; j < n_; ++j) {
      of_down = load<V>(grad_down_ + j * kLanes) + spread(steps_, j) * of_down;
      of_up = load<V>(grad_up_ + j * kLanes);
      add_product(dot_keys_, j, load<V>(values_ + j * kLanes), of_up - of_down);
      store(grad_up_ + j * kLanes, of_up + of_down);
    }
    write(job_.out, true, grad_up_);
  }

  // The gradients of the keys and queries, from the products of the gradient with what comes from
  // below (`dot_low_`) and from both sides (`dot_`). The result is the same if queries, keys and tau
  // are scaled together, so that the gradient of tau follows from theirs.
  void differentiate_keys(T* grad_tau) {
    T *up = sum_up_, *down = sum_down_;
    double scaled[kKeys] = {};
    std::memset(up, 0, n_ * kKeys * sizeof(T));
    std::memset(down, 0, n_ * kKeys * sizeof(T));
    for (int64_t t = 0; t < n_; ++t) {
      for (int64_t c = 0; c < kKeys; ++c) {
        const int64_t i = t * kKeys + c, low = shared_ ? t : low_[i];
        up[at(low) * kKeys + c] += dot_[i] * a_[i];
        down[at(low + 1) * kKeys + c] += dot_[i] * b_[i];
      }
      for (int64_t c = 0; c < kKeys; ++c) {
        const int64_t i = t * kKeys + c;
        dot_low_[i] = rate_[c] * (dot_[i] + dot_[i] * tilt_[i] - 2 * dot_low_[i]);
      }
      for (int64_t c = 0; c < used_; ++c) {
        const T distance = (shared_ ? keys_[t * kKeys + c] : query(t, c)) - keys_[c];
        scaled[c] += double(distance) * double(dot_low_[t * kKeys + c]);
      }
    }
    for (int64_t i = (n_ - 1) * kKeys - 1; i >= 0; --i) up[i] += steps_[i + kKeys] * up[i + kKeys];
    for (int64_t j = 0; j < n_; ++j)
      for (int64_t c = 0; c < kKeys; ++c) {
        const int64_t i = j * kKeys + c;
        if (j > 0) down[i] += steps_[i] * down[i - kKeys];
        dot_keys_[i] = rate_[c] * (dot_keys_[i] - up[i] + down[i]);
        scaled[c] += double(keys_[i] - keys_[c]) * double(dot_keys_[i]);
        if (shared_) dot_keys_[i] += dot_low_[i];
      }
    write_keys(job_.grad_keys, true, dot_keys_);
    if (!shared_) write_keys(job_.grad_queries, false, dot_low_);
    for (int64_t c = 0; c < used_; ++c) grad_tau[c] = T(-scaled[c] * double(rate_[c]));
  }
  void write_keys(char* tensor, bool sorted, const T* from) {
    T* to = reinterpret_cast<T*>(tensor) + set_.first * job_.heads + head_;
    for (int64_t j = 0; sorted && j < n_; ++j)
      for (int64_t c = 0; c < used_; ++c) stage_[order(j, c) * kKeys + c] = from[j * kKeys + c];
    from = sorted ? stage_ : from;
    for (int64_t r = 0; r < set_.capacity; ++r)
      for (int64_t c = 0; c < used_; ++c) to[r * job_.heads + c] = r < n_ ? from[r * kKeys + c] : 0;
  }

  const SliceJob& job_;
  const Set set_;
  const int64_t head_, n_ = set_.length, channels_ = job_.heads * job_.width;
  const int64_t used_ = kEach ? smaller(job_.heads - head_, kLanes) : 1;
  const bool shared_ = job_.queries == nullptr;  // the queries are the keys
  const int32_t* const order_ = job_.order + set_.first * job_.heads + head_;  // of the first head
  int64_t first_ = 0, lanes_ = 0;  // the channels of the block
  T *up_, *down_, *values_, *stage_, *grads_, *grad_up_, *grad_down_;
  T *keys_, *steps_, *sum_up_, *sum_down_, *a_, *b_, *tilt_, *dot_low_, *dot_, *dot_keys_;
  int32_t* low_;
  T rate_[kKeys];
};

// Calls use(scan) with a null pointer to the type of the scan that suits the job.
template <class Use>
auto with_scan(const SliceJob& job, const Use& use) {
  return with_float(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kLanes = kVectorBytes / sizeof(T), kHalf = kLanes > 2 ? kLanes / 2 : kLanes;
    if (job.width == 1) return use(static_cast<SliceScan<T, kLanes, true>*>(nullptr));
    return job.width > kHalf ? use(static_cast<SliceScan<T, kLanes, false>*>(nullptr))
                             : use(static_cast<SliceScan<T, kHalf, false>*>(nullptr));
  });
}

inline Plan slice_plan(const SliceJob& job) {
  if (job.width == 0) return {};
  return with_scan(job, [&](auto* scan) { return scan->plan(job); });
}
inline void slice_task(const SliceJob& job, int64_t task, void* scratch) {
  with_scan(job, [&](auto* scan) { scan->run_task(job, task, scratch); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
