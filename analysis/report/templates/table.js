"use strict";
// Tables of class "sortable" sort by a click on a head; an input with data-filter="<id>" filters.
const value = (row, at) => row.cells[at].dataset.v ?? row.cells[at].textContent.trim();

function sortBy(table, at, numeric) {
  const head = table.tHead.rows[0].cells[at];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const number = (text) => parseFloat(text.replace("\u2212", "-"));
  const compare = (a, b) => {
    if (!numeric) return (up ? 1 : -1) * (a < b ? -1 : a > b ? 1 : 0);
    const [x, y] = [number(a), number(b)];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // Unknown values stay last.
    return up ? x - y : y - x;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [value(row, at), row]);
  rows.sort((a, b) => compare(a[0], b[0]));
  table.tBodies[0].append(...rows.map((pair) => pair[1]));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => sortBy(table, at, head.classList.contains("n"));
  });
}

for (const input of document.querySelectorAll("input[data-filter]")) {
  const rows = document.getElementById(input.dataset.filter).tBodies[0].rows;
  input.oninput = () => {
    const wanted = input.value.toLowerCase();
    for (const row of rows) {
      const text = [...row.cells].map((cell, at) => `${value(row, at)} ${cell.textContent}`);
      row.hidden = !text.join(" ").toLowerCase().includes(wanted);
    }
  };
}
