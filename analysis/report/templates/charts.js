"use strict";
// Charts are made when they come near the view, in the colours of the light or the dark page.
const themes = JSON.parse(document.getElementById("themes")?.textContent ?? "[]");
const darkPage = matchMedia("(prefers-color-scheme: dark)");
const madeCharts = new Map(); // Element -> what vegaEmbed returned.

async function makeChart(box) {
  const spec = JSON.parse(document.getElementById(`chart-${box.dataset.chart}`).textContent);
  const canvas = document.createElement("div");
  const options = { config: themes[darkPage.matches ? 1 : 0], actions: false, ast: true, renderer: "svg", logLevel: 1 };
  madeCharts.get(box)?.finalize();
  const made = await vegaEmbed(canvas, spec, options);
  madeCharts.set(box, made);
  box.querySelector(":scope > div")?.remove();
  box.append(canvas);
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
darkPage.addEventListener("change", () => [...madeCharts.keys()].forEach(makeChart));
