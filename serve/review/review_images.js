"use strict";
// The dialog with all images of a class, one page at a time.

async function openImages(id) {
  gallery = { id, start: 0 };
  $("images-title").textContent = classOf(id).label;
  $("unsure").checked = false;
  $("images-grid").replaceChildren();
  if (!$("images").open) $("images").showModal();
  await moreImages();
}

async function moreImages() {
  const shown = gallery;
  const { id, start } = gallery;
  let body;
  try {
    const response = await fetch(`images/${id}?start=${start}&surest_first=${!$("unsure").checked}`);
    body = await response.json();
  } catch {
    body = { error: NO_ANSWER };
  }
  if (shown !== gallery || start !== gallery.start) return; // another class, order or page has been chosen since
  $("images-why").textContent = body.error ?? `${body.total} images of this class at training`;
  if (body.error) return;
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
