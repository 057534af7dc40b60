"use strict";
// What may be said is decided by the server; this page shows its state and sends orders.

const $ = (id) => document.getElementById(id);
const POLL_MS = 3000;
const cards = new Map(); // class id → its card; cards are changed in place, so that typing stays
let state = null;
let marked = []; // class ids, the first one stays when they are merged
let gallery = null; // { classId, start, total } of the open image dialog

// ---- talking to the server

async function fetchState() {
  try {
    const response = await fetch("state");
    const body = await response.json();
    if (!response.ok) return refuse(body.error);
    if (!state || body.version !== state.version) show(body);
  } catch {
    refuse("The review program does not answer; is it still running?");
  }
}

async function order(action, fields, said) {
  let response, body;
  try {
    response = await fetch("change", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ action, ...fields }),
    });
    body = await response.json();
  } catch {
    refuse("Not saved: the review program does not answer. What you typed is still here.");
    return false;
  }
  if (!response.ok) {
    if (body.state) show(body.state);
    refuse(`Not saved: ${body.error}`);
    return false;
  }
  $("refused").hidden = true;
  show(body);
  say(said);
  return true;
}

function say(text) {
  $("said").textContent = text;
}

function refuse(text, actions = []) {
  $("refused").querySelector("p").textContent = text;
  $("refused").querySelector(".actions").replaceChildren(...actions);
  $("refused").hidden = false;
}

function button(text, run) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", run);
  return element;
}

// ---- showing

function show(next) {
  state = next;
  marked = marked.filter((id) => standing(id));
  for (const info of state.classes) update(cards.get(info.class_id) || makeCard(info), info);
  const discovered = state.classes.filter((info) => info.kind === "discovered");
  const open = discovered.filter((info) => !info.merged_into && !info.dropped);
  const dropped = state.classes.filter((info) => info.dropped && !info.merged_into);
  const named = open.filter((info) => info.named).length;
  $("progress").textContent = open.length ? `${named} of ${open.length} discovered classes named` : "";
  $("none").hidden = discovered.length > 0;
  $("dropped-section").hidden = !dropped.length;
  $("dropped-count").textContent = `${dropped.length}`;
  $("known-count").textContent = `${state.classes.length - discovered.length}`;
  $("undo").disabled = !state.undo;
  $("undo").textContent = state.undo ? `Undo: ${state.undo}` : "Undo";
  $("undo").title = $("undo").textContent;
  $("history").replaceChildren(...state.history.map(historyLine));
  showMarked();
}

function historyLine(change) {
  const line = document.createElement("li");
  line.textContent = `${new Date(change.at).toLocaleString()}: ${change.did}`;
  return line;
}

function makeCard(info) {
  const card = $("card").content.firstElementChild.cloneNode(true);
  const id = info.class_id;
  card.id = id;
  card.querySelector(".pictures").replaceChildren(...pictures(info, info.pictures));
  const name = card.querySelector(".name input");
  name.setAttribute("aria-label", `name of ${id}`);
  name.placeholder = `name of ${id}`;
  name.addEventListener("keydown", (event) => onNameKey(event, id));
  name.addEventListener("change", () => saveName(id));
  card.querySelector(".mark input").addEventListener("change", () => toggleMark(id));
  card.querySelector(".mark span").textContent = `mark ${id} for merging`;
  card.querySelector(".really").addEventListener("change", (event) => isReally(id, event.target));
  card.querySelector(".all").addEventListener("click", () => openImages(id));
  card.querySelector(".drop").addEventListener("click", () => drop(id));
  card.querySelector(".restore").addEventListener("click", () => restore(id));
  card.addEventListener("focusin", () => setCurrent(card));
  cards.set(id, card);
  return card;
}

function update(card, info) {
  const name = card.querySelector(".name input");
  const label = info.named || info.kind === "known" ? info.label : "";
  if (name.value === (name.dataset.saved ?? "")) name.value = label; // else it is being typed in
  name.dataset.saved = label;
  card.setAttribute("aria-label", info.label);
  card.querySelector(".facts").textContent = facts(info);
  const members = state.classes.filter((other) => other.merged_into === info.class_id);
  card.querySelector(".members").replaceChildren(...members.map(memberLine));
  card.classList.toggle("dropped", info.dropped);
  name.disabled = info.dropped;
  card.querySelector(".restore").hidden = !info.dropped;
  card.querySelector(".drop").hidden = info.dropped || info.kind === "known";
  card.querySelector(".mark").hidden = info.dropped;
  card.querySelector(".all").hidden = Boolean(state.why_no_images);
  fillReally(card.querySelector(".really"), info);
  place(card, info);
}

function place(card, info) {
  if (info.merged_into) return card.remove();
  const home = info.dropped ? "dropped" : info.kind;
  const order = state.classes.map((other) => other.class_id);
  const after = [...$(home).children].find((c) => order.indexOf(c.id) > order.indexOf(info.class_id));
  if (card.parentElement === $(home) && card.nextElementSibling === (after || null)) return;
  const focused = card.contains(document.activeElement) ? document.activeElement : null;
  $(home).insertBefore(card, after || null);
  if (focused) focused.focus();
}

function facts(info) {
  const near = state.classes.find((other) => other.class_id === info.nearest_known);
  const parts = [info.class_id, `${info.size} images`, `confidence ${info.confidence.toFixed(2)}`];
  if (near) parts.push(`nearest known: ${near.label}`);
  return parts.join(" · ");
}

function pictures(info, count) {
  return Array.from({ length: count }, (_, number) => {
    const image = document.createElement("img");
    image.src = `pictures/${info.class_id}/${number}`;
    image.alt = `typical image ${number + 1} of ${info.class_id}`;
    image.loading = "lazy";
    return image;
  });
}

function memberLine(info) {
  const line = document.createElement("li");
  const text = document.createElement("span");
  text.textContent = `with ${info.label} · ${info.size} images`;
  const strip = document.createElement("div");
  strip.className = "pictures";
  strip.replaceChildren(...pictures(info, Math.min(4, info.pictures)));
  line.append(text, button("Take out", () => restore(info.class_id)), strip);
  return line;
}

function fillReally(select, info) {
  const others = state.classes.filter(
    (other) =>
      other.class_id !== info.class_id && standing(other.class_id) && (other.kind === "known" || other.named)
  );
  const choices = others.map((other) => new Option(other.label, other.class_id));
  select.replaceChildren(new Option("is really …", ""), ...choices);
  select.hidden = info.kind === "known" || info.dropped;
}

// ---- saying

const classOf = (id) => state.classes.find((info) => info.class_id === id);

function standing(id) {
  const info = classOf(id);
  return info && !info.merged_into && !info.dropped;
}

const saving = new Map(); // class id → what is under way: Enter and leaving a field both save

function saveName(id) {
  if (!saving.has(id)) saving.set(id, sendName(id).finally(() => saving.delete(id)));
  return saving.get(id);
}

async function sendName(id) {
  const name = cards.get(id).querySelector(".name input");
  const label = name.value;
  if (label.trim() === name.dataset.saved) return true;
  const holder = state.classes.find((info) => info.label === label.trim() && standing(info.class_id));
  if (await order("name", { class_ids: [id], label }, label.trim() ? `named ${label.trim()}` : "name taken away")) {
    name.value = name.dataset.saved; // as it is kept, without space around it
    return true;
  }
  if (holder && holder.class_id !== id) offerMerge(holder, id);
  return false;
}

function offerMerge(holder, id) {
  const ids = classOf(id).kind === "known" ? [id, holder.class_id] : [holder.class_id, id];
  const yes = button("Merge the two", () => merge(ids));
  const no = button("No, another name", () => {
    $("refused").hidden = true;
    edit(id);
  });
  refuse(`There is a class ${holder.label} already. Is ${id} the same thing?`, [yes, no]);
  yes.focus();
}

async function merge(ids) {
  const [into] = ids;
  for (const id of ids) {
    const name = cards.get(id).querySelector(".name input");
    name.value = name.dataset.saved; // the name of a class that goes is typed for nothing
  }
  if (await order("merge", { class_ids: ids }, `merged ${ids.length} classes`)) {
    marked = [];
    showMarked();
    cards.get(into).focus();
  }
}

async function isReally(id, select) {
  const into = select.value;
  select.value = "";
  if (into) await merge([into, id]);
}

async function drop(id) {
  const next = neighbour(cards.get(id), 1) || neighbour(cards.get(id), -1);
  if (await order("drop", { class_ids: [id] }, `dropped ${id}`)) (next || document.body).focus();
}

async function restore(id) {
  if (await order("restore", { class_ids: [id] }, `restored ${id}`)) cards.get(id).focus();
}

async function undo() {
  const did = state.undo;
  if (did) await order("undo", { version: state.version }, `undid: ${did}`);
}

// ---- merging

function toggleMark(id) {
  if (!standing(id)) return;
  marked = marked.includes(id) ? marked.filter((other) => other !== id) : [...marked, id];
  showMarked();
}

function showMarked() {
  // A known class is what the others really are, whenever it was marked.
  marked.sort((one, two) => (classOf(two).kind === "known") - (classOf(one).kind === "known"));
  for (const [id, card] of cards) {
    card.classList.toggle("marked", marked.includes(id));
    card.querySelector(".mark input").checked = marked.includes(id);
  }
  $("mergebar").hidden = marked.length === 0;
  if (!marked.length) return;
  const into = classOf(marked[0]).label;
  $("marked").textContent = `${marked.length} marked; all become ${into}`;
  $("merge").disabled = marked.length < 2;
}

// ---- all images

async function openImages(id) {
  gallery = { id, start: 0 };
  $("images-title").textContent = classOf(id).label;
  $("unsure").checked = false;
  $("images-grid").replaceChildren();
  if (!$("images").open) $("images").showModal();
  await moreImages();
}

async function moreImages() {
  const surest = !$("unsure").checked;
  const response = await fetch(`images/${gallery.id}?start=${gallery.start}&surest_first=${surest}`);
  const body = await response.json();
  $("images-why").textContent = `${body.total} images at training`;
  $("images-grid").append(...body.images.map(figure));
  gallery.start += body.images.length;
  $("more").hidden = gallery.start >= body.total;
}

function figure(image) {
  const element = document.createElement("figure");
  const picture = document.createElement("img");
  picture.src = `image/${image.row}`;
  picture.alt = image.path;
  picture.loading = "lazy";
  const caption = document.createElement("figcaption");
  caption.textContent = `${image.confidence.toFixed(2)} · ${image.path}`;
  caption.title = image.path;
  element.append(picture, caption);
  return element;
}

// ---- the keyboard

let current = null;

function setCurrent(card) {
  if (current && current !== card) current.tabIndex = -1;
  current = card;
  card.tabIndex = 0;
}

const visible = () => [...document.querySelectorAll(".card")].filter((card) => card.checkVisibility());

function neighbour(card, step) {
  const all = visible();
  return all[all.indexOf(card) + step];
}

function move(step) {
  const next = current && current.isConnected ? neighbour(current, step) : visible()[0];
  if (next) next.focus();
}

function edit(id) {
  const name = cards.get(id).querySelector(".name input");
  name.focus();
  name.select();
}

async function onNameKey(event, id) {
  const name = event.target;
  if (event.key === "Escape") {
    name.value = name.dataset.saved;
    cards.get(id).focus();
  } else if (event.key === "Enter" && !event.isComposing) {
    event.preventDefault();
    if (await saveName(id)) nextUnnamed(id);
  } else return;
  event.stopPropagation();
}

function nextUnnamed(id) {
  const ids = state.classes.map((info) => info.class_id);
  const later = [...ids.slice(ids.indexOf(id) + 1), ...ids.slice(0, ids.indexOf(id))];
  const next = later.find((other) => classOf(other).kind === "discovered" && standing(other) && !classOf(other).named);
  cards.get(standing(next) ? next : id).focus();
}

const KEYS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  ArrowRight: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  ArrowLeft: () => move(-1),
  u: undo,
  "?": () => $("keys").showModal(),
  M: () => marked.length > 1 && merge(marked),
};

const CARD_KEYS = {
  Enter: edit,
  n: edit,
  m: toggleMark,
  r: (id) => cards.get(id).querySelector(".really").focus(),
  d: (id) => (standing(id) ? classOf(id).kind === "discovered" && drop(id) : restore(id)),
  o: (id) => state.why_no_images || openImages(id),
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && event.target.type !== "text") {
    event.preventDefault(); // the browser would undo in the field that was typed in last
    return undo();
  }
  const typing = event.target.matches("input[type=text], select, dialog *");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !state) return;
  const onCard = event.target.matches(".card") && CARD_KEYS[event.key];
  const run = onCard ? () => onCard(event.target.id) : KEYS[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});

// ---- start

$("undo").addEventListener("click", undo);
$("help").addEventListener("click", () => $("keys").showModal());
$("merge").addEventListener("click", () => merge(marked));
$("unmark").addEventListener("click", () => {
  marked = [];
  showMarked();
});
$("more").addEventListener("click", moreImages);
$("unsure").addEventListener("change", () => {
  gallery.start = 0;
  $("images-grid").replaceChildren();
  moreImages();
});
for (const close of document.querySelectorAll("dialog .close"))
  close.addEventListener("click", () => close.closest("dialog").close());
document.addEventListener("visibilitychange", () => document.hidden || fetchState());
window.addEventListener("focus", fetchState);
setInterval(() => document.hidden || fetchState(), POLL_MS);
fetchState().then(() => visible()[0]?.focus({ preventScroll: true }));
