"use strict";
// Talking to the server: what may be said is decided there; this page sends orders and shows the state.

const $ = (id) => document.getElementById(id);
const POLL_MS = 3000;
const cards = new Map(); // class id → its card; cards are changed in place, so that typing stays
let state = null;
let marked = []; // class ids, the first one stays when they are merged
let gallery = null; // { id, start } of the open image dialog: its class, and the images it has

let orders = 0; // begun and ended: a state that was asked for before one of them may be old
let queue = Promise.resolve(); // orders go one after the other, in the order they were given
let missing = ""; // what the last look at the state complained of

async function fetchState() {
  const before = orders;
  let body, problem = "";
  try {
    const response = await fetch("state");
    body = await response.json();
    if (!response.ok) problem = body.error;
  } catch {
    problem = "The review program does not answer; is it still running?";
  }
  if (before !== orders) return;
  complain(problem);
  if (!problem && (!state || body.version !== state.version)) show(body);
}

/** Says what a look complained of until a look goes well; what an order said, and an offer, stay. */
function complain(problem) {
  const text = $("refused").querySelector("p").textContent;
  const ours = $("refused").hidden || text === missing;
  missing = problem;
  if (!ours) return;
  if (problem) refuse(problem);
  else $("refused").hidden = true;
}

function order(action, fields, said) {
  queue = queue.then(async () => {
    orders += 1;
    const done = await send(action, fields, said);
    orders += 1;
    return done;
  });
  return queue;
}

async function send(action, fields, said) {
  let response, body;
  try {
    response = await fetch("change", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ action, ...fields }),
    });
    body = await response.json();
  } catch {
    refuse("Not saved: the review program does not answer. What you typed is still here.");
    return false;
  }
  if (!response.ok) {
    if (body.state) show(body.state);
    refuse(`Not saved: ${body.error}`);
    return false;
  }
  $("refused").hidden = true;
  show(body);
  say(said);
  return true;
}

function say(text) {
  $("said").textContent = text;
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
