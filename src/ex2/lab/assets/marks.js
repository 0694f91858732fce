"use strict";
// Curves, profiles and dots. A chart is a function (place, data) that fills an element anew each time it is called.
const Charts = {};
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const faded = (colour, share) => colour + Math.round(share * 255).toString(16).padStart(2, "0");
const short = (value) => {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(3) + " k";
  if (size && size < 1e-3) return value.toExponential(1).replace("e-", "e−");
  return String(size >= 100 ? Math.round(value) : +value.toPrecision(3));
};

const alike = (ticks) => {
  // The texts of an axis, all in one unit.
  const most = Math.max(...ticks.map(Math.abs)), [unit, name] = most >= 1e6 ? [1e6, " M"] : most >= 1e4 ? [1e3, " k"] : [0, ""];
  return ticks.map((tick) => (unit && tick ? +(tick / unit).toPrecision(3) + name : short(tick)));
};

function numbers(packed, low, high, bytes = 2) {
  // What `bytes_of` made of numbers; NaN for those that are none.
  const text = atob(packed), count = text.length / bytes, found = new Float32Array(count);
  const top = bytes === 2 ? 65535 : 255, unit = (high - low || 1) / (top - 1);
  for (let i = 0; i < count; i++) {
    const whole = bytes === 2 ? text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 8) : text.charCodeAt(i);
    found[i] = whole === top ? NaN : low + whole * unit;
  }
  return found;
}

const holes = (values) => Array.from(values, (value) => (Number.isNaN(value) ? null : value));

function node(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "rect", "text", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function lines(place, data, x, methods, extra) {
  // A uPlot with a line and a band for each method, and whatever `extra` draws below them.
  if (place.plot) place.plot.destroy();
  place.replaceChildren();
  const holder = node("div"), readout = node("div", { class: "readout" });
  place.append(holder, readout);
  const ink = colourOf("muted"), grid = colourOf("line"), font = "12px " + getComputedStyle(document.body).fontFamily;
  const series = [{}], bands = [], values = [x];
  for (const method of methods) {
    const colour = colourOf(method.colour), at = series.length;
    series.push({ label: method.name, stroke: colour, width: 2.2, dash: method.colour === "none" ? [7, 4] : undefined, points: { show: x.length < 3 } });
    values.push(method.mid);
    if (method.low) {
      for (const edge of [method.high, method.low]) {
        series.push({ label: "", stroke: "transparent", width: 0, points: { show: false } });
        values.push(edge);
      }
      bands.push({ series: [at + 1, at + 2], fill: faded(colour, 0.17) });
    }
  }
  const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  const inside = (low, high) => (high > low ? [low - 0.04 * (high - low), high + 0.04 * (high - low)] : [low - 1, high + 1]);
  const options = {
    width: Math.max(place.clientWidth, 200), height: place.clientWidth < 480 ? 250 : 320, legend: { show: false }, padding: [10, 24, 0, 0],
    scales: { x: { time: false }, y: { range: () => inside(data.low, data.high) } },
    axes: [
      { ...axis, label: data.across, labelFont: font, labelSize: 20, labelGap: 0, size: 34, space: 60, values: (u, ticks) => alike(ticks) },
      { ...axis, label: data.up, labelFont: font, labelSize: 20, labelGap: 0, size: 52, values: (u, ticks) => alike(ticks) },
    ],
    cursor: { drag: { x: false, y: false, setScale: false }, y: false },
    series, bands,
    hooks: {
      drawAxes: [(u) => extra && extra(u)],
      setCursor: [(u) => {
        const at = u.cursor.idx;
        if (at === null || at === undefined) return (readout.textContent = "");
        const words = methods.map((method) => method.name + " " + short(method.mid[at]));
        readout.textContent = data.read + " " + short(x[at]) + ": " + words.join(", ");
      }],
    },
  };
  place.plot = new uPlot(options, values, holder);
}

Charts.curves = (place, data) => {
  // Every seed, the median of each method, and the band between its quartiles.
  const x = Array.from({ length: data.points }, (_, i) => data.from + ((data.to - data.from) * i) / Math.max(data.points - 1, 1));
  const of = (packed) => numbers(packed, data.low, data.high);
  const methods = data.methods.map((method) => ({ ...method, mid: holes(of(method.mid)), low: holes(of(method.lower)), high: holes(of(method.upper)), seeds: of(method.each) }));
  lines(place, data, x, methods, (u) => {
    const ctx = u.ctx, left = u.valToPos(x[0], "x", true), right = u.valToPos(x[x.length - 1], "x", true);
    const zero = u.valToPos(0, "y", true), one = u.valToPos(1, "y", true) - zero, step = (right - left) / Math.max(x.length - 1, 1);
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.lineWidth = devicePixelRatio * 1.2;
    for (const method of methods) {
      const count = method.seeds.length / x.length;
      ctx.strokeStyle = faded(colourOf(method.colour), Math.max(0.15, Math.min(0.6, 6 / count)));
      for (let seed = 0; seed < count; seed++) {
        let pen = false;
        ctx.beginPath();
        for (let i = 0; i < x.length; i++) {
          const value = method.seeds[seed * x.length + i];
          if (Number.isNaN(value)) { pen = false; continue; }
          pen ? ctx.lineTo(left + step * i, zero + one * value) : ctx.moveTo(left + step * i, zero + one * value);
          pen = true;
        }
        ctx.stroke();
      }
    }
    if (data.solved !== null) {
      const y = zero + one * data.solved;
      ctx.strokeStyle = colourOf("muted");
      ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, y);
      ctx.lineTo(u.bbox.left + u.bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  });
};

Charts.profile = (place, data) => lines(place, data, data.x, data.methods, null);

Charts.rows = (place, data) => {
  // A row for each method on one axis: a dot for each seed, a bar for an interval, a mark for its middle.
  const width = Math.max(place.clientWidth, 200), side = 10, letter = 7.2;
  const crowded = data.rows.some((row) => (row.name.length + row.text.length + 2) * letter > width - 2 * side);
  const words = crowded ? 32 : 16, high = words + 32, top = 10 + 16 * data.marks.length, bottom = 40;
  const height = top + high * data.rows.length + bottom, inner = width - 2 * side;
  const at = (value) => side + ((value - data.low) / (data.high - data.low || 1)) * inner;
  const cut = (text, room) => (text.length > Math.floor(room) ? text.slice(0, Math.floor(room) - 1) + "…" : text);
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  const floor = top + high * data.rows.length + 4;
  const ticks = niceTicks(data.low, data.high, Math.max(2, Math.floor(width / 90)));
  for (const tick of ticks) {
    svg.append(node("line", { x1: at(tick), x2: at(tick), y1: top - 6, y2: floor, stroke: colourOf("line") }));
    svg.append(node("text", { x: at(tick), y: floor + 16, "text-anchor": at(tick) < 20 ? "start" : at(tick) > width - 20 ? "end" : "middle" }, short(tick)));
  }
  data.marks.forEach((mark, index) => {
    const x = at(mark.at), end = x > width / 2;
    svg.append(node("line", { x1: x, x2: x, y1: 16 + 16 * index, y2: floor, stroke: colourOf("muted"), "stroke-dasharray": "3 4" }));
    svg.append(node("text", { x: x + (end ? -4 : 4), y: 12 + 16 * index, "text-anchor": end ? "end" : "start" }, mark.name));
  });
  svg.append(node("text", { x: width / 2, y: floor + 33, "text-anchor": "middle" }, cut(data.across, width / 5.8)));
  data.rows.forEach((row, index) => {
    const y = top + high * index, colour = colourOf(row.colour), middle = y + words + 14;
    svg.append(node("text", { x: side, y: y + 12, class: "strong" }, cut(row.name, (width - 2 * side) / letter)));
    svg.append(node("text", crowded ? { x: side, y: y + 28 } : { x: width - side, y: y + 12, "text-anchor": "end" }, row.text));
    if (row.low !== null && row.low !== undefined)
      svg.append(node("rect", { x: at(row.low), y: middle - 4, width: Math.max(at(row.high) - at(row.low), 2), height: 8, rx: 4, fill: faded(colour, 0.3), class: "interval" }));
    row.points.forEach((value, seed) => {
      if (value === null) return;
      const jitter = row.points.length > 1 ? (((seed * 0.618034) % 1) - 0.5) * 12 : 0;
      const dot = node("circle", { cx: at(value).toFixed(1), cy: (middle + jitter).toFixed(1), r: row.points.length > 40 ? 2.5 : 4, fill: faded(colour, row.points.length > 40 ? 0.4 : 0.75), class: "dot" });
      dot.append(node("title", {}, `${row.name}, seed ${row.seeds[seed]}: ${short(value)}`));
      svg.append(dot);
    });
    if (row.mid !== null && row.mid !== undefined) svg.append(node("line", { x1: at(row.mid), x2: at(row.mid), y1: middle - 10, y2: middle + 10, stroke: colour, "stroke-width": 3, "stroke-linecap": "round", class: "middle" }));
  });
  place.replaceChildren(svg);
};

function niceTicks(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough), found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(+(i * step).toPrecision(10));
  return found;
}
