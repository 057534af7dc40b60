"use strict";
// Starts the page: asks for the key if one is needed, and takes images.

let limits = null; // limits of the server
let given = null; // the last image, sent again once there is a key
let running = null; // aborts the running request

async function enter() {
  try {
    const card = await (await ask("v1/model")).json();
    limits = card.limits;
    showModel(card);
  } catch (error) {
    return complain(error);
  }
  const wasAsked = !$("key-form").hidden;
  refuse("");
  $("key-form").hidden = true;
  $("content").hidden = false;
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
  $("forget").hidden = $("content").hidden = true;
  $("key-form").hidden = false;
  $("key").value = "";
  $("key").focus();
}

async function give(file) {
  running?.abort();
  const mine = (running = new AbortController());
  given = file;
  showGiven(file);
  refuse("");
  $("content").setAttribute("aria-busy", "true");
  try {
    if (file.size > limits.max_bytes)
      throw new Error(`${file.size.toLocaleString("en")} bytes, at most ${limits.max_bytes.toLocaleString("en")} are read`);
    const answer = await askNearest(file, mine.signal);
    if (mine === running) showAnswer(answer);
  } catch (error) {
    if (mine !== running) return; // another image has been given since
    showResults(false); // the old answer does not belong to this image
    complain(error);
  } finally {
    if (mine === running) {
      $("content").removeAttribute("aria-busy");
      invite("Drop, paste or choose another image");
    }
  }
}

function giveOne(files) {
  if ($("content").hidden) return;
  if (files.length === 1) give(files[0]);
  else refuse(files.length ? `Got ${files.length} files; expected one image.` : "Got no file; expected an image file.");
}

$("picture").addEventListener("error", () => {
  $("picture").hidden = true; // the browser cannot show this format; the server may still read it
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
  event.preventDefault(); // otherwise the browser opens the image in place of the page
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
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  enter();
});
$("forget").addEventListener("click", lock);
enter();
