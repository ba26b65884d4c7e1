// The page of `slicegraph serve`: asks the server for what is typed or drawn, and shows it as text.
const part = (id) => document.getElementById(id);
let box = part("smiles"); // the field of the molecule that is drawn
const boxes = [box]; // one for each molecule of a row
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

/** The molecules of the row; nothing until every field has one. */
function row() {
  const texts = boxes.map((one) => one.value.trim());
  return texts.every(Boolean) ? texts.join(">>") : "";
}

async function predict() {
  const text = row();
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
  timer = setTimeout(() => {
    fromText();
    predict();
  }, 250);
}

// The editor: atoms and bonds as the server reads them, in units of pixels, drawn as SVG.
const ELEMENTS = ["C", "N", "O", "S", "F", "Cl", "Br", "P"];
const COLOURS = { N: "#2f5fc4", O: "#c8322b", S: "#8a6a00", F: "#1d7a48", Cl: "#1d7a48", Br: "#8f4a2c", P: "#b0601c" };
const LENGTH = 40; // of a bond
const BOND_NAMES = ["", "single", "double", "triple"];
const canvas = part("editor");
let drawing = { atoms: [], bonds: [] };
let history = [];
let edits = 0; // the number of the last change: older answers of the server are not used
let tool = { kind: "atom", element: "C" };
let drag = null; // the atom that a bond is drawn from, and where the pointer is
let wrong = -1; // the atom that the server refused

function shape(kind, attributes, ...content) {
  const made = document.createElementNS(canvas.namespaceURI, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
const along = (from, angle) => ({ x: from.x + LENGTH * Math.cos(angle), y: from.y + LENGTH * Math.sin(angle) });
const angleTo = (a, b) => Math.atan2(b.y - a.y, b.x - a.x);
const bondsOf = (n) => drawing.bonds.filter((bond) => bond.begin === n || bond.end === n);
const neighbours = (n) => bondsOf(n).map((bond) => drawing.atoms[bond.begin === n ? bond.end : bond.begin]);
const hasDouble = (n) => bondsOf(n).some((bond) => bond.order > 1);

function atomAt(point, reach = 14) {
  const gaps = drawing.atoms.map((atom) => distance(atom, point));
  const nearest = gaps.indexOf(Math.min(...gaps));
  return gaps[nearest] < reach ? nearest : -1;
}

function bondAt(point) {
  return drawing.bonds.findIndex((bond) => {
    const [a, b] = [drawing.atoms[bond.begin], drawing.atoms[bond.end]];
    const share = ((point.x - a.x) * (b.x - a.x) + (point.y - a.y) * (b.y - a.y)) / distance(a, b) ** 2;
    const middle = { x: a.x + share * (b.x - a.x), y: a.y + share * (b.y - a.y) };
    return share > 0 && share < 1 && distance(point, middle) < 10;
  });
}

/** The free direction of an atom that is nearest to a wish: at 120 degrees to its bonds. */
function direction(n, wish) {
  const atom = drawing.atoms[n];
  const taken = neighbours(n).map((other) => angleTo(atom, other));
  const turns = taken.length === 1 ? [-2 / 3, 2 / 3, 1] : [-2 / 3, 2 / 3, -1 / 3, 1 / 3, 1 / 2, -1 / 2];
  const free = taken.flatMap((angle) => turns.map((turn) => angle + turn * Math.PI));
  const angles = taken.length ? free : [-5, -3, -1, 1, 3, 5].map((sixth) => (sixth * Math.PI) / 6);
  const turned = (a, b) => Math.abs(Math.atan2(Math.sin(a - b), Math.cos(a - b)));
  const open = angles.filter((angle) => taken.every((other) => turned(angle, other) > 0.5));
  const cost = (angle) => turned(angle, wish) + (atomAt(along(atom, angle)) >= 0 ? 0.1 : 0);
  return (open.length ? open : angles).reduce((best, angle) => (cost(angle) < cost(best) ? angle : best));
}

/** Where there is most room around an atom. */
function outward(n) {
  const atom = drawing.atoms[n];
  const others = neighbours(n);
  if (!others.length) return -Math.PI / 6;
  const sum = (axis) => others.reduce((total, other) => total + atom[axis] - other[axis], 0);
  if (others.length === 1) return angleTo(others[0], atom) + (atom.y > others[0].y ? -1 : 1) * (Math.PI / 3);
  return Math.atan2(sum("y"), sum("x"));
}

function addAtom(point, element = "C") {
  const there = atomAt(point, 10);
  return there >= 0 ? there : drawing.atoms.push({ element, charge: 0, x: point.x, y: point.y }) - 1;
}

function join(begin, end, order) {
  if (begin === end) return;
  const bond = bondsOf(begin).find((one) => one.begin === end || one.end === end);
  if (!bond) drawing.bonds.push({ begin, end, order });
}

function grow(n, wish) {
  const end = addAtom(along(drawing.atoms[n], direction(n, wish)), tool.element);
  join(n, end, tool.order || 1);
}

/** Add a ring: its first corner or first two corners are there already. */
function ring(centre, start, turn, first, fused) {
  const { size, aromatic } = tool;
  const radius = LENGTH / (2 * Math.sin(Math.PI / size));
  const corners = [];
  for (let n = 0; n < size; n++) {
    const angle = start + (turn * 2 * Math.PI * n) / size;
    const corner = { x: centre.x + radius * Math.cos(angle), y: centre.y + radius * Math.sin(angle) };
    corners.push(n < first.length ? first[n] : addAtom(corner));
  }
  if (fused && aromatic && !hasDouble(first[0]) && !hasDouble(first[1])) fused.order = 2;
  for (let n = 0; n < size; n++) {
    const order = aromatic && n % 2 === 0 && !hasDouble(corners[n]) && !hasDouble(corners[(n + 1) % size]);
    join(corners[n], corners[(n + 1) % size], order ? 2 : 1);
  }
}

function ringAt(point, atom, bond) {
  const radius = LENGTH / (2 * Math.sin(Math.PI / tool.size));
  if (bond >= 0) {
    const fused = drawing.bonds[bond];
    const [a, b] = [drawing.atoms[fused.begin], drawing.atoms[fused.end]];
    const across = (p) => (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);
    const near = [...neighbours(fused.begin), ...neighbours(fused.end)];
    const crowd = near.reduce((total, other) => total + Math.sign(Math.round(across(other))), 0);
    const turn = (crowd || -across(point)) > 0 ? -1 : 1; // away from the other neighbours
    const height = radius * Math.cos(Math.PI / tool.size);
    const normal = angleTo(a, b) + (turn * Math.PI) / 2;
    const [x, y] = [(a.x + b.x) / 2 + height * Math.cos(normal), (a.y + b.y) / 2 + height * Math.sin(normal)];
    return ring({ x, y }, angleTo({ x, y }, a), turn, [fused.begin, fused.end], fused);
  }
  if (atom < 0) return ring(point, -Math.PI / 2, 1, []);
  const here = drawing.atoms[atom];
  const away = neighbours(atom).length ? outward(atom) : -Math.PI / 2;
  const angle = neighbours(atom).length === 1 ? angleTo(neighbours(atom)[0], here) : away;
  const centre = { x: here.x + radius * Math.cos(angle), y: here.y + radius * Math.sin(angle) };
  ring(centre, angle + Math.PI, 1, [atom]);
}

function erase(atom, bond) {
  if (atom < 0) return drawing.bonds.splice(bond, 1);
  drawing.atoms.splice(atom, 1);
  drawing.bonds = drawing.bonds.filter((one) => one.begin !== atom && one.end !== atom);
  for (const one of drawing.bonds) {
    if (one.begin > atom) one.begin--;
    if (one.end > atom) one.end--;
  }
}

/** What a click does with the chosen tool. */
function clicked(point, atom, bond) {
  const { kind, element, order, by } = tool;
  if (kind === "ring") return ringAt(point, atom, bond);
  if (kind === "erase") return atom >= 0 || bond >= 0 ? erase(atom, bond) : null;
  if (kind === "charge") return atom >= 0 ? (drawing.atoms[atom].charge += by) : null;
  if (atom >= 0) return kind === "bond" ? grow(atom, outward(atom)) : (drawing.atoms[atom].element = element);
  if (bond >= 0) {
    const found = drawing.bonds[bond];
    found.order = kind === "bond" && found.order !== order ? order : (found.order % 3) + 1;
    return;
  }
  const made = addAtom(point, element);
  if (kind === "bond") grow(made, outward(made));
}

function place(event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
  return { x: at.x, y: at.y };
}

function pressed(event) {
  if (event.button !== 0 || drag) return;
  event.preventDefault();
  canvas.setPointerCapture(event.pointerId);
  const point = place(event);
  drag = { id: event.pointerId, from: atomAt(point), start: point, point };
}

function moved(event) {
  if (!drag || event.pointerId !== drag.id) return;
  drag.point = place(event);
  render();
}

const isDrag = () => drag && drag.from >= 0 && ["atom", "bond"].includes(tool.kind) && distance(drag.start, drag.point) > 14;

/** The atom or the place at which the bond that is being drawn ends. */
function target() {
  const there = atomAt(drag.point, 16);
  if (there >= 0 && there !== drag.from) return drawing.atoms[there];
  const from = drawing.atoms[drag.from];
  return along(from, direction(drag.from, angleTo(from, drag.point)));
}

function released(event) {
  if (!drag || event.pointerId !== drag.id) return;
  drag.point = place(event);
  change(() => {
    if (isDrag()) join(drag.from, addAtom(target(), tool.element), tool.order || 1);
    else clicked(drag.start, drag.from, drag.from < 0 ? bondAt(drag.start) : -1);
  });
  drag = null;
  render();
}

/** Change the drawing, so that it can be undone, and predict it if it is another one. */
function change(work) {
  const before = JSON.stringify(drawing);
  work();
  if (JSON.stringify(drawing) === before) return;
  remember(before);
  drawn();
}

function remember(before) {
  history = [...history, before].slice(-100);
}

function undo() {
  if (!history.length) return;
  drawing = JSON.parse(history.pop());
  drawn();
}

/** Ask the server for the SMILES of the drawing, and predict it like a typed one. */
async function drawn() {
  const edit = ++edits;
  clearTimeout(timer);
  asked++;
  wrong = -1;
  show("lost", "");
  fit(false);
  try {
    const text = drawing.atoms.length ? (await ask("/api/smiles", drawing)).smiles : "";
    if (edit !== edits) return;
    box.value = text;
    predict();
  } catch (error) {
    if (edit !== edits) return;
    box.value = "";
    const found = /^atom (\d+):/.exec(error.message);
    wrong = found ? found[1] - 1 : -1;
    render();
    part("empty").hidden = true;
    part("answer").hidden = true;
    show("error", error.message);
  }
}

/** Draw the text of the box; what cannot be drawn is still predicted. */
async function fromText() {
  const edit = ++edits;
  const text = box.value.trim();
  try {
    const found = text ? await ask("/api/drawing", { smiles: text }) : { atoms: [], bonds: [], complete: true };
    if (edit !== edits) return;
    if (drawing.atoms.length) remember(JSON.stringify(drawing));
    const atoms = found.atoms.map((atom) => ({ ...atom, x: atom.x * LENGTH, y: atom.y * LENGTH }));
    drawing = { atoms, bonds: found.bonds };
    const more = "The text has more than the drawing, such as stereochemistry or isotopes; changing the drawing drops it.";
    show("lost", found.complete ? "" : more);
  } catch {
    if (edit !== edits) return;
    if (drawing.atoms.length) remember(JSON.stringify(drawing));
    drawing = { atoms: [], bonds: [] };
    show("lost", "The text cannot be drawn.");
  }
  wrong = -1;
  fit(true);
}

/** Make the view hold all atoms: afresh, or only if one is outside of it. */
function fit(afresh) {
  const [width, height] = [canvas.clientWidth || LENGTH, canvas.clientHeight || LENGTH];
  const old = canvas.viewBox.baseVal;
  const range = (axis, from, size) => {
    const places = drawing.atoms.map((atom) => atom[axis]);
    return places.length ? [Math.min(...places) - LENGTH, Math.max(...places) + LENGTH] : [from, from + size];
  };
  const [left, right] = range("x", 0, width);
  const [top, bottom] = range("y", 0, height);
  const margin = LENGTH / 2;
  const inside = left + margin >= old.x && right - margin <= old.x + old.width;
  if (afresh || !inside || top + margin < old.y || bottom - margin > old.y + old.height) {
    const scale = Math.max(1, (right - left) / width, (bottom - top) / height);
    const [wide, high] = [width * scale, height * scale];
    const corner = [(left + right - wide) / 2, (top + bottom - high) / 2];
    canvas.setAttribute("viewBox", [...corner, wide, high].join(" "));
  }
  render();
}

/** The atoms of the smallest ring of a bond: the shortest other way between its ends. */
function ringOf(bond) {
  const seen = new Set([bond.begin]);
  for (let paths = [[bond.begin]]; paths.length; ) {
    const longer = [];
    for (const path of paths) {
      const last = path[path.length - 1];
      for (const one of bondsOf(last).filter((other) => other !== bond)) {
        const next = one.begin === last ? one.end : one.begin;
        if (next === bond.end) return [...path, next];
        if (!seen.has(next)) longer.push([...path, next]);
        seen.add(next);
      }
    }
    paths = longer;
  }
  return [];
}

function lines(a, b, order, side = 0) {
  const [x, y] = [(b.y - a.y) / distance(a, b), (a.x - b.x) / distance(a, b)];
  const shifts = order === 1 ? [0] : order === 3 ? [-5, 0, 5] : side ? [0, 5 * side] : [-2.5, 2.5];
  return shifts.map((shift) => {
    const short = side && shift ? 0.14 : 0; // the inner line of a ring
    const [dx, dy] = [(b.x - a.x) * short + x * shift, (b.y - a.y) * short + y * shift];
    const [ex, ey] = [(a.x - b.x) * short + x * shift, (a.y - b.y) * short + y * shift];
    return shape("line", { x1: a.x + dx, y1: a.y + dy, x2: b.x + ex, y2: b.y + ey });
  });
}

function render() {
  const content = [];
  for (const bond of drawing.bonds) {
    const [a, b] = [drawing.atoms[bond.begin], drawing.atoms[bond.end]];
    const across = (p) => Math.sign(Math.round((b.y - a.y) * (p.x - a.x) - (b.x - a.x) * (p.y - a.y)));
    const side = Math.sign((bond.order === 2 ? ringOf(bond) : []).reduce((sum, n) => sum + across(drawing.atoms[n]), 0));
    content.push(...lines(a, b, bond.order, side));
  }
  if (isDrag()) content.push(shape("g", { class: "new" }, ...lines(drawing.atoms[drag.from], target(), tool.order || 1)));
  drawing.atoms.forEach((atom, n) => {
    if (n === wrong) content.push(shape("circle", { cx: atom.x, cy: atom.y, r: 15, class: "wrong" }));
    if (atom.element === "C" && !atom.charge && bondsOf(n).length) return;
    const many = Math.abs(atom.charge) > 1 ? Math.abs(atom.charge) : "";
    const charge = atom.charge ? `${many}${atom.charge > 0 ? "+" : "\u2212"}` : "";
    const raised = shape("tspan", { dy: -6, "font-size": 12 }, charge);
    const colour = COLOURS[atom.element] || "#1c2128";
    const half = atom.element.length > 1 ? 10 : 6; // the first letter is at the atom
    content.push(shape("text", { x: atom.x - half, y: atom.y + 6, fill: colour }, atom.element, raised));
  });
  canvas.replaceChildren(...content);
}

function icon(...content) {
  return shape("svg", { viewBox: "-12 -12 24 24", width: 22, height: 22, "aria-hidden": "true" }, ...content);
}

function polygon(size, aromatic) {
  const corner = (n) => [Math.sin((2 * Math.PI * n) / size) * 10, -Math.cos((2 * Math.PI * n) / size) * 10];
  const points = Array.from({ length: size }, (_, n) => corner(n).join(",")).join(" ");
  return icon(shape("polygon", { points }), ...(aromatic ? [shape("circle", { cx: 0, cy: 0, r: 5 })] : []));
}

function toolbar() {
  const buttons = [];
  const choose = (button, chosen) => {
    tool = chosen;
    for (const one of buttons) one.setAttribute("aria-pressed", one === button);
  };
  const add = (name, content, chosen, act) => {
    const button = document.createElement("button");
    [button.type, button.title] = ["button", name];
    button.setAttribute("aria-label", name);
    button.append(content);
    button.addEventListener("click", act || (() => choose(button, chosen)));
    if (chosen) button.setAttribute("aria-pressed", "false");
    if (chosen) buttons.push(button);
    part("tools").append(button);
    return button;
  };
  for (const element of ELEMENTS) add(`element ${element}`, element, { kind: "atom", element });
  const other = document.createElement("input");
  [other.type, other.maxLength, other.placeholder, other.id] = ["text", 2, "Si", "other"];
  [other.autocomplete, other.spellcheck, other.title] = ["off", false, "another element"];
  other.setAttribute("aria-label", "another element");
  const typed = () => {
    const text = other.value.trim();
    const element = text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase();
    if (element) choose(other, { kind: "atom", element });
  };
  for (const event of ["input", "focus"]) other.addEventListener(event, typed);
  buttons.push(other);
  part("tools").append(other);
  for (const order of [1, 2, 3]) {
    const sign = icon(...lines({ x: -9, y: 0 }, { x: 9, y: 0 }, order));
    add(`${BOND_NAMES[order]} bond`, sign, { kind: "bond", order });
  }
  add("benzene", polygon(6, true), { kind: "ring", size: 6, aromatic: true });
  add("ring of 6", polygon(6), { kind: "ring", size: 6 });
  add("ring of 5", polygon(5), { kind: "ring", size: 5 });
  add("charge +1", "\u2295", { kind: "charge", by: 1 });
  add("charge \u22121", "\u2296", { kind: "charge", by: -1 });
  add("erase an atom or a bond", "Erase", { kind: "erase" });
  add("undo", "Undo", null, undo);
  add("clear", "Clear", null, () => change(() => (drawing = { atoms: [], bonds: [] })));
  choose(buttons[0], { kind: "atom", element: "C" });
}

function editor() {
  toolbar();
  fit(true);
  canvas.addEventListener("pointerdown", pressed);
  canvas.addEventListener("pointermove", moved);
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", () => {
    drag = null;
    render();
  });
  addEventListener("resize", () => fit(true));
}

/** A field for each molecule of a row; the drawing is of the one that was used last. */
function addBoxes() {
  const titles = facts.molecules.length ? facts.molecules : [part("title").textContent];
  part("title").textContent = titles[0];
  for (const title of titles.slice(1)) {
    const [heading, field] = [document.createElement("h2"), box.cloneNode()];
    [heading.textContent, field.id, field.value] = [title, `smiles-${boxes.length}`, ""];
    field.setAttribute("aria-label", title);
    boxes.at(-1).after(heading, field);
    boxes.push(field);
  }
  for (const field of boxes) {
    field.addEventListener("input", soon);
    field.addEventListener("focus", () => {
      if (field === box) return;
      box = field;
      fromText();
    });
  }
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
  part("target").addEventListener("change", () => explain(row(), ++asked));
  addBoxes();
  part("upload").addEventListener("submit", upload);
  box.value = new URLSearchParams(location.hash.slice(1)).get("smiles") || "";
  editor();
  if (box.value) soon();
}

start();
