"use strict";
// The cards of the classes that are shown, updated in place, so that text being typed stays.

function show(next) {
  state = next;
  marked = marked.filter((id) => isActive(id));
  showPages();
  const discovered = state.classes.filter((info) => info.kind === "discovered");
  const dropped = state.classes.filter((info) => info.dropped && !info.merged_into);
  showProgress(state.progress);
  $("dropped-section").hidden = !dropped.length;
  $("dropped-count").textContent = `${dropped.length}`;
  $("known-count").textContent = `${state.classes.length - discovered.length}`;
  showNotes();
  showPickedNote();
  $("picked").hidden = !state.can_pick;
  $("undo").disabled = !state.undo;
  $("undo").textContent = state.undo ? `Undo: ${state.undo}` : "Undo";
  $("undo").title = $("undo").textContent;
  $("history").replaceChildren(...state.history.map(historyLine));
  showMarked();
}

function showProgress({ text, next_text, next_id, images, images_named, next_images }) {
  $("progress").textContent = text ?? "";
  $("next").textContent = next_text ?? "";
  $("next").hidden = !next_id || !text;
  $("bar-named").style.width = `${(100 * images_named) / (images || 1)}%`;
  $("bar-next").style.width = `${(100 * next_images) / (images || 1)}%`;
}

function showNotes() {
  const missing = state.why_no_images && `Only the typical images can be shown: ${state.why_no_images}.`;
  const said = [statusSentence(state.status), trustSentence(state.trust), toConfirm(), missing];
  $("notes").textContent = said.filter(Boolean).join(" ");
  $("notes").hidden = !$("notes").textContent;
}

/** Says how many classes of an earlier model keep what people decided on them, though they have changed. */
function toConfirm() {
  const count = state.classes.filter((info) => info.to_confirm).length;
  if (!count) return "";
  return `To confirm: what ${count === 1 ? "1 class keeps" : `${count} classes keep`} of the earlier run, a name, a merge or a drop.`;
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
  const name = card.querySelector(".name input");
  name.setAttribute("aria-label", `name of ${id}`);
  name.placeholder = `Name of ${id}`;
  name.addEventListener("keydown", (event) => onNameKey(event, id));
  name.addEventListener("change", () => saveName(id));
  card.querySelector(".mark input").addEventListener("change", () => toggleMark(id));
  card.querySelector(".mark span").textContent = `select ${id} for merging`;
  const into = card.querySelector(".merge-into");
  into.addEventListener("change", (event) => mergeInto(id, event.target));
  for (const soon of ["pointerenter", "focus"]) into.addEventListener(soon, () => fillMergeChoices(into, id));
  card.querySelector(".confirm button").addEventListener("click", () => keep(id));
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
  const before = name.dataset.saved ?? "";
  if (name.value === before) name.value = label; // otherwise somebody is typing in it
  else if (label && label !== before && label !== name.value.trim())
    say(`${info.class_id} was named ${label} elsewhere; your name is not saved`);
  name.dataset.saved = label;
  if (name.value === label) name.dataset.seen = state.version; // a name that is being typed is based on what was seen before
  card.setAttribute("aria-label", info.label);
  card.querySelector(".facts").textContent = facts(info);
  card.querySelector(".doubt span").textContent = info.doubt;
  card.querySelector(".doubt").hidden = !info.doubt;
  card.querySelector(".badge").hidden = !info.to_confirm;
  card.querySelector(".confirm").hidden = !info.to_confirm;
  card.querySelector(".confirm span").textContent = info.to_confirm;
  card.querySelector(".confirm button").textContent = info.dropped ? "Keep it dropped" : "Keep the name";
  showPictures(card.querySelector(".pictures"), info);
  card.querySelector(".members").replaceChildren(...(members.get(info.class_id) || []).map(memberLine));
  card.classList.toggle("dropped", info.dropped);
  name.disabled = info.dropped;
  card.querySelector(".restore").hidden = !info.dropped;
  card.querySelector(".drop").hidden = info.dropped || info.kind === "known";
  card.querySelector(".mark").hidden = info.dropped;
  card.querySelector(".all").hidden = Boolean(state.why_no_images);
  const into = card.querySelector(".merge-into");
  into.hidden = info.kind === "known" || info.dropped;
  if (into !== document.activeElement) into.replaceChildren(new Option("merge into …", ""));
}

function facts(info) {
  const near = state.classes.find((other) => other.class_id === info.nearest_known);
  const parts = [info.class_id, `${info.size} images`, `mean confidence ${info.confidence.toFixed(2)}`];
  const similarity = info.similarity === null ? "" : ` (${info.similarity.toFixed(2)})`;
  if (near) parts.push(`nearest known class: ${near.label}${similarity}`);
  if (info.measures && !info.doubt) parts.push(info.measures);
  return parts.join(" · ");
}

/** Shows the typical images of a class, or those picked of it; what stays is not loaded again. */
function showPictures(strip, info) {
  const found = picked.shown ? pickedOf(info) : [];
  const key = picked.shown ? found.map((image) => image.row).join() : "typical";
  if (strip.dataset.shown === key) return;
  strip.dataset.shown = key;
  strip.classList.toggle("picked", picked.shown);
  strip.replaceChildren(...(picked.shown ? found.map(figure) : pictures(info, info.pictures)));
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
  const confirm = info.to_confirm && ` · to confirm: ${info.to_confirm}`;
  text.textContent = `merged: ${info.label} · ${info.size} images${confirm}`;
  const strip = document.createElement("div");
  strip.className = "pictures";
  strip.replaceChildren(...pictures(info, Math.min(4, info.pictures)));
  const keeps = info.to_confirm ? [button("Keep it merged", () => keep(info.class_id))] : [];
  line.append(text, ...keeps, button("Separate", () => restore(info.class_id)), strip);
  return line;
}

/** Fills the choices when they are about to be used: in every card they would be most of the page. */
function fillMergeChoices(select, id) {
  if (select.options.length > 1) return;
  const others = state.classes.filter(
    (other) => other.class_id !== id && isActive(other.class_id) && (other.kind === "known" || other.named)
  );
  select.append(...others.map((other) => new Option(other.label, other.class_id)));
}
