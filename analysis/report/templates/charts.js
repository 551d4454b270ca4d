"use strict";
// Charts are made when they come near the view, in the colours of the light or the dark page, with as
// many panels side by side as there is room for, and a narrow screen’s panels are narrower.
const themes = JSON.parse(document.getElementById("themes")?.textContent ?? "[]");
const darkPage = matchMedia("(prefers-color-scheme: dark)");
const madeCharts = new Map(); // Element -> what vegaEmbed returned.

async function makeChart(box) {
  const spec = JSON.parse(document.getElementById(`chart-${box.dataset.chart}`).textContent);
  const config = themes[darkPage.matches ? 1 : 0];
  const wide = (box.dataset.wide ??= box.style.getPropertyValue("--wide")), part = spec.spec ?? spec;
  const room = box.parentElement.clientWidth / getComputedStyle(box).getPropertyValue("--zoom"), of = spec.columns ?? 1;
  if (room < wide) {
    const now = Math.max(1, Math.floor(of * room / wide));
    if (spec.columns) spec.columns = now;
    if (part.width > 0) part.width = Math.max(120, part.width - Math.max(0, wide * now / of - room));
  }
  const canvas = document.createElement("div");
  canvas.ariaHidden = "true"; // The box is the picture, and has its name.
  const options = { config, actions: false, ast: true, renderer: "svg", logLevel: 1 };
  madeCharts.get(box)?.finalize();
  const made = await vegaEmbed(canvas, spec, options);
  madeCharts.set(box, made);
  box.querySelector(":scope > div")?.remove();
  box.append(canvas);
  const { width, height } = canvas.querySelector("svg").viewBox.baseVal;
  box.style.setProperty("--wide", width);
  box.style.setProperty("--high", height);
}

const nearCharts = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      nearCharts.unobserve(entry.target);
      makeChart(entry.target);
    }
  }
}, { rootMargin: "400px" });

for (const box of document.querySelectorAll(".chart")) {
  nearCharts.observe(box);
}
// Where a chart or a table goes on to the right, its edge fades (.more in style.css), and keys move it.
const markEdge = (box) => {
  box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  if (box.clientWidth < box.scrollWidth || box.clientHeight < box.scrollHeight) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
};
const edges = new ResizeObserver((entries) => entries.forEach((entry) => markEdge(entry.target.closest(".scroll"))));
for (const box of document.querySelectorAll(".scroll")) {
  edges.observe(box);
  if (box.firstElementChild) edges.observe(box.firstElementChild);
  box.addEventListener("scroll", () => markEdge(box), { passive: true });
}
darkPage.addEventListener("change", () => [...madeCharts.keys()].forEach(makeChart));
