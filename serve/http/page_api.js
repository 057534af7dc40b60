"use strict";
// Requests to the server, with the key if there is one; a refusal becomes an Error with its message.

const $ = (id) => document.getElementById(id);
const KEY = "scda-key"; // in sessionStorage, which ends with the tab

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: keyHeader() });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server does not answer; check that it is still running.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

function keyHeader() {
  const key = sessionStorage.getItem(KEY);
  if (!key) return {};
  // Headers are bytes; the server reads the key as UTF-8.
  return { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` };
}

async function refusal(response) {
  try {
    const { code, message } = (await response.json()).error;
    return Object.assign(new Error(message), { code });
  } catch {
    return new Error(`The server answered ${response.status} ${response.statusText}`); // the page of a proxy
  }
}

async function askNearest(file, signal) {
  const body = await file.arrayBuffer().catch(() => {
    throw new Error(`${file.name} cannot be read; expected an image file`); // a folder, or deleted meanwhile
  });
  return (await ask("v1/nearest", { method: "POST", body, signal })).json();
}

/** Loads an image with fetch, because the `src` of an <img> cannot send the key. */
async function fill(image, address) {
  const blob = await (await ask(`.${address}`)).blob();
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  image.src = URL.createObjectURL(blob);
}
