"use strict";
// The start: who may enter, and the ways to give an image.

let limits = null; // of the server
let given = null; // the last image, asked again once a key is there
let asked = null; // what aborts the question under way

async function enter() {
  try {
    const card = await (await ask("v1/model")).json();
    limits = card.limits;
    showModel(card);
  } catch (error) {
    return complain(error);
  }
  const wasAsked = !$("door").hidden;
  refuse("");
  $("door").hidden = true;
  $("room").hidden = false;
  $("forget").hidden = !sessionStorage.getItem(KEY);
  if (given) give(given);
  if (wasAsked) $("drop").focus();
}

function complain(error) {
  if (error.code !== "unauthorized") return refuse(error.message);
  refuse(sessionStorage.getItem(KEY) ? "The server refused this key." : "");
  lock();
}

function lock() {
  sessionStorage.removeItem(KEY);
  $("forget").hidden = $("room").hidden = true;
  $("door").hidden = false;
  $("key").value = "";
  $("key").focus();
}

async function give(file) {
  asked?.abort();
  const mine = (asked = new AbortController());
  given = file;
  showGiven(file);
  refuse("");
  $("room").setAttribute("aria-busy", "true");
  try {
    if (file.size > limits.max_bytes)
      throw new Error(`${file.size.toLocaleString("en")} bytes, at most ${limits.max_bytes.toLocaleString("en")} are read`);
    const answer = await askNearest(file, mine.signal);
    if (mine === asked) showAnswer(answer);
  } catch (error) {
    if (mine !== asked) return; // another image was given meanwhile
    showResults(false); // an answer beside another picture would be a lie
    complain(error);
  } finally {
    if (mine === asked) {
      $("room").removeAttribute("aria-busy");
      invite("Drop, paste or choose another");
    }
  }
}

function giveOne(files) {
  if ($("room").hidden) return;
  if (files.length === 1) give(files[0]);
  else refuse(files.length ? `Got ${files.length} files; want one image.` : "Got no file; want an image file.");
}

$("picture").addEventListener("error", () => {
  $("picture").hidden = true; // a format that the server may read all the same
});
$("drop").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  if ($("file").files.length) giveOne([...$("file").files]);
  $("file").value = ""; // so that the same file can be chosen again
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) giveOne(event.clipboardData.files);
});
document.addEventListener("dragover", (event) => {
  event.preventDefault(); // else the browser would leave the page for the image
  document.body.classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  giveOne(event.dataTransfer.files);
});
$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  enter();
});
$("forget").addEventListener("click", lock);
enter();
