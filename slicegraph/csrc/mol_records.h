// The records of the atoms and bonds in RDKit's binary form of a molecule: see
// slicegraph/data/molecule/mol_records.py, which has the table of its parts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace slicegraph {

constexpr int kMostAtoms = 255, kMostBonds = 511;

// A key has the number of an atom's bonds, whether it is in a ring, and its record, then zeros.
struct AtomKey {
  uint8_t bonds, in_ring, record[14];
};

// A record, then zeros.
struct BondKey {
  uint8_t record[4];
};

static_assert(sizeof(AtomKey) == 16 && sizeof(BondKey) == 4);

struct MolRecords {
  int num_atoms, num_bonds;
  AtomKey atoms[kMostAtoms];
  BondKey bonds[kMostBonds];
  uint8_t ends[kMostBonds][2];
};

struct Bytes {
  const uint8_t *at, *end;

  // The next bytes; null if there are not as many.
  const uint8_t* take(int64_t count) {
    if (end - at < count) return nullptr;
    at += count;
    return at - count;
  }

  // A number of four bytes, or -1.
  int64_t number() {
    const uint8_t* b = take(4);
    return b ? b[0] | b[1] << 8 | b[2] << 16 | static_cast<int64_t>(b[3]) << 24 : -1;
  }

  bool is_next(uint8_t wanted) {
    const uint8_t* b = take(1);
    return b && *b == wanted;
  }
};

inline int bits(unsigned value) { return __builtin_popcount(value); }

inline bool read_atoms(Bytes& bytes, MolRecords& mol) {
  constexpr uint8_t kFlags = 0b0110'0000, kValues = 0b1111'1110;
  for (int i = 0; i < mol.num_atoms; ++i) {
    const uint8_t* head = bytes.take(6);
    if (!head || head[1] & ~kFlags || head[2] & ~kValues || head[3] || head[4] || head[5])
      return false;
    if (!bytes.take(bits(head[2]))) return false;
    mol.atoms[i] = {};
    std::copy(head, bytes.at, mol.atoms[i].record);
  }
  return true;
}

inline bool read_bonds(Bytes& bytes, MolRecords& mol) {
  constexpr uint8_t kFlags = 0b0110'1110, kValues = 0b1110, kStereo = 0b10;
  for (int i = 0; i < mol.num_bonds; ++i) {
    const uint8_t* head = bytes.take(3);
    if (!head || head[0] >= mol.num_atoms || head[1] >= mol.num_atoms || head[2] & ~kFlags)
      return false;
    if (!bytes.take(bits(head[2] & kValues))) return false;
    mol.bonds[i] = {};
    std::copy(head + 2, bytes.at, mol.bonds[i].record);
    for (int side : {0, 1}) {
      mol.ends[i][side] = head[side];
      ++mol.atoms[head[side]].bonds;
    }
    if (head[2] & kStereo) {
      const uint8_t* count = bytes.take(1);
      if (!count || !bytes.take(*count)) return false;
    }
  }
  return true;
}

inline bool read_rings(Bytes& bytes, MolRecords& mol) {
  const int64_t count = bytes.number();
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* size = bytes.take(1);
    const uint8_t* ring = size ? bytes.take(*size) : nullptr;
    if (!ring) return false;
    for (int k = 0; k < *size; ++k) {
      if (ring[k] >= mol.num_atoms) return false;
      mol.atoms[ring[k]].in_ring = 1;
    }
  }
  return count >= 0;
}

// False if the molecule is too large, or has anything of another form.
inline bool read_records(Bytes bytes, MolRecords& mol) {
  if (!bytes.take(20)) return false;
  const int64_t num_atoms = bytes.number(), num_bonds = bytes.number();
  if (num_atoms < 1 || num_atoms > kMostAtoms || num_bonds < 0 || num_bonds > kMostBonds)
    return false;
  mol.num_atoms = static_cast<int>(num_atoms);
  mol.num_bonds = static_cast<int>(num_bonds);
  if (!bytes.is_next(0x80) || !bytes.is_next(0x01) || !read_atoms(bytes, mol)) return false;
  if (!bytes.is_next(0x0B) || !read_bonds(bytes, mol)) return false;
  const uint8_t* tag = bytes.take(1);
  return tag && (*tag == 0x14 || *tag == 0x42) && read_rings(bytes, mol);
}

// The chirality tag in the record of an atom, after its charge if it has one; null if none.
inline uint8_t* chirality(AtomKey& atom) {
  constexpr uint8_t kCharge = 0b10, kChirality = 0b100;
  const uint8_t values = atom.record[2];
  return values & kChirality ? atom.record + 6 + (values & kCharge ? 1 : 0) : nullptr;
}

}  // namespace slicegraph
