"use strict";
// The edits of classes: name, merge, drop, restore, undo.

const classOf = (id) => state.classes.find((info) => info.class_id === id);

function isActive(id) {
  const info = classOf(id);
  return info && !info.merged_into && !info.dropped;
}

const saving = new Map(); // class id → the running request: both Enter and leaving the field save

function saveName(id) {
  if (!saving.has(id)) saving.set(id, sendName(id).finally(() => saving.delete(id)));
  return saving.get(id);
}

async function sendName(id) {
  const name = cards.get(id).querySelector(".name input");
  const label = name.value;
  if (label.trim() === name.dataset.saved && !classOf(id).to_confirm) return true; // the same name confirms one that was carried over
  const holder = state.classes.find((info) => info.label === label.trim() && isActive(info.class_id));
  const fields = { class_ids: [id], label, version: Number(name.dataset.seen) };
  const became = await order("name", fields, label.trim() ? `named ${label.trim()}` : "name removed");
  if (became === SAVED) {
    if (name.value === label) name.value = name.dataset.saved; // as it was saved, without surrounding space
    name.dataset.seen = state.version;
    return true;
  }
  if (became === CONFLICT) offerChoice(id, label.trim());
  else if (holder && holder.class_id !== id) offerMerge(holder, id);
  return false;
}

/** Asks which name holds, after somebody else has changed the class since it was seen here. */
function offerChoice(id, mine) {
  const name = cards.get(id).querySelector(".name input");
  const theirs = name.dataset.saved;
  const called = (label) => label || "no name";
  const answer = (value) => () => {
    name.value = value;
    name.dataset.seen = state.version;
    $("refused").hidden = true;
    saveName(id);
    reveal(id);
  };
  const keep = button(`Keep ${called(theirs)}`, answer(theirs));
  const use = button(`Use ${called(mine)}`, answer(mine));
  refuse(`${id} was changed by somebody else meanwhile: it has ${called(theirs)} now, and ${called(mine)} is not saved. Which one holds?`, [keep, use]);
  takeFocus(keep, id);
}

/** Focuses a button, unless a person is already typing in another card and would press it by accident. */
function takeFocus(element, id) {
  const at = document.activeElement;
  if (at === document.body || cards.get(id).contains(at)) element.focus();
}

function offerMerge(holder, id) {
  const ids = classOf(id).kind === "known" ? [id, holder.class_id] : [holder.class_id, id];
  const yes = button("Merge the two", () => merge(ids));
  const no = button("Choose another name", () => {
    $("refused").hidden = true;
    edit(id);
  });
  refuse(`A class named ${holder.label} exists already. Does ${id} show the same thing?`, [yes, no]);
  takeFocus(yes, id);
}

async function merge(ids) {
  const [into] = ids;
  for (const id of ids) {
    const name = cards.get(id)?.querySelector(".name input");
    if (name) name.value = name.dataset.saved; // the name of a merged class is not needed
  }
  if (await edited("merge", ids, `merged ${ids.length} classes`)) {
    marked = [];
    showMarked();
    reveal(into);
  }
}

async function mergeInto(id, select) {
  const into = select.value;
  select.value = "";
  if (into) await merge([into, id]);
}

async function drop(id) {
  const next = neighbour(cards.get(id), 1) || neighbour(cards.get(id), -1);
  if (await edited("drop", [id], `dropped ${id}`)) (next || document.body).focus();
}

async function restore(id) {
  if (await edited("restore", [id], `restored ${id}`)) reveal(id);
}

/** Confirms what a class keeps of an earlier run: the same merge, drop or name again. */
async function keep(id) {
  const { merged_into, dropped } = classOf(id);
  let kept;
  if (merged_into) kept = await edited("merge", [merged_into, id], `${id} stays merged`);
  else if (dropped) kept = await edited("drop", [id], `${id} stays dropped`);
  else kept = await keepName(id);
  if (kept) reveal(merged_into || id);
}

async function keepName(id) {
  await saving.get(id);
  const name = cards.get(id).querySelector(".name input");
  name.value = name.dataset.saved; // a name that was typed and refused is still there
  name.dataset.seen = state.version;
  return saveName(id);
}

/** Sends an edit of classes as they are shown now; tells whether it was carried out. */
async function edited(action, class_ids, message) {
  return (await order(action, { class_ids, version: state.version }, message)) === SAVED;
}

async function undo() {
  const did = state.undo;
  if (did) await order("undo", { version: state.version }, `undid: ${did}`);
}

function toggleMark(id) {
  if (!isActive(id)) return;
  marked = marked.includes(id) ? marked.filter((other) => other !== id) : [...marked, id];
  showMarked();
}

function showMarked() {
  // A known class is the one to merge into, in whatever order the classes were selected.
  marked.sort((one, two) => (classOf(two).kind === "known") - (classOf(one).kind === "known"));
  for (const [id, card] of cards) {
    card.classList.toggle("marked", marked.includes(id));
    card.querySelector(".mark input").checked = marked.includes(id);
  }
  $("mergebar").hidden = marked.length === 0;
  if (!marked.length) return;
  const into = classOf(marked[0]).label;
  $("marked").textContent = `${marked.length} selected; merge into ${into}`;
  $("merge").disabled = marked.length < 2;
}
