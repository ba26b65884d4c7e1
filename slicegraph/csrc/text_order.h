// The records that RDKit would read a canonical SMILES to, without reading it: what
// slicegraph/data/molecule/text_order.py and chirality.py do, which say why.
#pragma once

#include <cstring>

#include "mol_records.h"

namespace slicegraph {

constexpr int kMostLabels = 1000;

// Between two atoms of the text: the places of its label where it is closed and where opened, and
// whether its bond has a symbol there.
struct Closure {
  int label, closed, opened;
  bool symbol;
  int first, last, bond;
};

struct Mark {
  bool twice, hydrogen;
};

struct TextOrder {
  int num_reached, num_closures, num_marks;  // bonds to the atom before; the other bonds; atoms
  int atoms[kMostAtoms], before[kMostAtoms], reached[kMostBonds];
  Closure closures[kMostBonds];
  Mark marks[kMostAtoms];
};

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "[1,0,]": each of 0 to count - 1 once.
inline bool read_numbers(const char* noted, int count, int* numbers) {
  bool seen[kMostBonds] = {};
  int found = 0;
  for (const char* c = noted; *c; ++c) {
    if (!is_digit(*c)) continue;
    int number = *c - '0';
    while (is_digit(c[1]) && number < count) number = 10 * number + (*++c - '0');
    if (number >= count || seen[number]) return false;
    seen[number] = true;
    numbers[found++] = number;
  }
  return found == count;
}

// Tells the bonds that lead to each next atom from those that close rings, in the order of bonds.
inline bool walk(const MolRecords& mol, const char* noted, TextOrder& order) {
  int bonds[kMostBonds], rank[kMostAtoms], last = 0;
  if (!read_numbers(noted, mol.num_bonds, bonds)) return false;
  for (int i = 0; i < mol.num_atoms; ++i) {
    rank[order.atoms[i]] = i;
    order.before[i] = -1;
  }
  order.num_reached = order.num_closures = 0;
  for (int b = 0; b < mol.num_bonds; ++b) {
    const uint8_t* ends = mol.ends[bonds[b]];
    const auto [i, j] = std::minmax(rank[ends[0]], rank[ends[1]]);
    if (j > last) {
      order.before[last = j] = i;
      order.reached[order.num_reached++] = bonds[b];
    } else {
      order.closures[order.num_closures++] = {0, 0, 0, false, i, j, bonds[b]};
    }
  }
  return true;
}

// From the bracket that opens an atom to the one that closes it, or null. A mark that is not of a
// tetrahedron is left out.
inline const char* read_bracket(const char* c, TextOrder& order) {
  const char* const close = std::strchr(c, ']');
  if (!close) return nullptr;
  const char* at = std::find(c, close, '@');
  if (at == close) return close;
  Mark mark{at[1] == '@', false};
  at += 1 + mark.twice;
  mark.hydrogen = *at == 'H';
  at += mark.hydrogen;
  if (*at != '@' && !is_digit(*at) && !(*at >= 'A' && *at <= 'Z')) {
    if (order.num_marks == kMostAtoms) return nullptr;
    order.marks[order.num_marks++] = mark;
  }
  return close;
}

// The label of a ring closure, "1", "%12" or "%(123)", whose last character `c` then points to.
inline int read_label(const char*& c) {
  if (*c != '%') return *c - '0';
  if (is_digit(c[1]) && is_digit(c[2])) {
    c += 2;
    return 10 * (c[-1] - '0') + (*c - '0');
  }
  if (c[1] != '(') return -1;
  int label = 0;
  for (c += 2; is_digit(*c) && label < kMostLabels / 10; ++c) label = 10 * label + (*c - '0');
  return *c == ')' ? label : -1;
}

inline bool has_symbol(const char* text, const char* label) {
  if (label > text && (label[-1] == '/' || label[-1] == '\\')) --label;
  return label > text && std::strchr("-=#:", label[-1]);
}

// The rings of a text: the places where the open ones were opened, and how many are closed.
struct Rings {
  int opened[kMostLabels];
  bool symbol[kMostLabels], is_open[kMostLabels] = {};
  int num_closed = 0;

  bool meet(int label, int place, bool has_symbol, TextOrder& order) {
    if (label < 0) return false;
    is_open[label] = !is_open[label];
    if (is_open[label]) {
      opened[label] = place;
      symbol[label] = has_symbol;
      return true;
    }
    if (num_closed == order.num_closures) return false;
    Closure& closure = order.closures[num_closed++];
    closure.label = label;
    closure.closed = place;
    closure.opened = opened[label];
    closure.symbol = symbol[label];
    return true;
  }
};

// The ring closures in the parser's order, which is by label, and the marks.
inline bool read_text(const char* text, TextOrder& order) {
  Rings rings;
  order.num_marks = 0;
  for (const char* c = text; *c; ++c) {
    if (*c == '<' || *c == '>') return false;
    if (*c == '[') {
      if (!(c = read_bracket(c, order))) return false;
    } else if (is_digit(*c) || *c == '%') {
      const int place = static_cast<int>(c - text);
      const bool symbol = has_symbol(text, c);
      if (!rings.meet(read_label(c), place, symbol, order)) return false;
    }
  }
  std::sort(order.closures, order.closures + rings.num_closed,
            [](const Closure& a, const Closure& b) {
              return a.label != b.label ? a.label < b.label : a.closed < b.closed;
            });
  return rings.num_closed == order.num_closures;
}

// From the order of the text to that of the bonds; -1 without four neighbours.
inline int swaps(const TextOrder& order, int num_atoms, int atom, bool hydrogen) {
  int places[4], num_places = 0, inverted = 0;
  for (int k = 0; k < order.num_closures; ++k) {
    const Closure& closure = order.closures[k];
    if (atom != closure.first && atom != closure.last) continue;
    if (num_places == 4) return -1;
    const int place = atom == closure.first ? closure.opened : closure.closed;
    for (int p = 0; p < num_places; ++p) inverted += places[p] > place;
    places[num_places++] = place;
  }
  const bool is_first = order.before[atom] < 0;
  const int after =
      static_cast<int>(std::count(order.before, order.before + num_atoms, atom));
  if (after + num_places + hydrogen - is_first != 3) return -1;
  return num_places * after + (is_first && hydrogen) + inverted;
}

// Sets the chirality tags, of atoms in the order of the text. False if the marks are not theirs.
inline bool set_tags(const TextOrder& order, int num_atoms, AtomKey* atoms) {
  constexpr uint8_t kClockwise = 1, kCounterclockwise = 2;
  int marks = 0;
  for (int i = 0; i < num_atoms; ++i) {
    uint8_t* tag = chirality(atoms[i]);
    if (!tag) continue;
    if (marks == order.num_marks || *tag < kClockwise || *tag > kCounterclockwise) return false;
    const Mark mark = order.marks[marks++];
    const int number = swaps(order, num_atoms, i, mark.hydrogen);
    if (number < 0) return false;
    *tag = mark.twice == (number % 2 == 0) ? kClockwise : kCounterclockwise;
  }
  return marks == order.num_marks;
}

}  // namespace slicegraph
