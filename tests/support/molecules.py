"""Molecules of every kind that a SMILES can write, and other spellings of them."""

import random
from collections.abc import Iterator

from rdkit import Chem

DENDRIMER = "CC(C)(C)" * 60
PEPTIDE = "NCC(=O)N[C@@H](C)C(=O)" + "N[C@@H](Cc1ccc(O)cc1)C(=O)N[C@@H](CC(N)=O)C(=O)" * 12 + "O"

MOLECULES = [
    *("C", "O", "[H][H]", "[He]", "[H]", "[H+]", "[H-]", "[Na+]", "[U]", "[Og]", "*", "[*]"),
    *("CCO", "CC(=O)O", "C#N", "[C-]#[O+]", "C=C=C", "N#N", "O=C=O", "CC#CC", "[C]", "[CH2]"),
    # Charges, radicals, isotopes, atom map numbers, more than the vocabularies have.
    *("[NH4+]", "C[N+](C)(C)C", "[O-]S(=O)(=O)[O-]", "[Fe+3]", "[O-2]", "[Th+8]", "[N-3]", "[C-7]"),
    *("[CH3]", "C[CH]C", "[O][O]", "[NH]", "CC(C)([O])C", "C[N]O", "[B]", "O=[N]", "[CH]=C"),
    *("[13CH4]", "[2H]C([2H])([2H])O", "[2H][2H]", "C[14CH2]O", "[18F]CC", "[3H]c1ccccc1"),
    *(
        "[CH3:1][OH:2]",
        "[*:1]CC[*:2]",
        "[F:3][CH2:3]",
        "[SiH4]",
        "[PH5]",
        "[SH6]",
        "[UH8]",
        "[UH9]",
    ),
    # Several parts.
    *("[Na+].[Cl-]", "CC(=O)[O-].[NH4+]", "O.O.O", "c1ccccc1.Cl", "[Ca+2].[Cl-].[Cl-].O.O"),
    *("C[N+](C)(C)CCO.[I-]", "CCN.OS(=O)(=O)O.CCN", "C.C", "C1CC1.C1CC1.N"),
    # Metals, dative bonds, clusters, many neighbours.
    *(
        "C[Hg]C",
        "Cl[Pt](Cl)(N)N",
        "[Fe](C#[O+])(C#[O+])C#[O+]",
        "C[Mg]Br",
        "CC[Zn]CC",
        "O=[Os](=O)(=O)=O",
    ),
    *("[NH3]->[Cu+2]<-[NH3]", "c1ccc2c(c1)O[Cu]<-N=C2", "F[U](F)(F)(F)(F)F"),
    *("FS(F)(F)(F)(F)F", "FP(F)(F)(F)F", "F[Xe]F", "O=I(=O)(=O)O", "OCl(=O)(=O)=O", "CN(=O)=O"),
    "[W](Cl)(Cl)(Cl)(Cl)(Cl)(Cl)(Cl)(Cl)(Cl)(Cl)(Cl)Cl",
    "[CH-]1C=CC=C1.[CH-]1C=CC=C1.[Fe+2]",
    "CC1=CC(C)=[O+][Al-3]2(O1)(OC(C)=CC(C)=[O+]2)OC(C)=CC(C)=O",
    # Aromatic and not.
    *("c1ccccc1", "C1=CC=CC=C1", "c1ccc2ccccc2c1", "c1cc[nH]c1", "c1ccoc1", "c1ccsc1", "c1cncnc1"),
    *(
        "[nH]1cnc2cncnc12",
        "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
        "c1ccc[n+]([O-])c1",
        "c1cc[o+]cc1",
        "o1bccc1",
    ),
    *(
        "C1=CC=CC=CC=C1",
        "[cH-]1cccc1",
        "[cH+]1cccccc1",
        "c1ccc2cccc-2cc1",
        "O=c1cccccc1",
        "c1cc[se]c1",
    ),
    *("[te]1cccc1", "c1ccpcc1", "b1ccccc1", "c1ccc(cc1)-c1ccccc1", "c1cc2ccc3cccc4ccc(c1)c2c34"),
    *("C1=CC2=CC=CC3=CC=CC1=C32", "S1C=CC=C1", "n1nnnn1C", "[O-][n+]1ccccc1", "CS(C)(=O)=O"),
    # Rings of other kinds: bridged, spiro, large, strained, many.
    *(
        "C1CC1",
        "C1CC2CC1CC2",
        "C1CC2(C1)CCC2",
        "C12C3C4C1C5C2C3C45",
        "C1C2CC3CC1CC(C2)C3",
        "C1CCCCCCCCCCC1",
    ),
    *("C1=CCC=CC1", "O=C1C=CC(=O)C=C1", "C1#CCCCCCC1", "C1OCCOCCOCCOCCOCCO1", "C1CC2CCC1C2=O"),
    "c12c3c4c5c1c1c6c7c2c2c8c3c3c9c4c4c%10c5c5c1c1c6c6c%11c7c2c2c7c8c3c3c8c9c4c4c9c%10c5c5c1c1c6c6c%11c2c2c7c3c3c8c4c4c9c5c1c1c6c2c3c41",
    # Chirality and double bonds.
    *(
        "F[C@H](Cl)Br",
        "F[C@@H](Cl)Br",
        "N[C@@H](C)C(=O)O",
        "C[S@](=O)CC",
        "C[P@@](=O)(O)CC",
        "C[C@H]1CCCC[C@@H]1O",
    ),
    *(
        "F/C=C/F",
        "F/C=C\\F",
        "C/C=C/C=C\\C",
        "C/C(F)=C(\\Cl)Br",
        "CC=NO",
        "C/C=N/O",
        "F/C=C/C=C/[C@H](Cl)Br",
    ),
    *("C[C@H]1CC[C@@H](O)CC1", "C[C@H]1CC[C@H](O)CC1", "[H]/N=C(/C)CC", "C(=C/C)\\C"),
    *(
        "O[C@H]1[C@@H](O)[C@@H](O)[C@H](O)[C@@H](CO)O1",
        "C[C@@H](O)[C@H](O)C",
        "C[C@]12CC[C@H](CC1)C2",
    ),
    *(
        "C/C=C(/C)\\C=C",
        "F[C@](Cl)(Br)I",
        "C[Pt@SP1](F)(Cl)Br",
        "O[Co@OH1](F)(Cl)(Br)(N)C",
        "NC(Br)=[C@]=C(O)C",
    ),
    "CN1CC[C@]23c4c5ccc(O)c4O[C@H]2[C@@H](O)C=C[C@H]3[C@H]1C5",
    "C[C@]12CC[C@H]3[C@@H](CC=C4C[C@@H](O)CC[C@]34C)[C@@H]1CC[C@@H]2O",
    "CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)O",
    # Larger than a byte can count, and other bonds.
    *(DENDRIMER, PEPTIDE, "C" * 300, "[U]" + "(F)" * 300, "C~C", "C$C"),
]

CHIRAL = [
    *(
        "F[C@H](Cl)Br",
        "[C@H](F)(Cl)Br",
        "F[C@](Cl)(Br)I",
        "O[C@H]1CC[C@@H](N)CC1",
        "C[P@](=O)(O)CC",
    ),
    # Up to three ring closures at a chiral atom, bonds with a symbol, several parts.
    *("C[C@]12CC[C@H](CC1)C2", "C1C[C@@]2(CO1)CC[C@H]1C=C[C@@H]2C1", "N[C@H](C)O.F[C@@H](N)C"),
    "CN1CC[C@]23c4c5ccc(O)c4O[C@H]2[C@@H](O)C=C[C@H]3[C@H]1C5",
    "C[C@]12CC[C@H]3[C@@H](CC=C4C[C@@H](O)CC[C@]34C)[C@@H]1CC[C@@H]2O",
    "O=C1C[C@@H]2OCC=C3CN4CC[C@]56[C@@H]4C[C@H]3[C@H]2[C@@H]6N1c1ccccc15",
    "C1" + "C[C@@H](O)C2CC2" * 12 + "C1",
]


ALPHABET = "CNOFPSIBHcnops*[]()=#$:/\\.-+@%0123456789lrae~<>| "
_FUZZ_SEEDS = [text for text in MOLECULES if len(text) < 60]


def spellings(smiles: str, count: int) -> list[str]:
    """The text and others of the same molecule: other orders, hydrogens, double bonds, numbers."""
    mol = Chem.MolFromSmiles(smiles)
    found = [smiles, *_random(mol, count), *_random(Chem.AddHs(mol), 1), *_kekulized(mol)]
    found += [*_random(mol, 1, allHsExplicit=True), *_random(_numbered(mol), 1)]
    return [text for text in found if Chem.MolFromSmiles(text) is not None]


def _random(mol: Chem.Mol, count: int, **options: bool) -> list[str]:
    return list(Chem.MolToRandomSmilesVect(mol, count, randomSeed=7, **options))


def _kekulized(mol: Chem.Mol) -> list[str]:
    mol = Chem.Mol(mol)
    try:
        Chem.Kekulize(mol, clearAromaticFlags=True)
    except Chem.KekulizeException:
        return []
    return _random(mol, 1, kekuleSmiles=True)


def _numbered(mol: Chem.Mol) -> Chem.Mol:
    mol = Chem.Mol(mol)
    for atom in mol.GetAtoms():
        atom.SetAtomMapNum(mol.GetNumAtoms() - atom.GetIdx())
    return mol


def broken_texts(count: int, seed: int) -> Iterator[str]:
    """Random characters, and molecules with some characters changed, lost, doubled or moved."""
    draw = random.Random(seed)
    for i in range(count):
        if i % 4 == 0:
            yield "".join(draw.choices(ALPHABET, k=draw.randint(0, 30)))
        else:
            yield _mutated(draw.choice(_FUZZ_SEEDS), draw)


def _mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(1, 3)):
        i, j = sorted(draw.choices(range(len(text) + 1), k=2))
        insert = draw.choice([draw.choice(ALPHABET), text[i:j], text[i:j] * 2, text[i:j][::-1], ""])
        text = text[:i] + insert + text[draw.choice([i, j]) :]
    return text[:120]
