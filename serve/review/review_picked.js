"use strict";
// The filter of picked images: those that the model is unsure of and that differ from each other, and their classes alone.

// images: [{ row, path, class_id, confidence }] once they have come; coming: the running request.
const picked = { shown: false, images: null, coming: null };

/** Returns the picked images of a class and of those merged into it, the most helpful first. */
function pickedOf(info) {
  const ids = [info, ...(members.get(info.class_id) || [])].map((one) => one.class_id);
  return picked.images.filter((image) => ids.includes(image.class_id));
}

const hasPicked = (info) => !picked.shown || pickedOf(info).length > 0;

async function togglePicked() {
  if (!state.can_pick) return say("only a run whose target images are there has picked images");
  if (!picked.images) {
    picked.coming ??= fetchPicked().finally(() => (picked.coming = null)); // takes seconds in a large target
    await picked.coming;
  }
  if (picked.images) showPicked(!picked.shown);
}

async function fetchPicked() {
  let body;
  say("picking images …");
  try {
    const response = await fetch("picked");
    body = await response.json();
  } catch {
    body = { error: NO_ANSWER };
  }
  say("");
  if (body.error) refuse(body.error);
  else picked.images = body.images;
}

function showPicked(shown) {
  picked.shown = shown;
  $("picked").setAttribute("aria-pressed", shown);
  search();
  if (shown) openFound();
  showPickedNote();
}

/** Says how many of the picked images have a class with a name by now. */
function showPickedNote() {
  $("picked-note").hidden = !picked.shown;
  if (!picked.shown) return;
  const found = state.classes.filter((info) => homeOf(info) && hasPicked(info));
  const count = (classes) => classes.reduce((sum, info) => sum + pickedOf(info).length, 0);
  const named = count(found.filter((info) => isActive(info.class_id) && (info.named || info.kind === "known")));
  $("picked-note").textContent =
    `Only the ${count(found)} images that the model is unsure of and that differ from each other, in ${found.length} classes; ${named} of them lie in classes with a name. ` +
    "Where one shows something else than its class, label it by hand: scda-adapt pick writes these images for a labelling tool.";
}
