"use strict";
// Shows the model, the given image, and the answer or the error.

const TYPICAL = 12; // images of the nearest class
const FEW = 4; // images of each other class
const NEAREST_TITLE = $("h-nearest");

const percent = (share) => `${(100 * share).toFixed(1)}%`;

function showModel(card) {
  const found = card.classes.filter((info) => info.kind === "discovered").length;
  const known = card.classes.length - found;
  $("model").textContent = `${known} known and ${found} discovered classes · model ${card.model_id}`;
  $("status").textContent = [statusSentence(card.status), trustSentence(card.trust)].filter(Boolean).join(" ");
  $("status").hidden = !$("status").textContent;
}

function showGiven(file) {
  invite("Classifying …");
  URL.revokeObjectURL($("picture").src);
  $("picture").src = URL.createObjectURL(file);
  $("picture").hidden = false;
  $("drop").classList.add("given");
}

function invite(line) {
  $("invitation").querySelector("strong").textContent = line;
}

function showResults(shown) {
  for (const element of document.querySelectorAll(".result")) element.hidden = !shown;
}

function showAnswer({ prediction, classes, images }) {
  const { label, kind, outlier } = prediction;
  $("refused").hidden = true;
  $("label").textContent = label;
  const confidence = `${percent(prediction.confidence)} confidence`;
  $("kind").replaceChildren(...chips(kind, outlier && "outlier: far from every class", confidence));
  $("top").replaceChildren(...prediction.top.map(bar));
  $("doubt").textContent =
    `${outlier ? "" : "not an outlier · "}margin ${prediction.margin.toFixed(3)} · ` +
    `entropy ${prediction.entropy.toFixed(3)} nats`;
  const cards = classes.map((near, place) => classCard(near, prediction.class_id, place ? FEW : TYPICAL));
  cards[0]?.prepend(NEAREST_TITLE);
  $("nearest").replaceChildren(...cards.slice(0, 1));
  $("others").replaceChildren(...cards.slice(1));
  $("images").replaceChildren(...images.map(imageLine));
  showResults(true);
  $("others").parentElement.hidden = cards.length < 2;
  $("alike").hidden = images.length === 0; // the bundle may lack the features of the target images
  $("message").textContent = `${label}, ${kind}, ${percent(prediction.confidence)}${outlier ? ", an outlier" : ""}`;
}

function bar(entry) {
  const line = document.createElement("li");
  const track = document.createElement("div");
  const filled = document.createElement("div");
  track.className = "bar";
  filled.style.width = percent(entry.confidence);
  track.append(filled);
  line.append(text(entry.label), text(percent(entry.confidence), "share"), track);
  return line;
}

function classCard(near, answered, count) {
  const card = $("card").content.firstElementChild.cloneNode(true);
  card.querySelector("h3").textContent = near.label;
  const place = near.class_id === answered && "predicted";
  card.querySelector(".chips").append(...chips(near.kind, null, `distance ${near.distance.toFixed(3)}`, place));
  card.querySelector(".pictures").append(...near.exemplars.slice(0, count).map((address, number) => {
    const image = document.createElement("img");
    image.alt = `typical image ${number + 1} of ${near.label}`;
    fill(image, address).catch(() => {}); // the browser shows the alternative text
    return image;
  }));
  return card;
}

function imageLine(image) {
  const line = document.createElement("li");
  line.append(text(image.path), text(image.distance.toFixed(3), "share"));
  return line;
}

function chips(kind, warning, ...facts) {
  const all = [text(kind, kind), ...facts.filter(Boolean).map((fact) => text(fact))];
  return warning ? [...all, text(warning, "warn")] : all;
}

function text(content, className = "") {
  const element = document.createElement("span");
  element.textContent = content;
  element.className = className;
  element.dir = "auto";
  return element;
}

function refuse(message) {
  $("refused").querySelector("p").textContent = message;
  $("refused").hidden = !message;
}
