// The column sort of one task: some neighbouring channels of one set, or, where a set has fewer
// channels than a register has lanes, the channels of several sets side by side.
#pragma once

#include "jobs.h"
#include "radix.h"

namespace slicegraph::SLICEGRAPH_LEVEL {

// Short sets of one channel, between the order of the sets and the order of the rows: as many sets of kRows values as a register has lanes: kRows registers either way. Every register of
// the one side is put together from all registers of the other.
template <class T, int kLanes, int kRows>
class ShortSets {
 public:
  // rows[r * width + i] = sets[i * kRows + r]
  static SLICEGRAPH_INLINE void to_rows(const T* sets, T* rows, int64_t width) {
    V in[kRows];
    for (int v = 0; v < kRows; ++v) in[v] = load<V>(sets + v * kLanes);
    put<true>(in, rows, width, std::make_integer_sequence<int, kRows>());
  }
  // sets[i * kRows + r] = rows[r * width + i]
  static SLICEGRAPH_INLINE void to_sets(const T* rows, T* sets, int64_t width) {
    V in[kRows];
    for (int r = 0; r < kRows; ++r) in[r] = load<V>(rows + r * width);
    put<false>(in, sets, kLanes, std::make_integer_sequence<int, kRows>());
  }

 private:
  using V = Vector<T, kLanes>;
  using Lanes = std::make_integer_sequence<int, kLanes>;

  template <bool kToRows, int... k>
  static SLICEGRAPH_INLINE void put(const V (&in)[kRows], T* out, int64_t width,
                                    std::integer_sequence<int, k...>) {
    (store(out + k * width, gather<kToRows, k, 0>(in[0], in, Lanes())), ...);
  }

  // Lane i of register `kOut`, from register `kIn` on; what comes from earlier ones is in `found`.
  template <bool kToRows, int kOut, int kIn, int... i>
  static SLICEGRAPH_INLINE V gather(V found, const V (&in)[kRows],
                                    std::integer_sequence<int, i...> lanes) {
    if constexpr (kIn == kRows) {
      return found;
    } else {
      return gather<kToRows, kOut, kIn + 1>(
          shuffle<T, kLanes, (source(kToRows, kOut, i) == kIn ? kLanes + lane(kToRows, kOut, i) : i)...>(
              found, in[kIn]),
          in, lanes);
    }
  }
  static constexpr int source(bool to_rows, int out, int i) {
    return to_rows ? (i * kRows + out) / kLanes : (out * kLanes + i) % kRows;
  }
  static constexpr int lane(bool to_rows, int out, int i) {
    return to_rows ? (i * kRows + out) % kLanes : (out * kLanes + i) / kRows;
  }
};

template <class K>
bool radix_pays(int64_t n, int64_t lanes) {
  const int64_t registers = (lanes * K::kParts + K::kLanes - 1) / K::kLanes;
  return n > 2 * kChunk && lanes * RadixColumns<K>::cost(n, lanes) < registers * NetworkColumns<K>::cost(n);
}

template <class Columns, class Bits>
void sort_with_rows(Columns columns, Bits infinity, int index_bytes) {
  const bool special = columns.template read<false>(infinity);
  if (special) columns.template read<true>(infinity);
  columns.sort();
  switch (index_bytes) {
    case 0: columns.template write<void>(); break;
    case 1: columns.template write<uint8_t>(); break;
    case 2: columns.template write<int16_t>(); break;
    case 4: columns.template write<int32_t>(); break;
    case 8: columns.template write<int64_t>(); break;
  }
  if (special) columns.restore();
}

// False if the values cannot be had from the keys alone.
template <class Columns, class Bits>
bool sort_values(Columns columns, Bits infinity) {
  if (columns.template read<false>(infinity)) return false;
  columns.sort();
  columns.template write<void>();
  return true;
}

// One job with the keys that suit it: `Value` without indices, `Row` with them.
template <class Value, class Row>
class ColumnSort {
 public:
  using Bits = typename Value::Bits;

  ColumnSort(const SortJob& job, Bits infinity) : job_(job), infinity_(infinity) {}

  int64_t tasks() const {
    if (!narrow()) return job_.sets.count * blocks();
    if (long_sets()) return job_.sets.count * job_.channels;
    return (job_.sets.count + sets_a_task() - 1) / sets_a_task();
  }

  int64_t scratch() const {
    const int64_t value = key_bytes<Value>(), row = key_bytes<Row>();
    return (value > row ? value : row) + (narrow() ? stage_bytes(longest_network()) : 0);
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
    const int64_t vectors = fit < 1 ? 1 : fit < kMost ? fit : kMost;
    return vectors * kLanes;
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
    const int64_t longest = RadixColumns<K>::scratch_bytes(job_.sets.longest, columns);
    const int64_t most = network > radix ? network : radix;
    return most > longest ? most : longest;
  }
  // The longest set that may go through the network: where sets are long, the memory for it counts.
  int64_t longest_network() const {
    constexpr int64_t kShort = 1 << 12;
    int64_t longest = job_.sets.longest < kShort ? job_.sets.longest : kShort;
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
    const int64_t most = 16, stages = (1 << 14) / (job_.sets.longest * stage_lanes() + 1);
    return sets_a_stage() * (stages < 1 ? 1 : stages < most ? stages : most);
  }
  bool long_sets() const {
    const int64_t most = sets_a_stage(), sets = job_.sets.count < most ? job_.sets.count : most;
    return radix(job_.sets.longest, sets * job_.channels);
  }
  bool radix(int64_t n, int64_t lanes) const {
    return job_.index_bytes ? radix_pays<Row>(n, lanes) : radix_pays<Value>(n, lanes);
  }
  int64_t stage_bytes(int64_t n) const {
    return (n * stage_lanes() * (2 * int64_t(sizeof(Bits)) + job_.index_bytes) + 63) / 64 * 64;
  }

  const char* source(int64_t b, const Set& set) const {
    const int64_t offset =
        job_.sets.packed() ? set.first * job_.row_stride : b * job_.set_stride;
    return job_.x + offset * int64_t(sizeof(Bits));
  }
  char* values(int64_t row, int64_t c) const {
    return job_.values + (row * job_.channels + c) * int64_t(sizeof(Bits));
  }
  char* indices(int64_t row, int64_t c) const {
    return job_.indices + (row * job_.channels + c) * job_.index_bytes;
  }

  Block in_place(int64_t b, const Set& set, int64_t c0, int64_t c1) const {
    return {source(b, set) + c0 * int64_t(sizeof(Bits)),
            values(set.first, c0),
            indices(set.first, c0),
            job_.row_stride,
            job_.channels,
            set.length,
            c1 - c0,
            c1 - c0,
            Row::kParts,
            job_.mask ? job_.mask + c0 : nullptr,
            job_.descending != 0};
  }

  void sort(const Block& block, void* scratch) const {
    if (job_.index_bytes) return sort_rows(block, job_.index_bytes, scratch);
    const bool done = use_radix<Value>(block)
                          ? sort_values(RadixColumns<Value>(block, scratch), infinity_)
                          : sort_values(NetworkColumns<Value>(block, scratch), infinity_);
    if (!done) sort_rows(block, 0, scratch);
  }
  void sort_rows(const Block& block, int index_bytes, void* scratch) const {
    if (use_radix<Row>(block)) {
      sort_with_rows(RadixColumns<Row>(block, scratch), infinity_, index_bytes);
    } else {
      sort_with_rows(NetworkColumns<Row>(block, scratch), infinity_, index_bytes);
    }
  }
  template <class K>
  static bool use_radix(const Block& block) {
    return block.width < kLanes || radix_pays<K>(block.rows, block.lanes);
  }

  // Few channels, some sets long: a task is a column of a long set, or a whole short set.
  void run_column(int64_t task, char* scratch) const {
    const int64_t b = task / job_.channels, c = task % job_.channels;
    const Set set = job_.sets[b];
    if (radix(set.length, job_.channels)) {
      sort(in_place(b, set, c, c + 1), scratch);
    } else if (set.length > 0 && c == 0) {
      Stage stage;
      prepare(stage, set.length, 1);
      sort_staged(stage, b, scratch);
    }
    pad(set, c, c + 1);
  }

  // Few channels, short sets: a task is a number of sets.
  void run_side_by_side(int64_t task, char* scratch) const {
    const int64_t first = task * sets_a_task(), limit = first + sets_a_task();
    const int64_t end = limit < job_.sets.count ? limit : job_.sets.count;
    const bool dense = job_.sets.layout == kDense;
    Stage stage;
    for (int64_t b = first; b < end;) {
      const int64_t length = job_.sets[b].length;
      const int64_t most = end - b < sets_a_stage() ? end - b : sets_a_stage();
      int64_t count = dense ? most : 1;  // neighbours of one length share a stage
      while (count < most && job_.sets[b + count].length == length) ++count;
      if (length > 0) {
        prepare(stage, length, count);
        sort_staged(stage, b, scratch);
      }
      for (int64_t i = 0; !dense && i < count; ++i) pad(job_.sets[b + i], 0, job_.channels);
      b += count;
    }
  }

  // Where the columns of `count` neighbouring sets of n rows go in memory some registers wide. Where
  // half a register holds them, they are placed so that their keys fill one register and not half of
  // two.
  struct Stage {
    int64_t n = 0, count = 0, width = 0;
    bool halved = false;
    int64_t from_set = 0, to_set = 0;  // elements from one set to the next
    // `from` and `to` from their first element on; places are below the width, as GCC cannot see.
    int64_t place[kMostLanes], from[kMostLanes], to[kMostLanes];
    uint8_t mask[4 * kMostLanes] = {};
  };

  void prepare(Stage& stage, int64_t n, int64_t count) const {
    if (stage.n == n && stage.count == count) return;
    const int64_t c = job_.channels, used = count * c;
    const bool packed = job_.sets.packed();
    stage.n = n, stage.count = count, stage.width = (used + kLanes - 1) / kLanes * kLanes;
    stage.halved = job_.index_bytes && Row::kParts == 2 && 2 * used <= kLanes;
    stage.from_set = packed ? n * job_.row_stride : job_.set_stride;
    stage.to_set = (packed ? n : job_.sets.rows) * c;
    for (int64_t i = 0; i < used && i < kMostLanes; ++i) {
      const int64_t place = stage.halved ? Row::column(0, static_cast<int>(i)) : i;
      stage.place[i] = place;
      stage.from[i] = i / c * stage.from_set + i % c;
      stage.to[i] = i / c * stage.to_set + i % c;
      if (job_.mask) stage.mask[place] = job_.mask[i % c];
    }
  }

  void sort_staged(const Stage& stage, int64_t b, char* scratch) const {
    const int64_t n = stage.n, used = stage.count * job_.channels;
    const Set set = job_.sets[b];
    Bits* from = reinterpret_cast<Bits*>(scratch);
    Bits* to = from + n * stage.width;
    char* index = reinterpret_cast<char*>(to + n * stage.width);
    if (used < stage.width) std::memset(from, 0, n * stage.width * sizeof(Bits));
    fill(stage, from, reinterpret_cast<const Bits*>(source(b, set)));
    sort({scratch, reinterpret_cast<char*>(to), index, stage.width, stage.width, n, stage.width,
          stage.place[used - 1] + 1, stage.halved ? 1 : Row::kParts,
          job_.mask ? stage.mask : nullptr, job_.descending != 0},
         scratch + stage_bytes(n));
    empty<Bits>(stage, values(set.first, 0), to);
    switch (job_.index_bytes) {
      case 1: return empty<int8_t>(stage, indices(set.first, 0), index);
      case 2: return empty<int16_t>(stage, indices(set.first, 0), index);
      case 4: return empty<int32_t>(stage, indices(set.first, 0), index);
      case 8: return empty<int64_t>(stage, indices(set.first, 0), index);
    }
  }

  void fill(const Stage& stage, Bits* to, const Bits* from) const {
    const int64_t n = stage.n, width = stage.width, stride = job_.row_stride;
    if (job_.channels == 1 && !stage.halved) {
      int64_t i = 0;
      if (stride == 1 && stage.from_set == n)
        i = for_short_sets<Bits>(stage, [&](auto sets, int64_t first) {
          sets.to_rows(from + first * n, to + first, width);
        });
      for (; i < stage.count; ++i)
        for (int64_t r = 0; r < n; ++r) to[r * width + i] = from[i * stage.from_set + r * stride];
      return;
    }
    const int64_t used = stage.count * job_.channels;
    for (int64_t r = 0; r < n; ++r, from += stride)
      for (int64_t i = 0; i < used; ++i) to[r * width + stage.place[i]] = from[stage.from[i]];
  }

  template <class T>
  void empty(const Stage& stage, void* to, const void* from) const {
    T* out = static_cast<T*>(to);
    const T* in = static_cast<const T*>(from);
    const int64_t n = stage.n, width = stage.width;
    if (job_.channels == 1 && !stage.halved) {
      int64_t i = 0;
      if (stage.to_set == n)
        i = for_short_sets<T>(stage, [&](auto sets, int64_t first) {
          sets.to_sets(in + first, out + first * n, width);
        });
      for (; i < stage.count; ++i)
        for (int64_t r = 0; r < n; ++r) out[i * stage.to_set + r] = in[r * width + i];
      return;
    }
    const int64_t used = stage.count * job_.channels;
    for (int64_t r = 0; r < n; ++r, out += job_.channels, in += width)
      for (int64_t i = 0; i < used; ++i) out[stage.to[i]] = in[stage.place[i]];
  }

  // As many sets at a time as fill registers; returns how many were done.
  template <class T, class Work>
  static int64_t for_short_sets(const Stage& stage, const Work& work) {
    const auto each = [&](auto sets) {
      int64_t i = 0;
      for (; i + kLanes <= stage.count; i += kLanes) work(sets, i);
      return i;
    };
    switch (stage.n) {
      case 2: return each(ShortSets<T, kLanes, 2>());
      case 3: return each(ShortSets<T, kLanes, 3>());
      case 4: return each(ShortSets<T, kLanes, 4>());
      case 5: return each(ShortSets<T, kLanes, 5>());
      case 6: return each(ShortSets<T, kLanes, 6>());
      case 7: return each(ShortSets<T, kLanes, 7>());
      case 8: return each(ShortSets<T, kLanes, 8>());
      default: return 0;
    }
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

}  // namespace slicegraph::SLICEGRAPH_LEVEL
