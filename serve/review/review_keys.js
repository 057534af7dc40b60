"use strict";
// Keyboard shortcuts: between cards, and on one card.

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
  if (!current?.isConnected) return visible()[0]?.focus();
  const all = listed(current.parentElement.id);
  const next = all[all.findIndex((info) => info.class_id === current.id) + step];
  if (next) reveal(next.class_id);
  else neighbour(current, step)?.focus(); // of the next section
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
  const ids = listed("discovered").map((info) => info.class_id);
  const later = [...ids.slice(ids.indexOf(id) + 1), ...ids.slice(0, ids.indexOf(id))];
  reveal(later.find((other) => !classOf(other).named) || id);
}

function nextToName() {
  if (state.progress.next_id) reveal(state.progress.next_id);
}

const KEYS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  ArrowRight: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  ArrowLeft: () => move(-1),
  u: undo,
  p: togglePicked,
  g: nextToName,
  "/": () => $("search").focus(),
  "?": () => $("keys").showModal(),
  M: () => marked.length > 1 && merge(marked),
};

const CARD_KEYS = {
  Enter: edit,
  n: edit,
  m: toggleMark,
  r: (id) => cards.get(id).querySelector(".merge-into").focus(),
  d: (id) => (isActive(id) ? classOf(id).kind === "discovered" && drop(id) : restore(id)),
  o: (id) => state.why_no_images || openImages(id),
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !["text", "search"].includes(event.target.type)) {
    event.preventDefault(); // the browser would undo in the last text field
    return undo();
  }
  const typing = event.target.matches("input[type=text], input[type=search], select, dialog *");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !state) return;
  const onCard = event.target.matches(".card") && CARD_KEYS[event.key];
  const run = onCard ? () => onCard(event.target.id) : KEYS[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});
