"use strict";
// Maps that move with a slider over a training, and films.
function ramp(stops) {
  // 256 colours between so many of a map of colours.
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), low = Math.floor(at), high = Math.min(low + 1, stops.length - 1);
    return stops[low].map((value, part) => Math.round(value + (stops[high][part] - value) * (at - low)));
  });
}

function slider(place, data, count, say, show, label) {
  // A slider with a button that plays; arrow keys move it, as everywhere.
  const kept = place.slider ? place.slider.value : null, playing = place.timer;
  clearInterval(place.timer);
  place.timer = null;
  const range = node("input", { type: "range", min: 0, max: count - 1, step: 1, "aria-label": label });
  const button = node("button", { type: "button" }, "Play"), output = node("output");
  const follow = kept === null || place.count === undefined || Number(kept) >= place.count - 1;
  range.value = kept === null ? data.first ?? count - 1 : follow && !playing ? count - 1 : Math.min(kept, count - 1);
  if (kept === null && data.first === undefined) range.value = count - 1;
  place.count = count;
  const move = () => {
    output.textContent = say(Number(range.value));
    range.setAttribute("aria-valuetext", output.textContent);
    show(Number(range.value));
  };
  const stop = () => { clearInterval(place.timer); place.timer = null; button.textContent = "Play"; };
  const play = () => {
    button.textContent = "Pause";
    if (Number(range.value) >= count - 1) { range.value = 0; move(); }
    place.timer = setInterval(() => {
      if (!place.isConnected || Number(range.value) >= count - 1) return stop();
      range.value = Number(range.value) + 1;
      move();
    }, data.milliseconds);
  };
  button.addEventListener("click", () => (place.timer ? stop() : play()));
  range.addEventListener("input", () => { stop(); move(); });
  place.slider = range;
  return { controls: node("div", { class: "controls" }, button, range, output), move };
}

Charts.maps = (place, data) => {
  const had = place.contains(document.activeElement) ? document.activeElement.tagName : null;
  const maps = node("div", { class: "maps" }), shown = [], own = [];
  const alike = data.methods.every((method) => method.steps.length === data.steps.length);  // the slider says it for all
  const [left, right, bottom, top] = data.extent, flat = data.cells.length === 1;
  const rows = flat ? 1 : data.cells[0], columns = data.cells[data.cells.length - 1];
  for (const method of data.methods) {
    const said = alike ? "" : node("span", { class: "soft moment" });
    const group = node("div", { class: "group" }, node("h4", {}, node("span", { class: "key " + method.colour, style: `color:var(--${method.colour})` }), method.name, said));
    maps.append(group);
    if (said) own.push({ method, said });
    for (const layer of method.layers) group.append(map(method, layer));
  }
  function map(method, layer) {
    const canvas = node("canvas", { width: columns, height: flat ? method.steps.length : rows });
    const frame = node("div", { class: "frame", role: "img", "aria-label": `${layer.name}, ${method.name}` }, canvas);
    if (!flat) frame.style.aspectRatio = (right - left) / (top - bottom);
    const svg = node("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    const x = (value) => ((value - left) / (right - left)) * 100, y = (value) => 100 - ((value - bottom) / (top - bottom)) * 100;
    for (const [begin, end] of data.walls) svg.append(node("line", { x1: x(begin[0]), y1: y(begin[1]), x2: x(end[0]), y2: y(end[1]), stroke: colourOf("ink"), "stroke-width": 3, "stroke-linecap": "round", "vector-effect": "non-scaling-stroke" }));
    for (const [place, letter] of data.places) {
      svg.append(node("circle", { cx: x(place[0]), cy: y(place[1]), r: 4.6, fill: colourOf("raised"), stroke: colourOf("ink") }));
      svg.append(node("text", { x: x(place[0]), y: y(place[1]) + 2.1, "text-anchor": "middle", style: "font-size:6px;fill:var(--ink);font-weight:700" }, letter));
    }
    for (const goal of data.goals) svg.append(node("line", { x1: x(goal), x2: x(goal), y1: 0, y2: 100, stroke: colourOf("ink"), "stroke-dasharray": "3 3", "vector-effect": "non-scaling-stroke" }));
    const now = flat ? node("line", { x1: 0, x2: 100, stroke: colourOf("accent"), "stroke-width": 3, "vector-effect": "non-scaling-stroke" }) : null;
    if (now) svg.append(now);
    frame.append(svg);
    const colours = ramp(data.colours[layer.colours]);
    const bar = node("span", { class: "scale", style: `background:linear-gradient(90deg,${data.colours[layer.colours].map((c) => `rgb(${c})`)})` });
    const ends = node("span", { class: "ends" }, node("span", {}, short(layer.ends[0])), node("span", {}, short(layer.ends[1])));
    const caption = node("figcaption", {}, layer.name, bar, ends);
    const made = node("figure", { class: "map" }, frame, caption);
    shown.push({ canvas, colours, method, values: Uint8Array.from(atob(layer.values), (c) => c.charCodeAt(0)), now });
    return made;
  }
  const latest = (steps, step) => steps.findLastIndex((one) => one <= step);  // -1 before the first
  const after = (step) => "after " + step.toLocaleString("en") + " steps";
  const paint = (one, step) => {
    const at = latest(one.method.steps, step), ctx = one.canvas.getContext("2d");
    const picture = ctx.createImageData(one.canvas.width, one.canvas.height), cells = rows * columns;
    const height = one.canvas.height;
    for (let row = 0; row < height; row++) for (let column = 0; column < columns; column++) {
      const value = one.values[(flat ? row : at * rows + row) * columns + column], to = 4 * ((height - 1 - row) * columns + column);
      if (at < 0 || value === 255 || (flat && row > at)) continue;
      picture.data.set([...one.colours[Math.round((value / 254) * 255)], 255], to);
    }
    ctx.putImageData(picture, 0, 0);
    if (one.now) for (const end of ["y1", "y2"]) one.now.setAttribute(end, 100 - ((at + 1) / height) * 100);
    one.canvas.dataset.moment = at;
  };
  const show = (index) => {
    const step = data.steps[index];
    shown.forEach((one) => paint(one, step));
    for (const { method, said } of own) {  // only where it is not what the slider says
      const at = latest(method.steps, step);
      said.textContent = at < 0 ? "nothing yet" : method.steps[at] < step ? after(method.steps[at]) : "";
    }
  };
  const count = data.steps.length;
  if (place.slider && Number(place.slider.value) < place.count - 1) {  // new steps may have come before the one that is shown
    const now = Math.max(latest(data.steps, place.steps[place.slider.value]), 0);
    Object.assign(place.slider, { max: count - 1, value: now });
    place.count = count;
  }
  place.steps = data.steps;
  const made = slider(place, data, count, (index) => after(data.steps[index]), show, "Moment of the training");
  place.replaceChildren(made.controls, maps);
  made.move();
  if (had === "INPUT") place.slider.focus();
};

Charts.film = (place, data) => {
  const canvas = node("canvas", { width: data.width, height: data.height, role: "img", "aria-label": data.text });
  const image = new Image();
  const show = (index) => {
    if (!image.complete) return;
    const x = (index % data.columns) * data.width, y = Math.floor(index / data.columns) * data.height;
    canvas.getContext("2d").drawImage(image, x, y, data.width, data.height, 0, 0, data.width, data.height);
    canvas.dataset.frame = index;
  };
  const made = slider(place, { milliseconds: data.milliseconds, first: 0 }, data.frames, (index) => `frame ${index + 1} of ${data.frames}`, show, "Frame of the film");
  image.addEventListener("load", made.move);
  image.src = data.image;
  place.replaceChildren(canvas, made.controls);
  made.move();
};
