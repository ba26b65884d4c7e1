"""Make the ugly tables of this folder: `python tests/tables/make.py` writes `files/`.

The molecules are of the shipped data set; logP and TPSA are RDKit's, so that there is something to
learn. Each table has one thing that real files of projects have and that once went wrong.
"""

import csv
import datetime
import io
import random
from pathlib import Path

import pandas as pd
from rdkit import Chem, RDLogger
from rdkit.Chem import Crippen, Descriptors

HERE = Path(__file__).parent
FILES = HERE / "files"
MINI = HERE.parents[1] / "datasets" / "mini" / "mini.csv.gz"
CHIRAL = ["C[C@H](N)C(=O)O", "CC[C@@H](C)O", "C[C@H](O)c1ccccc1", "C[C@@H](Cl)CC"]


def molecules(count: int) -> list[str]:
    """SMILES of the shipped data set, all different."""
    return pd.read_csv(MINI)["smiles"].drop_duplicates().head(count).tolist()


SMILES = molecules(200)
MOLS = [Chem.MolFromSmiles(smiles) for smiles in SMILES]
LOGP = [round(Crippen.MolLogP(mol), 2) for mol in MOLS]
TPSA = [round(Descriptors.TPSA(mol), 1) for mol in MOLS]
ACTIVE = [int(logp > 0) for logp in LOGP]
HEAVY = [mol.GetNumHeavyAtoms() for mol in MOLS]


def text(header: list[str], rows: list[list], delimiter: str = ",") -> str:
    """A table as CSV text."""
    out = io.StringIO()
    table = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    return out.getvalue()


def write(name: str, content: str, encoding: str = "utf-8") -> None:
    (FILES / name).write_bytes(content.encode(encoding))


def comma(value: float) -> str:
    return str(value).replace(".", ",")


def main() -> None:
    RDLogger.DisableLog("rdApp.*")
    FILES.mkdir(exist_ok=True)
    draw = random.Random(0)
    numbered = list(enumerate(SMILES, start=1))

    # Several possible targets; an identifier, a batch and a date that are numbers.
    rows = [
        [1000 + 7 * i, s, LOGP[i - 1], f"{1e-6 * (1 + TPSA[i - 1]):.3g}", 20230000 + i // 50]
        for i, s in numbered[:120]
    ]
    write("multi.csv", text(["compound number", "SMILES", "logD", "Papp", "batch"], rows))
    # One target beside identifiers.
    rows = [[f"CPD-{i:04d}", 58000 + 13 * i, s, LOGP[i - 1], 7.4] for i, s in numbered[:120]]
    write("one_target.csv", text(["name", "no", "smiles", "logD", "pH"], rows))
    # Two targets whose scales differ by a factor of a million.
    rows = [[s, LOGP[i - 1], 1e6 * (1 + TPSA[i - 1])] for i, s in numbered[:120]]
    write("two_scales.csv", text(["smiles", "logP", "counts"], rows))
    # Scaffolds of which the rare ones are all inactive.
    rings = [s for s in SMILES if "1" in s]
    chains = [s for s in SMILES if "1" not in s]
    rows = [[s, int(k % 2)] for k, s in enumerate(chains[:60])]
    rows += [[s, int(k % 9 == 0)] for k, s in enumerate(rings[:90])]
    write("scaffolds.csv", text(["smiles", "active"], rows))
    # Thousands separators in five of six values.
    rows = [[s, f"{1000 * (1 + TPSA[i - 1]) * (i if i % 6 else 0.01):,.1f}"] for i, s in numbered]
    write("thousands.csv", text(["smiles", "AUC"], rows))
    # Limits instead of values.
    values = [str(v) if i % 8 else ("> 1.5" if i % 16 else "<-0.5") for i, v in enumerate(LOGP)]
    rows = [[s, values[i - 1]] for i, s in numbered[:120]]
    write("censored.csv", text(["smiles", "logD"], rows))
    # Every molecule five times, in other spellings, with noise.
    rows = []
    for i, mol in enumerate(MOLS[:40]):
        for k in range(5):
            spelt = Chem.MolToSmiles(mol, doRandom=True) if k else SMILES[i]
            rows.append([spelt, round(LOGP[i] + draw.gauss(0, 0.2), 3)])
    draw.shuffle(rows)
    write("replicates.csv", text(["smiles", "logD"], rows))
    # Salts and mirror images of the same molecules with other labels.
    rows = [[s, LOGP[i - 1]] for i, s in numbered[:80]]
    rows += [[f"{s}.Cl", LOGP[i - 1] + 0.3] for i, s in numbered[:40]]
    rows += [[s, 1.0 + k] for k, s in enumerate(CHIRAL)]
    rows += [[s.replace("@@", "#").replace("@", "@@").replace("#", "@"), k] for k, s in
             enumerate(CHIRAL)]  # fmt: skip
    write("salts.csv", text(["smiles", "logD"], rows))
    # A split of the owner, with a molecule on two sides; dates; series.
    parts = ["train"] * 8 + ["val", "test"]
    rows = [[s, LOGP[i - 1], parts[i % 10]] for i, s in numbered[:150]]
    rows += [[SMILES[8], 0.1, "train"]]  # SMILES[8] is in test (row 9)
    write("own_split.csv", text(["smiles", "logD", "Set"], rows))
    days = [datetime.date(2019, 1, 1) + datetime.timedelta(days=11 * i) for i in range(150)]
    rows = [[s, LOGP[i - 1], days[i - 1].strftime("%d.%m.%Y")] for i, s in numbered[:150]]
    draw.shuffle(rows)
    write("dates.csv", text(["smiles", "logD", "measured on"], rows))
    rows = [[s, LOGP[i - 1], f"series {i % 17}"] for i, s in numbered[:150]]
    write("series.csv", text(["smiles", "logD", "series"], rows))
    # Too little to learn from.
    rows = [[s, int(i in (20, 90, 150))] for i, s in numbered]
    write("three_actives.csv", text(["smiles", "active"], rows))
    write("twenty.csv", text(["smiles", "logD"], [[s, LOGP[i - 1]] for i, s in numbered[:20]]))
    write("one_class.csv", text(["smiles", "active"], [[s, 0] for s in SMILES[:50]]))
    write("no_labels.csv", text(["smiles", "logD"], [[s, ""] for s in SMILES[:50]]))
    # Classes in words, gaps in words.
    for name, words in {
        "words_active": ("inactive", "Active"),
        "words_yes": ("no", "YES"),
        "words_true": ("False", "True"),
    }.items():
        write(f"{name}.csv", text(["smiles", "hit"], [[s, words[ACTIVE[i - 1]]] for i, s in
              numbered[:120]]))  # fmt: skip
    rows = [[s, "n.d." if i % 12 == 0 else LOGP[i - 1]] for i, s in numbered[:120]]
    write("gaps.csv", text(["smiles", "logD"], rows))
    rows = [[s, ("low", "medium", "high")[i % 3]] for i, s in numbered[:120]]
    write("three_words.csv", text(["smiles", "solubility class"], rows))
    write("classes.csv", text(["smiles", "class"], [[s, i % 3] for i, s in numbered[:120]]))
    rows = [[s, 1 + ACTIVE[i - 1]] for i, s in numbered[:120]]
    write("one_two.csv", text(["smiles", "class"], rows))
    # Encodings, separators, headers.
    rows = [[s, LOGP[i - 1], "Müller" if i % 2 else "Šimić"] for i, s in numbered[:120]]
    write("utf16.csv", text(["smiles", "logD", "chemist"], rows, "\t"), "utf-16")
    latin = [[*row[:2], "Müller"] for row in rows]
    write("latin1.csv", text(["smiles", "Löslichkeit", "chemist"], latin), "latin-1")
    rows = [[s, comma(LOGP[i - 1]), "a, b"] for i, s in numbered[:120]]
    write("semicolon.csv", text(["Smiles", "logD", "remark"], rows, ";"), "cp1252")
    excel = text(["Smiles", "logD", "remark"], rows, ";").replace("\n", "\r\n")
    write("excel.csv", "sep=;\r\n" + excel, "utf-8-sig")
    rows = [[s, LOGP[i - 1]] for i, s in numbered[:120]]
    write("comma_name.csv", text(["smiles", "logD (pH 7.4, shake flask)"], rows))
    german = [[s, f"{1000 * (1 + TPSA[i - 1]):,.2f}".translate(str.maketrans(",.", ".,"))] for i, s
              in numbered[:120]]  # fmt: skip
    write("german.csv", text(["smiles", "AUC"], german, ";"))
    old_mac = text(["smiles", "logD"], rows).replace("\n", "\r")
    write("old_mac.csv", old_mac)
    # Broken rows: few, and many.
    few = [row if i % 40 else ["not a molecule", row[1]] for i, row in enumerate(rows, start=1)]
    write("few_broken.csv", text(["smiles", "logD"], few))
    many = [row if i % 4 else [row[0], "see notebook"] for i, row in enumerate(rows, start=1)]
    write("many_broken.csv", text(["smiles", "logD"], many))
    # Other formats.
    inchi = [[Chem.MolToInchi(MOLS[i - 1]), LOGP[i - 1]] for i, _ in numbered[:120]]
    write("inchi.csv", text(["InChI", "logD"], inchi))
    with Chem.SDWriter(str(FILES / "molecules.sdf")) as out:
        for i, mol in enumerate(MOLS[:60]):
            mol = Chem.Mol(mol)
            mol.SetProp("_Name", f"CPD-{i}")
            mol.SetProp("logD", str(LOGP[i]))
            out.write(mol)
    table = pd.DataFrame(rows[:60], columns=["smiles", "logD"])
    with pd.ExcelWriter(FILES / "table.xlsx", engine="openpyxl") as out:
        pd.DataFrame().to_excel(out, sheet_name="cover", index=False)
        table.to_excel(out, sheet_name="data", index=False)


if __name__ == "__main__":
    main()
