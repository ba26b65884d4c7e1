// The page of `slicegraph serve`: asks the server for what is typed or drawn, and shows it as text.
const part = (id) => document.getElementById(id);
const box = part("smiles");
let facts = { targets: [], classes: [] };
let asked = 0; // the number of the last question: older answers are not shown
let timer = null;

const number = (x) => (x === null || x === undefined ? "none" : Number(x.toPrecision(4)).toString());

function show(id, text) {
  part(id).textContent = text || "";
  part(id).hidden = !text;
}

async function ask(path, content) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

function pairs(entries) {
  const list = document.createElement("dl");
  for (const [name, value] of entries) {
    const row = document.createElement("div");
    const [title, text] = [document.createElement("dt"), document.createElement("dd")];
    [title.textContent, text.textContent] = [name, value];
    row.append(title, text);
    list.append(row);
  }
  return list;
}

function values(row) {
  const parts = [];
  for (const target of facts.targets) {
    const title = document.createElement("p");
    title.className = "muted";
    title.textContent = target;
    const value = document.createElement("p");
    value.className = "value";
    const found = row[`${target}_pred`];
    value.textContent = typeof found === "string" ? found : number(found);
    const unit = document.createElement("small");
    unit.textContent = facts.task === "binary" ? ` probability of ${facts.classes[1]}` : ` ${facts.unit}`;
    value.append(unit);
    const percent = `${Number((100 * (facts.interval || 0)).toPrecision(3))} %`;
    const more = [];
    for (const [name, cell] of Object.entries(row)) {
      if (!name.startsWith(`${target}_`) || name === `${target}_pred` || name.endsWith("_high")) continue;
      const kind = name.slice(target.length + 1);
      if (kind === "low") more.push([`${percent} interval`, `${number(cell)} to ${number(row[`${target}_high`])}`]);
      else if (kind === "std") more.push(["deviation of the models", number(cell)]);
      else if (kind === "set") more.push([`${percent} set`, cell || "empty"]);
      else if (typeof cell === "number") more.push([kind.replace(/^p_?/, "").replaceAll("_", " "), number(cell)]);
    }
    parts.push(title, value, pairs(more));
  }
  part("values").replaceChildren(...parts);
}

function nearest(row) {
  const name = row.nearest_train_molecule;
  if (!name) return part("nearest").replaceChildren();
  const entries = [["nearest training molecule", name], ["similarity", number(row.nearest_train_similarity)]];
  if (row.outside_domain) entries.push(["outside the training domain", row.outside_domain]);
  part("nearest").replaceChildren(pairs(entries));
}

async function explain(text, question) {
  try {
    const found = await ask("/api/explain", { smiles: text, target: part("target").value });
    if (question !== asked) return;
    const picture = part("picture");
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found.svg)}`;
    picture.alt = `contributions of the atoms of ${found.smiles}`;
    picture.hidden = false;
    const change = found.prediction - found.baseline;
    const sign = change < 0 ? "\u2212" : "+";
    const sum = `${number(found.baseline)} ${sign} ${number(Math.abs(change))}`;
    part("sum").textContent = `${found.quantity}: ${number(found.prediction)} = baseline ${sum} from the atoms`;
  } catch (error) {
    if (question !== asked) return;
    part("picture").hidden = true;
    part("sum").textContent = `no contributions: ${error.message}`;
  }
}

async function predict() {
  const text = box.value.trim();
  const question = ++asked;
  part("empty").hidden = Boolean(text);
  if (!text) {
    show("error", "");
    part("answer").hidden = true;
    return;
  }
  try {
    const [row] = (await ask("/api/predict", { smiles: [text] })).rows;
    if (question !== asked) return;
    show("error", row.error);
    part("answer").hidden = Boolean(row.error);
    if (row.error) return;
    values(row);
    nearest(row);
    show("warning", row.warning);
    await explain(text, question);
  } catch (error) {
    if (question !== asked) return;
    show("error", error.message);
    part("answer").hidden = true;
  }
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(predict, 250);
}

async function drawing() {
  const { CanvasEditor, Molecule } = await import("/openchemlib.js");
  const editor = new CanvasEditor(part("editor"), { initialMode: "molecule" });
  const fromText = () => {
    try {
      editor.setMolecule(Molecule.fromSmiles(box.value.trim()));
    } catch {
      // What the editor cannot read, such as an InChI, is still predicted.
    }
  };
  editor.setOnChangeListener((event) => {
    if (event.type !== "molecule" || !event.isUserEvent) return;
    box.value = editor.getMolecule().toIsomericSmiles();
    soon();
  });
  box.addEventListener("input", fromText);
  if (box.value) fromText();
}

async function upload(event) {
  event.preventDefault();
  const [file] = part("file").files;
  if (!file) return show("state", "Choose a file first.");
  part("send").disabled = true;
  part("download").hidden = true;
  show("state", `predicting ${file.name} ...`);
  try {
    const content = new FormData();
    content.append("file", file);
    const answer = await fetch("/api/table", { method: "POST", body: content });
    if (!answer.ok) throw new Error((await answer.json()).error);
    const link = part("download");
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(await answer.blob());
    link.hidden = false;
    show("state", `${file.name} is predicted.`);
  } catch (error) {
    show("state", `${file.name}: ${error.message}`);
  }
  part("send").disabled = false;
}

async function start() {
  facts = await (await fetch("/api/model")).json();
  part("name").textContent = facts.name;
  document.title = `${facts.name}: slicegraph`;
  const models = facts.models > 1 ? `, mean of ${facts.models} models` : "";
  const note = facts.note ? `; ${facts.note}` : "";
  part("facts").textContent = `${facts.task} of ${facts.targets.join(", ")}${models}${note}`;
  for (const target of facts.targets) part("target").append(new Option(target, target));
  part("choose").hidden = facts.targets.length < 2;
  part("target").addEventListener("change", () => explain(box.value.trim(), ++asked));
  box.addEventListener("input", soon);
  part("upload").addEventListener("submit", upload);
  box.value = new URLSearchParams(location.hash.slice(1)).get("smiles") || "";
  if (box.value) predict();
  await drawing();
}

start();
