"use strict";
// Talking to the server: with the key, if there is one; what it refuses is an Error with its line.

const $ = (id) => document.getElementById(id);
const KEY = "scda-key"; // in the session's storage alone: it goes with the tab

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: keyHeader() });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server does not answer; is it still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

function keyHeader() {
  const key = sessionStorage.getItem(KEY);
  if (!key) return {};
  // A header takes bytes; the server reads them as UTF-8.
  return { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` };
}

async function refusal(response) {
  try {
    const { code, message } = (await response.json()).error;
    return Object.assign(new Error(message), { code });
  } catch {
    return new Error(`The server answered ${response.status} ${response.statusText}`); // a proxy's page
  }
}

async function askNearest(file, signal) {
  const body = await file.arrayBuffer().catch(() => {
    throw new Error(`${file.name} cannot be read; want an image file`); // a folder, or gone by now
  });
  return (await ask("v1/nearest", { method: "POST", body, signal })).json();
}

/** Fills a picture in; not by its `src`, which would show no key. */
async function fill(image, address) {
  const blob = await (await ask(`.${address}`)).blob();
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  image.src = URL.createObjectURL(blob);
}
