// The column sort of one task: some neighbouring channels of one set, or, where a set has fewer
// channels than a register has lanes, the channels of several sets side by side.
#pragma once

#include "radix.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

template <class K>
bool radix_pays(int64_t n, int64_t lanes) {
  const int64_t registers = parts_of(lanes * K::kParts, K::kLanes);
  return n > 2 * kChunk && lanes * RadixColumns<K>::cost(n, lanes) < registers * NetworkColumns<K>::cost(n);
}

// One job with the keys that suit it: `Value` without indices, `Row` with them.
template <class Value, class Row>
class ColumnSort {
 public:
  using Bits = typename Value::Bits;

  ColumnSort(const SortJob& job, Bits infinity) : job_(job), infinity_(infinity) {}

  Plan plan() const {
    const int64_t sets = job_.sets.count, longest = job_.sets.longest;
    const int64_t elements = job_.sets.all_rows() * job_.channels;
    if (elements == 0) return {};
    const int64_t stage = narrow() ? stage_bytes(longest_network()) : 0;
    // Few columns of many rows are sorted one by one, and each comparison costs more.
    int64_t work = job_.channels < 8 && longest > 512 ? 4 * elements : elements, log = 1;
    while ((int64_t(1) << log) < longest) ++log;
    return {!narrow()     ? sets * blocks()
            : long_sets() ? sets * job_.channels
                          : parts_of(sets, sets_a_task()),
            larger(key_bytes<Value>(), key_bytes<Row>()) + stage,
            work * log,
            {{job_.values, elements * int64_t(sizeof(Bits))}, {job_.indices, elements * job_.index_bytes}}};
  }

  void run(int64_t task, void* scratch) const {
    if (narrow()) {
      char* memory = static_cast<char*>(scratch);
      return long_sets() ? run_column(task, memory) : run_side_by_side(task, memory);
    }
    const int64_t count = blocks(), b = task / count, block = task % count;
    const int64_t c0 = block * block_width();
    const int64_t c1 = block + 1 == count ? job_.channels : c0 + block_width();
    const Set set = job_.sets[b];
    if (set.length > 0) sort(in_place(b, set, c0, c1), scratch);
    pad(set, c0, c1);
  }

 private:
  static constexpr int64_t kLanes = Value::kLanes;
  static constexpr int64_t kMost = kBlockChannels > kLanes ? kBlockChannels / kLanes : 1;
  static constexpr int64_t kMostLanes = kMost * kLanes, kFewRows = 16;
  static_assert(kLanes == Row::kLanes);

  bool narrow() const { return job_.channels < kLanes; }

  int64_t block_width() const {
    const int64_t parts = job_.index_bytes ? sizeof(typename Row::Element) * Row::kParts : kVectorBytes;
    const int64_t fit = kBlockBytes / (padded_rows(job_.sets.longest) * parts);
    return larger(smaller(fit, kMost), 1) * kLanes;
  }
  // The last block is wider than the others where its own channels would not fill a register.
  int64_t blocks() const {
    const int64_t full = job_.channels / block_width(), rest = job_.channels % block_width();
    return full == 0 || rest >= kLanes ? full + (rest > 0) : full;
  }
  template <class K>
  int64_t key_bytes() const {
    const int64_t width = narrow() ? stage_lanes() : block_width() + kLanes, n = longest_network();
    const int64_t columns = narrow() && long_sets() ? 1 : width;
    const int64_t network = NetworkColumns<K>::scratch_bytes(n, width / kLanes);
    const int64_t radix = RadixColumns<K>::scratch_bytes(n, width);
    return larger(larger(network, radix), RadixColumns<K>::scratch_bytes(job_.sets.longest, columns));
  }
  // The longest set that may go through the network: where sets are long, the memory for it counts.
  int64_t longest_network() const {
    int64_t longest = smaller(job_.sets.longest, 1 << 12);
    if (longest == job_.sets.longest || (narrow() && !long_sets())) return job_.sets.longest;
    const int64_t sets = job_.sets.layout == kDense ? 1 : job_.sets.count;
    for (int64_t b = 0; b < sets; ++b) {
      const int64_t n = job_.sets[b].length;
      if (n > longest && !always_radix(n)) longest = n;
    }
    return longest;
  }
  // Whatever the keys and the width of the block.
  bool always_radix(int64_t n) const {
    const int64_t least = narrow() ? job_.channels : kLanes;
    const int64_t most = narrow() ? job_.channels : block_width() + kLanes;
    return radix_pays<Value>(n, least) && radix_pays<Value>(n, most) && radix_pays<Row>(n, least) &&
           radix_pays<Row>(n, most);
  }

  // Sets of few rows fill several registers at a time: to begin with each costs more than to sort it.
  int64_t stage_lanes() const { return job_.sets.longest <= kFewRows ? kMost * kLanes : kLanes; }
  int64_t sets_a_stage() const { return stage_lanes() / job_.channels; }
  int64_t sets_a_task() const {
    const int64_t stages = (1 << 14) / (job_.sets.longest * stage_lanes() + 1);
    return sets_a_stage() * larger(smaller(stages, 16), 1);
  }
  bool long_sets() const {
    return radix(job_.sets.longest, smaller(job_.sets.count, sets_a_stage()) * job_.channels);
  }
  bool radix(int64_t n, int64_t lanes) const {
    return job_.index_bytes ? radix_pays<Row>(n, lanes) : radix_pays<Value>(n, lanes);
  }
  int64_t stage_bytes(int64_t n) const {
    return parts_of(n * stage_lanes() * (2 * int64_t(sizeof(Bits)) + job_.index_bytes), 64) * 64;
  }

  const char* source(int64_t b, const Set& set) const {
    const int64_t offset = job_.sets.packed() ? set.first * job_.row_stride : b * job_.set_stride;
    return job_.x + offset * int64_t(sizeof(Bits));
  }
  char* values(int64_t row, int64_t c) const {
    return job_.values + (row * job_.channels + c) * int64_t(sizeof(Bits));
  }
  char* indices(int64_t row, int64_t c) const {
    return job_.indices + (row * job_.channels + c) * job_.index_bytes;
  }

  Block in_place(int64_t b, const Set& set, int64_t c0, int64_t c1) const {
    const uint8_t* mask = job_.mask ? job_.mask + c0 : nullptr;
    return {source(b, set) + c0 * int64_t(sizeof(Bits)), values(set.first, c0), indices(set.first, c0),
            job_.row_stride, job_.channels, set.length, c1 - c0, c1 - c0, mask, job_.descending != 0};
  }

  // Calls use(columns) with the keys of a block.
  template <class K, class Use>
  static bool with_columns(const Block& block, void* scratch, const Use& use) {
    if (block.width < kLanes || radix_pays<K>(block.rows, block.lanes))
      return use(RadixColumns<K>(block, scratch));
    return use(NetworkColumns<K>(block, scratch));
  }
  void sort(const Block& block, void* scratch) const {
    const auto values = [&](auto&& columns) {
      if (columns.template read<false>(infinity_)) return false;
      columns.sort();
      columns.template write<void>();
      return true;
    };
    if (!job_.index_bytes && with_columns<Value>(block, scratch, values)) return;
    // With indices, or if the values cannot be had from the keys alone.
    with_columns<Row>(block, scratch, [&](auto&& columns) {
      const bool special = columns.template read<false>(infinity_);
      if (special) columns.template read<true>(infinity_);
      columns.sort();
      if (!job_.index_bytes) columns.template write<void>();
      else with_index(job_.index_bytes, [&](auto zero) { columns.template write<decltype(zero)>(); });
      if (special) columns.restore();
      return true;
    });
  }

  // Few channels, some sets long: a task is a column of a long set, or a whole short set.
  void run_column(int64_t task, char* scratch) const {
    const int64_t b = task / job_.channels, c = task % job_.channels;
    const Set set = job_.sets[b];
    if (radix(set.length, job_.channels)) {
      sort(in_place(b, set, c, c + 1), scratch);
    } else if (set.length > 0 && c == 0) {
      Stage stage;
      sort_staged(stage, b, set.length, 1, scratch);
    }
    pad(set, c, c + 1);
  }

  // Few channels, short sets: a task is a number of sets.
  void run_side_by_side(int64_t task, char* scratch) const {
    const int64_t first = task * sets_a_task(), end = smaller(first + sets_a_task(), job_.sets.count);
    const bool dense = job_.sets.layout == kDense;
    Stage stage;
    for (int64_t b = first; b < end;) {
      const int64_t length = job_.sets[b].length;
      const int64_t most = smaller(end - b, sets_a_stage());
      int64_t count = dense ? most : 1;  // neighbours of one length share a stage
      while (count < most && job_.sets[b + count].length == length) ++count;
      if (length > 0) sort_staged(stage, b, length, count, scratch);
      for (int64_t i = 0; !dense && i < count; ++i) pad(job_.sets[b + i], 0, job_.channels);
      b += count;
    }
  }

  // The columns of `count` neighbouring sets of n rows in memory some registers wide: where each one
  // begins in the tensor and in the output, from the first element of the first set on.
  struct Stage {
    int64_t n = 0, count = 0, width = 0;
    int64_t from[kMostLanes], to[kMostLanes];
    uint8_t mask[kMostLanes] = {};
  };

  void prepare(Stage& stage, int64_t n, int64_t count) const {
    if (stage.n == n && stage.count == count) return;
    const int64_t c = job_.channels, used = count * c;
    const bool packed = job_.sets.packed();
    stage.n = n, stage.count = count, stage.width = parts_of(used, kLanes) * kLanes;
    for (int64_t i = 0; i < used && i < kMostLanes; ++i) {
      stage.from[i] = i / c * (packed ? n * job_.row_stride : job_.set_stride) + i % c;
      stage.to[i] = i / c * (packed ? n : job_.sets.rows) * c + i % c;
      if (job_.mask) stage.mask[i] = job_.mask[i % c];
    }
  }

  void sort_staged(Stage& stage, int64_t b, int64_t n, int64_t count, char* scratch) const {
    prepare(stage, n, count);
    const int64_t used = count * job_.channels;
    const Set set = job_.sets[b];
    Bits* from = reinterpret_cast<Bits*>(scratch);
    Bits* to = from + n * stage.width;
    char* index = reinterpret_cast<char*>(to + n * stage.width);
    if (used < stage.width) std::memset(from, 0, n * stage.width * sizeof(Bits));
    move<true>(stage, reinterpret_cast<const Bits*>(source(b, set)), from);
    sort({scratch, reinterpret_cast<char*>(to), index, stage.width, stage.width, n, stage.width, used,
          job_.mask ? stage.mask : nullptr, job_.descending != 0},
         scratch + stage_bytes(n));
    move<false>(stage, reinterpret_cast<Bits*>(values(set.first, 0)), to);
    if (!job_.index_bytes) return;
    with_index(job_.index_bytes, [&](auto zero) {
      using T = decltype(zero);
      move<false>(stage, reinterpret_cast<T*>(indices(set.first, 0)), reinterpret_cast<T*>(index));
    });
  }

  // From the tensor to the stage, or back.
  template <bool kFill, class Outside, class T>
  void move(const Stage& stage, Outside* tensor, T* staged) const {
    const int64_t n = stage.n, width = stage.width, row = kFill ? job_.row_stride : job_.channels;
    const int64_t used = stage.count * job_.channels;
    const auto copy = [](Outside& outside, T& inside) {
      if constexpr (kFill) inside = outside;
      else outside = inside;
    };
    const int64_t* at = kFill ? stage.from : stage.to;
    if (job_.channels > 1) {
      for (int64_t r = 0; r < n; ++r, tensor += row, staged += width)
        for (int64_t i = 0; i < used; ++i) copy(tensor[at[i]], staged[i]);
      return;
    }
    for (int64_t i = 0; i < used; ++i)
      for (int64_t r = 0; r < n; ++r) copy(tensor[at[i] + r * row], staged[r * width + i]);
  }

  // Padding comes out as zeros that stay in their rows.
  void pad(const Set& set, int64_t c0, int64_t c1) const {
    for (int64_t r = set.length; r < set.capacity; ++r) {
      std::memset(values(set.first + r, c0), 0, (c1 - c0) * sizeof(Bits));
      for (int64_t c = c0; job_.index_bytes && c < c1; ++c)
        std::memcpy(indices(set.first + r, c), &r, job_.index_bytes);  // little endian
    }
  }

  const SortJob& job_;
  const Bits infinity_;
};

template <class Use>
auto with_keys(const SortJob& job, Use use) {
  if (job.dtype == kFloat32)
    return use(ColumnSort<ValueKey<int32_t>, RowKey<int32_t, int64_t, int32_t>>(job, 0x7f800000));
  if (job.dtype == kFloat64)
    return use(ColumnSort<ValueKey<int64_t>, PairKey>(job, 0x7ff0000000000000));
  return use(ColumnSort<ValueKey<int16_t>, RowKey<int16_t, int32_t, uint16_t>>(
      job, job.dtype == kBfloat16 ? 0x7f80 : 0x7c00));
}

inline Plan sort_plan(const SortJob& job) {
  return with_keys(job, [](const auto& sort) { return sort.plan(); });
}
inline void sort_task(const SortJob& job, int64_t task, void* scratch) {
  with_keys(job, [=](const auto& sort) { sort.run(task, scratch); });
}

}  // namespace slicegraph::SLICEGRAPH_LEVEL
