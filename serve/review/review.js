"use strict";
// Starts the page: connects its fixed parts, and loads the state.

$("undo").addEventListener("click", undo);
$("picked").addEventListener("click", togglePicked);
$("next").addEventListener("click", nextToName);
$("help").addEventListener("click", () => $("keys").showModal());
$("merge").addEventListener("click", () => merge(marked));
$("unmark").addEventListener("click", () => {
  marked = [];
  showMarked();
});
$("search").addEventListener("input", search);
$("search").addEventListener("keydown", onSearchKey);
for (const pager of document.querySelectorAll(".pager"))
  for (const [kind, step] of [["previous", -1], ["next", 1]])
    pager.querySelector(`.${kind}`).addEventListener("click", () => turn(pager.dataset.of, step));
$("more").addEventListener("click", moreImages);
$("unsure").addEventListener("change", () => {
  gallery = { id: gallery.id, start: 0 };
  $("images-grid").replaceChildren();
  moreImages();
});
for (const close of document.querySelectorAll("dialog .close"))
  close.addEventListener("click", () => close.closest("dialog").close());
document.addEventListener("visibilitychange", () => document.hidden || fetchState());
window.addEventListener("focus", fetchState);
window.addEventListener("beforeunload", (event) => {
  const names = [...cards.values()].map((card) => card.querySelector(".name input"));
  if (names.some((name) => name.value !== (name.dataset.saved ?? ""))) event.preventDefault(); // the browser asks before it leaves
});
setInterval(() => document.hidden || fetchState(), POLL_MS);
fetchState().then(() => visible()[0]?.focus({ preventScroll: true }));
