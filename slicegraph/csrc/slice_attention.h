// Attention along slices, given the sorted keys: two scans over the keys of each head.
//
// laplace: with the steps s_j = e^-(k_j - k_{j-1})/tau, at most 1, the sums at key j over the keys up to
// it and from it on are up_j = v_j + s_j up_{j-1} and down_j = v_j + s_{j+1} down_{j+1}. A query between
// the keys `low` and `low + 1` is a up_low + b down_{low + 1}, where a and b are the weights of these two
// keys over the sum of all weights.
//
// relu: the steps are 1, and of the values less their mean, down_j = v_j + down_{j-1} and
// up_j = (k_j - k_{j-1}) down_{j-1} + up_{j-1}. A query is a up_low + b down_low, where a and b are 1 and
// its distance from the key `low`, over the sum of all distances.
//
// The gradients are the same steps backwards.
#pragma once

#include "pair_attention.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// In place, of values that are not positive.
template <class T>
void exponentials(T* z, int64_t count) {
  constexpr int kLanes = kPairBytes / sizeof(T);
  using V = Vector<T, kLanes>;
  for (int64_t i = 0; i < count; i += kLanes)
    store_first(z + i, exponential(load_first<V>(z + i, count - i)), count - i);
}

// One head of one set, whose channels share the keys; if kEach, as many heads of one channel as there
// are lanes, each with keys of its own. Arrays of the keys have kKeys columns, blocks kLanes; both have
// a row before the first key and one after the last, where sums are 0.
template <class T, int kLanes, bool kEach>
class SliceScan {
 public:
  static constexpr int64_t kKeys = kEach ? kLanes : 1;

  static Plan plan(const SliceJob& job) {
    const int64_t arrays = job.grad_out ? 10 : 7, blocks = job.grad_out ? 7 : 4;
    const int64_t elements = job.sets.all_rows() * job.heads * job.width, rows = job.sets.longest + 2;
    return {job.sets.count * parts_of(job.heads, kKeys),
            rows * (int64_t(sizeof(T)) * (arrays * kKeys + blocks * kLanes) + 4 * kKeys), 8 * elements,
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
    T** arrays[] = {&keys_, &steps_, &sum_up_, &sum_down_, &a_, &b_, &tilt_, &lean_, &dot_, &dot_keys_};
    for (int i = 0; i < (job.grad_out ? 7 : 4); ++i, next += (n_ + 2) * kLanes) *blocks[i] = next + kLanes;
    for (int i = 0; i < (job.grad_out ? 10 : 7); ++i, next += (n_ + 2) * kKeys) *arrays[i] = next + kKeys;
    low_ = reinterpret_cast<int32_t*>(next);
    constexpr T kLargest = sizeof(T) == 4 ? T(3e38) : T(1e308);
    rate_ = 1 / load_first<K>(reinterpret_cast<const T*>(job.tau) + head, used_);
    rate_ = relu_ ? K{} - 1 : rate_ < kLargest ? rate_ : K{} + kLargest;  // infinity times 0 is not 0
  }

  // The output, or with grad_out the gradients; that of tau at `grad_tau`.
  void run(T* grad_tau) {
    scan_keys();
    find_weights();
    const int64_t width = kEach ? used_ : job_.width;
    for (int64_t c = 0; c < width; c += kLanes) {
      first_ = head_ * job_.width + c;
      lanes_ = smaller(width - c, kLanes);
      scan_values();
      if (job_.grad_out) differentiate(c == 0);
      else combine();
    }
    if (job_.grad_out) differentiate_keys(grad_tau);
  }

 private:
  using V = Vector<T, kLanes>;
  using K = Vector<T, kKeys>;

  // The columns of row r of a tensor that belong in a block, or in an array of the keys. With kEach there
  // is no difference.
  template <class W>
  T* row(const char* tensor, int64_t r) const {
    T* rows = reinterpret_cast<T*>(const_cast<char*>(tensor));
    if constexpr (sizeof(W) == sizeof(K)) return rows + (set_.first + r) * job_.heads + head_;
    else return rows + (set_.first + r) * job_.heads * job_.width + first_;
  }
  template <class W>
  W take(const char* tensor, int64_t r) const {
    return load_first<W>(row<W>(tensor, r), sizeof(W) == sizeof(K) ? used_ : lanes_);
  }
  template <class W>
  void put(char* tensor, int64_t r, W x) const {
    store_first(row<W>(tensor, r), x, sizeof(W) == sizeof(K) ? used_ : lanes_);
  }
  int64_t order(int64_t j, int64_t c) const { return order_[j * job_.heads + c]; }

  static K key(const T* array, int64_t j) { return load<K>(array + j * kKeys); }
  static V lanes(const T* block, int64_t j) { return load<V>(block + j * kLanes); }
  static T lane(K x, int64_t c) {
    if constexpr (kEach) return x[c];
    else return x;
  }
  K query(int64_t t) const { return shared_ ? key(keys_, t) : take<K>(job_.queries, t); }
  K gap(int64_t j) const { return key(keys_, j) - key(keys_, j - 1); }

  // y_j = x(j) + s_j y_{j-1} or, if not kUp, x(j) + s_{j+1} y_{j+1}.
  template <bool kUp, class W, class X>
  void scan(const X& x, T* y) const {
    constexpr int64_t kWidth = sizeof(W) / sizeof(T);
    W sum{};
    store(y - kWidth, sum), store(y + n_ * kWidth, sum);
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t j = kUp ? i : n_ - 1 - i;
      sum = x(j) + key(steps_, kUp ? j : j + 1) * sum;
      store(y + j * kWidth, sum);
    }
  }

  void scan_keys() {
    for (int64_t j = 0; j < n_; ++j) store(keys_ + j * kKeys, take<K>(job_.keys, j));
    // Beyond both ends: far away, or at no distance where distances count.
    constexpr T kFar = sizeof(T) == 4 ? T(1e38) : T(1e307);
    store(keys_ - kKeys, relu_ ? key(keys_, 0) : K{} - kFar);
    store(keys_ + n_ * kKeys, relu_ ? key(keys_, n_ - 1) : K{} + kFar);
    for (int64_t j = 0; j <= n_; ++j) store(steps_ + j * kKeys, relu_ ? K{} + 1 : -gap(j) * rate_);
    if (relu_) {
      scan<true, K>([&](int64_t j) { return gap(j) * T(j); }, sum_up_);
      scan<false, K>([&](int64_t j) { return gap(j + 1) * T(n_ - 1 - j); }, sum_down_);
      return;
    }
    exponentials(steps_, (n_ + 1) * kKeys);
    store(steps_, K{}), store(steps_ + n_ * kKeys, K{});
    scan<true, K>([](int64_t) { return K{} + 1; }, sum_up_);
    scan<false, K>([](int64_t) { return K{} + 1; }, sum_down_);
  }

  // The last key that is not above each query, -1 if all are: a binary search of several at a time.
  void find_places() {
    T* queries = tilt_;
    for (int64_t t = 0; t < n_; ++t) store(queries + t * kKeys, query(t));
    for (int64_t i = 0; i < n_ * kKeys; i += kLanes) {
      const int64_t count = smaller(n_ * kKeys - i, kLanes);
      T sought[kLanes] = {};
      int32_t place[kLanes] = {};
      std::memcpy(sought, queries + i, count * sizeof(T));
      const auto key = [&](int c, int32_t at) { return keys_[at * kKeys + (kEach ? c : 0)]; };
      for (int32_t left = static_cast<int32_t>(n_); left > 1; left -= left / 2)
        for (int c = 0; c < kLanes; ++c)
          place[c] += key(c, place[c] + left / 2 - 1) <= sought[c] ? left / 2 : 0;
      for (int c = 0; c < kLanes; ++c) place[c] -= key(c, place[c]) <= sought[c] ? 0 : 1;
      std::memcpy(low_ + i, place, count * sizeof(int32_t));
    }
  }

  // `low_`, `a_` and `b_` of each query, and the share of the weights below it less that above. Without
  // queries each key is one, at its own place.
  void find_weights() {
    if (!shared_) find_places();
    for (int64_t t = 0; !shared_ && !relu_ && t < n_; ++t) {
      // How much further the key below is: the nearer one has a weight of 1 before the division.
      const K q = query(t), further = ((q - near<K>(keys_, t, 0)) - (near<K>(keys_, t, 1) - q)) * rate_;
      store(a_ + t * kKeys, further <= 0 ? K{} : -further);
      store(b_ + t * kKeys, further >= 0 ? K{} : further);
    }
    if (!shared_ && !relu_) exponentials(a_, n_ * kKeys), exponentials(b_, n_ * kKeys);
    for (int64_t t = 0; t < n_; ++t) {
      K a = shared_ || relu_ ? K{} + 1 : key(a_, t), b = shared_ ? key(steps_, t + 1) : key(b_, t);
      K below = a * near<K>(sum_up_, t, 0), above = b * near<K>(sum_down_, t, 1), lean = below - above;
      if (relu_) {
        const K q = query(t), rank = shared_ ? K{} + T(t) : ranks(t);
        b = q - near<K>(keys_, t, 0);
        below += b * (rank + 1);
        above = near<K>(sum_down_, t, 1) + (near<K>(keys_, t, 1) - q) * (T(n_ - 1) - rank);
        lean = 2 * rank + T(2 - n_);
      }
      const K sum = below + above, scale = sum == 0 ? K{} : 1 / sum;
      store(a_ + t * kKeys, a * scale), store(b_ + t * kKeys, b * scale);
      store(tilt_ + t * kKeys, lean * scale);
    }
  }
  K ranks(int64_t t) const {
    if constexpr (kEach) return __builtin_convertvector(load<Vector<int32_t, kLanes>>(low_ + t * kLanes), V);
    else return T(low_[t]);
  }

  // From rows of a tensor to a block, and back, in the order of the keys or in their own.
  void read(const char* tensor, bool sorted, T* block) {
    T* rows = kEach && sorted ? stage_ : block;
    const auto place = [&](int64_t j) { return !kEach && sorted ? order(j, 0) : j; };
    for (int64_t j = 0; j < n_; ++j) {
      expect_read(row<V>(tensor, place(smaller(j + kRowsAhead, n_ - 1))), sizeof(V));
      store(rows + j * kLanes, take<V>(tensor, place(j)));
    }
    if (kEach && sorted && lanes_ < kLanes) std::memset(block, 0, n_ * sizeof(V));
    for (int64_t j = 0; kEach && sorted && j < n_; ++j)
      for (int64_t c = 0; c < lanes_; ++c) block[j * kLanes + c] = stage_[order(j, c) * kLanes + c];
  }
  template <class W>
  void write(char* tensor, bool sorted, const T* block) {
    constexpr int64_t kWidth = sizeof(W) / sizeof(T);
    for (int64_t j = 0; kEach && sorted && j < n_; ++j)
      for (int64_t c = 0; c < lanes_; ++c) stage_[order(j, c) * kLanes + c] = block[j * kLanes + c];
    const T* rows = kEach && sorted ? stage_ : block;
    for (int64_t j = 0; j < n_; ++j)
      put(tensor, !kEach && sorted ? order(j, 0) : j, load<W>(rows + j * kWidth));
    for (int64_t r = n_; r < set_.capacity; ++r) put(tensor, r, W{});
  }
  void subtract_mean(T* block) const {
    V sum{};
    for (int64_t j = 0; j < n_; ++j) sum += lanes(block, j);
    for (int64_t j = 0; j < n_; ++j) store(block + j * kLanes, lanes(block, j) - sum / T(n_));
  }

  void scan_values() {
    read(job_.values, true, values_);
    if (relu_) subtract_mean(values_);
    const auto values = [&](int64_t j) { return lanes(values_, j); };
    if (!relu_) return scan<true, V>(values, up_), scan<false, V>(values, down_);
    scan<true, V>(values, down_);
    scan<true, V>([&](int64_t j) { return gap(j) * lanes(down_, j - 1); }, up_);
  }

  // The row of a block or of an array at the key below query t, or at the key above it.
  template <class W>
  W near(const T* block, int64_t t, int above) const {
    constexpr int64_t kWidth = sizeof(W) / sizeof(T);
    if (!kEach || shared_) return load<W>(block + ((shared_ ? t : low_[t]) + above) * kWidth);
    W found{};
    if constexpr (kEach)
      for (int c = 0; c < kLanes; ++c) found[c] = block[(low_[t * kLanes + c] + above) * kLanes + c];
    return found;
  }
  template <class W>
  void add_near(T* block, int64_t t, int above, W x) const {
    constexpr int64_t kWidth = sizeof(W) / sizeof(T);
    if constexpr (kEach)
      for (int c = 0; !shared_ && c < kLanes; ++c)
        block[(low_[t * kLanes + c] + above) * kLanes + c] += x[c];
    if (kEach && !shared_) return;
    T* to = block + ((shared_ ? t : low_[t]) + above) * kWidth;
    store(to, load<W>(to) + x);
  }
  void add_total(T* sums, int64_t j, V x) const {
    if constexpr (kEach) store(sums + j * kLanes, lanes(sums, j) + x);
    else sums[j] += total<T, kLanes>(x);
  }

  void combine() {
    for (int64_t t = 0; t < n_; ++t)
      store(values_ + t * kLanes, key(a_, t) * near<V>(up_, t, 0) +
                                      key(b_, t) * near<V>(down_, t, !relu_));
    write<V>(job_.out, shared_, values_);
  }

  void differentiate(bool is_first) {
    T* sums[] = {lean_, dot_, dot_keys_};
    for (int i = 0; is_first && i < 3; ++i) std::memset(sums[i], 0, n_ * sizeof(K));
    for (T* block : {grad_up_, grad_down_}) std::memset(block - kLanes, 0, (n_ + 2) * sizeof(V));
    read(job_.grad_out, shared_, grads_);
    for (int64_t t = 0; t < n_; ++t) {
      const V grad = lanes(grads_, t), sum = near<V>(down_, t, !relu_);
      const V a = key(a_, t) * grad, b = key(b_, t) * grad;
      const V up = a * near<V>(up_, t, 0), down = b * sum;
      add_near(grad_up_, t, 0, a), add_near(grad_down_, t, !relu_, b);
      add_total(dot_, t, up + down), add_total(lean_, t, relu_ ? a * sum : up - down);
    }
    scan<false, V>([&](int64_t j) { return lanes(grad_up_, j); }, grad_up_);
    if (relu_)
      scan<false, V>(
          [&](int64_t j) { return lanes(grad_down_, j) + gap(j + 1) * lanes(grad_up_, j + 1); },
          grad_down_);
    else
      scan<true, V>([&](int64_t j) { return lanes(grad_down_, j); }, grad_down_);
    for (int64_t j = 0; j < n_; ++j) {
      const V of_up = lanes(grad_up_, j), of_down = lanes(grad_down_, j);
      add_total(dot_keys_, j, lanes(values_, j) * (relu_ ? of_up : of_up - of_down));
      if (!relu_) store(grad_down_ + j * kLanes, of_up + of_down);
    }
    if (relu_) subtract_mean(grad_down_);
    write<V>(job_.out, true, grad_down_);
  }

  // The gradients of the keys and queries, from the products of the gradient with what comes from both
  // sides (`dot_`) and with its slope (`lean_`). The result is the same if queries, keys and tau are
  // scaled together, so that the gradient of tau follows from theirs.
  void differentiate_keys(T* grad_tau) {
    T *up = sum_up_, *down = sum_down_;
    double scaled[kKeys] = {};
    for (T* sums : {up, down}) std::memset(sums - kKeys, 0, (n_ + 2) * sizeof(K));
    const auto add_scaled = [&](K distance, K grad) {
      for (int64_t c = 0; c < used_; ++c) scaled[c] += double(lane(distance, c)) * double(lane(grad, c));
    };
    for (int64_t t = 0; t < n_; ++t) {
      const K dot = key(dot_, t), grad = rate_ * (dot * key(tilt_, t) - key(lean_, t));
      add_near(up, t, 0, dot * key(a_, t)), add_near(down, t, 1, dot * key(relu_ ? a_ : b_, t));
      add_scaled(query(t) - key(keys_, 0), grad);
      store(lean_ + t * kKeys, grad);
    }
    scan<false, K>([&](int64_t j) { return key(up, j); }, up);
    scan<true, K>([&](int64_t j) { return key(down, j); }, down);
    for (int64_t j = 0; j < n_; ++j) {
      const K grad = rate_ * (key(dot_keys_, j) - key(up, j) + key(down, j));
      add_scaled(key(keys_, j) - key(keys_, 0), grad);
      store(dot_keys_ + j * kKeys, shared_ ? grad + key(lean_, j) : grad);
    }
    write<K>(job_.grad_keys, true, dot_keys_);
    if (!shared_) write<K>(job_.grad_queries, false, lean_);
    for (int64_t c = 0; c < used_; ++c) grad_tau[c] = relu_ ? T(0) : T(-scaled[c] * double(lane(rate_, c)));
  }

  const SliceJob& job_;
  const Set set_;
  const int64_t head_, n_ = set_.length;
  const int64_t used_ = kEach ? smaller(job_.heads - head_, kLanes) : 1;
  const bool shared_ = job_.queries == nullptr;  // the queries are the keys
  const bool relu_ = job_.relu != 0;
  const int32_t* const order_ = job_.order + set_.first * job_.heads + head_;  // of the first head
  int64_t first_ = 0, lanes_ = 0;  // the channels of the block
  T *up_, *down_, *values_, *stage_, *grads_, *grad_up_, *grad_down_;
  T *keys_, *steps_, *sum_up_, *sum_down_, *a_, *b_, *tilt_, *lean_, *dot_, *dot_keys_;
  int32_t* low_;
  K rate_;
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
