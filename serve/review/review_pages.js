"use strict";
// Search and paging: a browser is slow with hundreds of cards and their images at once.

const PAGE = 24; // cards of a section at once
const HOMES = ["discovered", "dropped", "known"];
const pages = { discovered: 0, dropped: 0, known: 0 };
let members = new Map(); // class id → the classes merged into it

const homeOf = (info) => (info.merged_into ? null : info.dropped ? "dropped" : info.kind);
const searched = () => $("search").value.trim().toLowerCase();

/** Returns the classes of a section that match the search and the filter of picked images, in their order. */
function listed(home) {
  const text = searched();
  return state.classes.filter((info) => homeOf(info) === home && matches(info, text) && hasPicked(info));
}

function matches(info, text) {
  const said = [info, ...(members.get(info.class_id) || [])].flatMap((one) => [one.label, one.class_id]);
  return said.some((one) => one.toLowerCase().includes(text));
}

function showPages() {
  members = new Map();
  for (const info of state.classes)
    if (info.merged_into) members.set(info.merged_into, [...(members.get(info.merged_into) || []), info]);
  for (const home of HOMES) showPage(home);
  $("none").hidden = state.classes.some((info) => info.kind === "discovered");
}

function showPage(home) {
  const all = listed(home);
  const last = Math.max(0, Math.ceil(all.length / PAGE) - 1);
  pages[home] = Math.min(pages[home], last);
  const start = pages[home] * PAGE;
  const shown = all.slice(start, start + PAGE);
  arrange($(home), shown.map(cardOf));
  const pager = document.querySelector(`.pager[data-of=${home}]`);
  pager.hidden = !last && !searched() && (all.length > 0 || !picked.shown);
  pager.querySelector("span").textContent = all.length
    ? `${start + 1} to ${start + shown.length} of ${all.length}`
    : searched() ? "no class matches the search" : "no image is picked of these classes";
  pager.querySelector(".previous").disabled = !pages[home];
  pager.querySelector(".next").disabled = pages[home] === last;
}

function cardOf(info) {
  const card = cards.get(info.class_id) || makeCard(info);
  update(card, info);
  return card;
}

/** Makes the cards those of a section; what stays is not moved, so that it keeps the focus. */
function arrange(section, wanted) {
  for (const card of [...section.children]) if (!wanted.includes(card)) card.remove();
  wanted.forEach((card, at) => {
    if (section.children[at] === card) return;
    const focused = card.contains(document.activeElement) ? document.activeElement : null;
    section.insertBefore(card, section.children[at] || null);
    if (focused) focused.focus();
  });
}

function turn(home, step) {
  pages[home] += step;
  showPages();
  $(home).firstElementChild.focus({ preventScroll: true });
  $(home).scrollIntoView();
}

/** Turns to the page that shows a class, without the search and the filter if they hide it, and focuses its card. */
function reveal(id) {
  const home = homeOf(classOf(id));
  const place = () => listed(home).findIndex((info) => info.class_id === id);
  if (place() < 0) $("search").value = "";
  if (place() < 0) showPicked(false);
  pages[home] = Math.floor(place() / PAGE);
  showPages();
  cards.get(id).focus();
}

function search() {
  for (const home of HOMES) pages[home] = 0;
  showPages();
  if (searched()) openFound();
}

/** Opens the sections that hold what is searched for. */
function openFound() {
  for (const home of ["dropped", "known"]) if (listed(home).length) $(`${home}-section`).open = true;
}

function onSearchKey(event) {
  if (event.key === "Escape") {
    event.preventDefault();
    $("search").value = "";
    search();
  } else if (event.key !== "Enter" && event.key !== "ArrowDown") return;
  event.preventDefault();
  visible()[0]?.focus();
}
