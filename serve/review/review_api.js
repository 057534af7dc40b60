"use strict";
// Requests to the server, which decides what is allowed; the page sends edits and shows the state.

const $ = (id) => document.getElementById(id);
const POLL_MS = 3000;
const NO_ANSWER = "The review server does not answer; check that scda-adapt review is still running.";
const [SAVED, REFUSED, CONFLICT] = ["saved", "refused", "conflict"]; // what became of an edit
const cards = new Map(); // class id → its card, once it was shown; updated in place, so that text being typed stays
let state = null;
let marked = []; // selected class ids; the others are merged into the first
let gallery = null; // { id, start } of the open image dialog: its class and the number of loaded images

let orders = 0; // started and finished edits: a state requested before one of them may be outdated
const own = new Set(); // the versions that edits of this page made
let queue = Promise.resolve(); // edits are sent one after the other, in their order
let missing = ""; // the error of the last request for the state

async function fetchState() {
  const before = orders;
  let body, problem = "";
  try {
    const response = await fetch("state");
    body = await response.json();
    if (!response.ok) problem = body.error;
  } catch {
    problem = NO_ANSWER;
  }
  if (before !== orders) return;
  complain(problem);
  if (!problem && (!state || body.version !== state.version)) show(body);
}

/** Shows the error of a state request until one succeeds; errors of edits, and offers, stay. */
function complain(problem) {
  const text = $("refused").querySelector("p").textContent;
  const ours = $("refused").hidden || text === missing;
  missing = problem;
  if (!ours) return;
  if (problem) refuse(problem);
  else $("refused").hidden = true;
}

function order(action, fields, message) {
  queue = queue.then(async () => {
    orders += 1;
    const done = await send(action, fields, message);
    orders += 1;
    return done;
  });
  return queue;
}

/** Returns the version that a person has seen, with the edits that followed it from this page. */
function withOwn(version) {
  while (own.has(version + 1)) version += 1;
  return version;
}

async function send(action, fields, message) {
  let response, body;
  try {
    response = await fetch("change", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ action, ...fields, version: withOwn(fields.version) }),
    });
    body = await response.json();
  } catch {
    refuse(`Not saved. ${NO_ANSWER} Your text is still here.`);
    return REFUSED;
  }
  if (!response.ok) {
    if (body.state) show(body.state);
    refuse(`Not saved: ${body.error}`);
    return body.conflict ? CONFLICT : REFUSED;
  }
  $("refused").hidden = true;
  own.add(body.version);
  show(body);
  say(message);
  return SAVED;
}

function say(text) {
  $("message").textContent = text;
}

function refuse(text, actions = []) {
  $("refused").querySelector("p").textContent = text;
  $("refused").querySelector(".actions").replaceChildren(...actions);
  $("refused").hidden = false;
}

function button(text, run) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", run);
  return element;
}
