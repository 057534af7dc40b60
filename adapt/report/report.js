"use strict";
// The map: the point nearest to the pointer, or reached with the arrow keys, shows its image.
(() => {
  const drawing = document.getElementById("map");
  if (!drawing) return;
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const tip = document.getElementById("tip");
  const cell = tip.querySelector(".cell");
  const words = tip.querySelector("p");
  const ring = document.getElementById("ring");
  const REACH = 40; // units of the drawing
  const classOf = data.sizes.flatMap((size, number) => Array(size).fill(number));
  let current = -1;

  function show(number, x, y) {
    current = number;
    const [cx, cy, place, name, confidence] = data.points[number];
    ring.setAttribute("cx", cx);
    ring.setAttribute("cy", cy);
    ring.removeAttribute("hidden");
    cell.hidden = place < 0;
    if (place >= 0) {
      cell.style.setProperty("--c", place % data.columns);
      cell.style.setProperty("--r", Math.floor(place / data.columns));
    }
    const label = document.createElement("bdi");
    label.textContent = data.labels[classOf[number]].slice(0, 80);
    const file = document.createElement("bdi");
    file.textContent = name.slice(-80);
    words.replaceChildren(label, ` · ${confidence}%`, document.createElement("br"), file);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - height - 4))}px`;
  }

  function hide() {
    tip.hidden = true;
    ring.setAttribute("hidden", "");
  }

  function nearest(x, y, allowed = () => true) {
    let best = -1;
    let least = Infinity;
    data.points.forEach(([px, py], number) => {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least && allowed(px, py, number)) [best, least] = [number, distance];
    });
    return [best, Math.sqrt(least)];
  }

  function onPointer(event) {
    const matrix = drawing.getScreenCTM().inverse();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const [number, distance] = nearest(at.x, at.y);
    if (number >= 0 && distance < REACH) show(number, event.clientX, event.clientY);
    else hide();
  }

  const TOWARDS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function onKey(event) {
    if (event.key === "Escape") return hide();
    const towards = TOWARDS[event.key];
    if (!towards || !data.points.length) return;
    event.preventDefault();
    const [x, y] = current < 0 ? [500, 500] : data.points[current];
    const ahead = (px, py, number) => {
      const along = (px - x) * towards[0] + (py - y) * towards[1];
      const aside = Math.abs((px - x) * towards[1]) + Math.abs((py - y) * towards[0]);
      return number !== current && along > 0 && along >= aside;
    };
    const [number] = nearest(x, y, ahead);
    if (number < 0) return;
    const matrix = drawing.getScreenCTM();
    const at = new DOMPoint(data.points[number][0], data.points[number][1]).matrixTransform(matrix);
    show(number, at.x, at.y);
  }

  drawing.addEventListener("pointermove", onPointer);
  drawing.addEventListener("pointerdown", onPointer);
  drawing.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  drawing.addEventListener("keydown", onKey);
  drawing.addEventListener("blur", hide);

  // A name in the legend brings out its points.
  let held = null;
  const bring = (number) => {
    drawing.classList.toggle("one", number !== null);
    drawing.querySelectorAll("g[data-class]").forEach((group) => {
      group.classList.toggle("out", group.dataset.class === number);
    });
  };
  document.querySelectorAll("#legend button").forEach((button) => {
    const number = button.dataset.class;
    button.addEventListener("mouseenter", () => bring(number));
    button.addEventListener("mouseleave", () => bring(held));
    button.addEventListener("click", () => {
      held = held === number ? null : number;
      bring(held);
      document.querySelectorAll("#legend button").forEach((other) => {
        other.setAttribute("aria-pressed", String(other.dataset.class === held));
      });
    });
  });
})();
