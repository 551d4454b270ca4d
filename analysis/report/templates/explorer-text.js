"use strict";
// How the explorer writes: tokens, numbers, links and CSV. Tokens reach the page as text nodes only.
const Write = (() => {
  const signs = Data.meta.display; // The signs of invisible characters: see engine/display.py.
  function mark(chars, at) {
    const char = chars[at], sign = signs.anywhere[char];
    if (char !== " ") return sign ?? (at === 0 ? signs.start[char] : null) ?? null;
    const near = chars[at - 1] === " " || chars[at + 1] === " ";
    return near || at === 0 || at === chars.length - 1 ? sign : null;
  }
  function element(name, content = "", className = "") {
    const node = document.createElement(name);
    node.append(...[content].flat());
    if (className) node.className = className;
    return node;
  }
  function token(text, limit = signs.limit) {
    const chars = [...text], node = element("span", "", "token");
    if (!chars.length) node.append(element("i", "(empty)"));
    for (let start = 0, end, room = limit; start < chars.length; start = end) {
      const sign = mark(chars, start);
      for (end = start + 1; end < chars.length && mark(chars, end) === sign; ) end++;
      const size = end - start;
      const text = sign === null ? chars.slice(start, Math.min(end, start + room)).join("")
        : size <= signs.run ? sign.repeat(size) : `${sign}×${size}`;
      node.append(element(sign === null ? "bdi" : "i", text));
      room -= sign === null ? size : text.length;
      if (room < 0 || (room === 0 && end < chars.length)) { node.append(element("i", "…")); break; }
    }
    return node;
  }
  const count = (n) => n.toLocaleString("en");
  const minus = (text) => text.replace("-", "−");
  const form = {
    percentile: (x) => (100 * x).toFixed(x > 0.999 || x < 0.001 ? 2 : 1),
    rank: count,
    reward: (x, decimals = 3) => minus(x.toFixed(Math.max(decimals, 0))),
    difference: (x) => { const text = x.toFixed(1); return Number(text) === 0 ? "0.0" : (x > 0 ? "+" : "") + minus(text); },
  };
  const number = (x, measure, decimals) => (x === x ? form[measure](x, decimals) : "–");
  function model(about) {
    const node = element("span", about.name, "model");
    node.style.setProperty("--model", about.colour);
    node.title = about.slug;
    return node;
  }
  function bar(x, text) {
    const node = element("span", text, "bar");
    if (x === x) node.style.setProperty("--at", `${100 * x}%`);
    return node;
  }

  // A spreadsheet runs a text that begins so; an apostrophe before it makes it text again.
  const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;
  const quoted = (text) => `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  // Rows of texts and numbers as CSV: texts are quoted, numbers are not, NaN is empty.
  const csv = (rows) => rows.map((row) => row.map((cell) =>
    typeof cell === "number" ? (cell === cell ? String(cell) : "") : quoted(cell)).join(",")).join("\r\n") + "\r\n";
  function download(name, text) {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = name;
    document.body.append(link); // Firefox follows no link outside the page.
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  return { element, token, count, form, number, model, bar, csv, download };
})();
