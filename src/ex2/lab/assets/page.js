"use strict";
// The page: its colours, when a chart is drawn, and, where it is live, what is new.
const root = document.documentElement, main = document.getElementById("main");
let charts = JSON.parse(document.getElementById("charts").textContent);
window.ex2 = { drawn: 0, updates: 0 };

function draw(place) {
  const data = charts[place.dataset.chart];
  if (!data) return;
  Charts[data.kind](place, data);
  place.dataset.drawn = "yes";
  if (!window.ex2.drawn++) performance.mark("first-chart");
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); draw(target); }
}, { rootMargin: "300px" });
const places = () => [...main.querySelectorAll("[data-chart]")];
const drawn = () => places().filter((place) => place.dataset.drawn);
const begin = () => places().forEach((place, index) => (index ? seen.observe(place) : draw(place)));  // the first at once

// Light or dark: what the system says, until the button is pressed. Storage may be refused, as for a file.
const button = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
function theme(name) {
  root.dataset.theme = name;
  button.setAttribute("aria-pressed", String(name === "dark"));
  drawn().forEach(draw);
}
button.addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* it is forgotten, then */ }
  theme(name);
});
dark.addEventListener("change", () => remembered() || theme(dark.matches ? "dark" : "light"));
theme(remembered() || (dark.matches ? "dark" : "light"));
begin();

let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(() => drawn().forEach(draw), 150);
});
let before = "", closed = [];
addEventListener("beforeprint", () => {  // charts as wide as paper, or all would be printed smaller to make them fit
  before = root.dataset.theme;
  closed = [...main.querySelectorAll("details:not([open])")];
  closed.forEach((one) => (one.open = true));
  main.style.width = "700px";
  theme("light");
  places().forEach((place) => place.dataset.drawn || draw(place));
});
addEventListener("afterprint", () => {
  main.style.width = "";
  closed.forEach((one) => (one.open = false));
  theme(before);
});

// A live page asks its server, and changes what has changed.
const live = document.body.dataset.live, state = document.getElementById("state");
const structure = (element) => [...element.querySelectorAll("[data-chart]")].map((place) => place.dataset.chart).join();
function take(news) {
  const made = document.createElement("div"), old = charts;
  made.innerHTML = news.main;
  charts = news.charts;
  if (structure(made) !== structure(main)) {
    main.replaceChildren(...made.childNodes);
    begin();
  } else {
    for (const part of made.querySelectorAll("[data-part]")) {
      const own = main.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (own && own.innerHTML !== part.innerHTML) own.replaceChildren(...part.childNodes);
    }
    for (const place of drawn()) {
      const name = place.dataset.chart;
      if (JSON.stringify(old[name]) !== JSON.stringify(charts[name])) draw(place);
    }
  }
  window.ex2.updates++;
}
async function ask(version) {
  let wait = 2000;
  try {
    const answer = await fetch(`${live}?since=${encodeURIComponent(version)}`, { cache: "no-store" });
    const news = await answer.json();
    if (news.version !== version) take(news);
    version = news.version;
    state.textContent = news.state;
  } catch (error) {
    state.textContent = "The server has ended; this is what it said last.";
    wait = 5000;
  }
  setTimeout(ask, wait, version);
}
if (live) ask("");
