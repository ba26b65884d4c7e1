// What is wrong with sets that do not fit the pairs of their rows.
#pragma once

#include "job.h"

namespace slicegraph {

// False if a set reaches outside the rows, or has more of them than there is room for. Also
// finds the longest set.
inline bool measure(Sets& sets, int64_t length) {
  if (sets.size(0) != 0 || sets.size(sets.count) != sets.rows) return false;
  for (int64_t b = 0; b < sets.count; ++b) {
    const int64_t n = sets.size(b + 1) - sets.size(b);
    if (n < 0 || n > length) return false;
    if (n > sets.longest) sets.longest = n;
  }
  return true;
}

}  // namespace slicegraph
