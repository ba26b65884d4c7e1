// The keys of the atoms and bonds of a molecule: what slicegraph/ops/backends/cpu_molecule.py calls.
#include "text_order.h"

#define SLICEGRAPH_API extern "C" __attribute__((visibility("default")))

namespace slicegraph {

// The keys of all atoms, those of all bonds, and the two atoms of each bond.
struct KeysOut {
  uint8_t* at;

  template <class T>
  void put(const T& value) {
    std::memcpy(at, &value, sizeof(T));
    at += sizeof(T);
  }

  void put_ends(int first, int last) {
    put(static_cast<uint8_t>(first));
    put(static_cast<uint8_t>(last));
  }
};

static void put_as_they_are(const MolRecords& mol, KeysOut out) {
  for (int i = 0; i < mol.num_atoms; ++i) out.put(mol.atoms[i]);
  for (int i = 0; i < mol.num_bonds; ++i) out.put(mol.bonds[i]);
  for (int i = 0; i < mol.num_bonds; ++i) out.put(mol.ends[i]);
}

static bool put_in_order(const MolRecords& mol, const TextOrder& order, KeysOut out) {
  AtomKey atoms[kMostAtoms];
  for (int i = 0; i < mol.num_atoms; ++i) atoms[i] = mol.atoms[order.atoms[i]];
  if (!set_tags(order, mol.num_atoms, atoms)) return false;
  for (int i = 0; i < mol.num_atoms; ++i) out.put(atoms[i]);
  for (int i = 0; i < order.num_reached; ++i) out.put(mol.bonds[order.reached[i]]);
  for (int i = 0; i < order.num_closures; ++i) out.put(mol.bonds[order.closures[i].bond]);
  for (int i = 0; i < mol.num_atoms; ++i)
    if (order.before[i] >= 0) out.put_ends(order.before[i], i);
  for (int i = 0; i < order.num_closures; ++i) {
    const Closure& c = order.closures[i];
    c.symbol ? out.put_ends(c.first, c.last) : out.put_ends(c.last, c.first);
  }
  return true;
}

}  // namespace slicegraph

using namespace slicegraph;

// Without a text the order stays. Nonzero if anything is of a form that is not known.
SLICEGRAPH_API int slicegraph_molecule_keys(const uint8_t* binary, int64_t size,
                                            const char* atom_order, const char* bond_order,
                                            const char* text, uint8_t* out) {
  MolRecords mol;
  if (!read_records({binary, binary + size}, mol)) return 1;
  if (!text) {
    put_as_they_are(mol, {out});
    return 0;
  }
  TextOrder order;
  const bool done = read_numbers(atom_order, mol.num_atoms, order.atoms) &&
                    walk(mol, bond_order, order) && read_text(text, order) &&
                    put_in_order(mol, order, {out});
  return done ? 0 : 1;
}
