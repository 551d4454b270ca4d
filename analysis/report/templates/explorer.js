"use strict";
// The token explorer: search, table, scatter and details over `Data`. Tokens reach the page as
// text nodes only.
(() => {
  const app = document.getElementById("explorer-app");
  if (!app || !Data.meta?.models.length) return;
  const $ = (id) => document.getElementById(`explorer-${id}`);
  const { meta } = Data, models = meta.models.map((_, at) => at);
  const state = { prompt: 0, measure: "percentile", sort: null, rows: new Uint32Array(0), tier: null, row: -1 };

  // --- Text -------------------------------------------------------------------------------
  const signs = meta.display; // The signs of invisible characters: see analysis/display.py.
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
  function shown(token, limit = signs.limit) {
    const chars = [...token], node = element("span", "", "token");
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
    reward: (x) => minus(x.toPrecision(Math.abs(x) < 1e-3 ? 3 : 5)),
  };
  const said = (x, measure) => (x === x ? form[measure](x) : "–");
  function named(about) {
    const node = element("span", about.name, "model");
    node.style.setProperty("--model", about.colour);
    node.title = about.slug;
    return node;
  }

  // --- Table ------------------------------------------------------------------------------
  function bar(x, text) {
    const node = element("span", text, "bar");
    if (x === x) node.style.setProperty("--at", `${100 * x}%`);
    return node;
  }
  function cell(item, key) {
    if (key === "token") return shown(Data.tokens[item.row]);
    if (key === "mean" || key === "spread") {
      const x = Data.together(state.prompt)[key][item.row];
      return key === "mean" ? bar(x, said(x, "percentile")) : element("span", said(x, "percentile"));
    }
    return bar(Data.value(item.row, key, state.prompt, "percentile"),
      said(Data.value(item.row, key, state.prompt, state.measure), state.measure));
  }
  function definitions() {
    const column = (id, name, width, more) => ({
      id: String(id), field: "row", name, width, sortable: true, defaultSortAsc: false,
      formatter: (row, at, value, about, item) => cell(item, id), ...more });
    const narrow = app.clientWidth < 560, first = narrow ? 128 : 190;
    const list = [column("token", element("span", "token"), first, { sortable: false })];
    const width = Math.max(132, Math.min(240, (app.clientWidth - first - 190) / models.length | 0));
    if (models.length > 1) {
      list.push(column("mean", element("span", "mean"), 88));
      list.push(column("spread", element("span", "spread"), 74));
    }
    for (const at of models) {
      if (meta.models[at].columns[state.prompt] !== null) {
        list.push(column(at, named(meta.models[at]), width, { defaultSortAsc: state.measure === "rank" }));
      }
    }
    return list;
  }
  const provider = { getLength: () => state.rows.length, getItem: (at) => ({ row: state.rows[at] }), getItemMetadata: () => null };
  let grid;
  function makeGrid() {
    grid = new Slick.Grid($("grid"), provider, definitions(), {
      enableColumnReorder: false, enableHtmlRendering: false, rowHeight: 28, frozenColumn: 0,
      enableCellNavigation: true, syncColumnCellResize: true, mixinDefaults: false,
    });
    grid.onSort.subscribe((event, { sortCol, sortAsc }) => {
      // A rank falls as its reward rises.
      const key = Number.isNaN(+sortCol.id) ? sortCol.id : +sortCol.id;
      state.sort = { key, up: typeof key === "number" && state.measure === "rank" ? !sortAsc : sortAsc };
      update();
    });
    grid.onActiveCellChanged.subscribe((event, { row }) => row !== undefined && select(state.rows[row]));
    new ResizeObserver(() => grid.resizeCanvas()).observe($("grid"));
  }
  function columnsChanged() {
    state.sort = null;
    grid.setSortColumns([]);
    grid.setColumns(definitions());
    update();
  }

  // --- Which rows, in which order ---------------------------------------------------------
  function admitted() {
    const scope = $("scope").value, words = $("words").checked, specials = $("specials").checked;
    const special = new Uint8Array(meta.rows);
    for (const { rows, flags } of Data.vocabularies) rows.forEach((row, i) => { special[row] |= flags[i] & 8; });
    const word = /^[ _▁]?[\p{L}\p{M}'’-]+$/u;
    return Uint8Array.from(Data.held, (held, row) =>
      (scope === "shared" ? held === models.length : scope === "all" || Data.vocabularies[+scope].place[row] >= 0)
      && !(specials && special[row]) && (!words || word.test(Data.tokens[row])) ? 1 : 0);
  }
  let mask = null;
  // How good a match each admitted row is, 0 for none; and how many matches are not admitted.
  function leveled() {
    const { tier } = state, n = meta.rows;
    if (!tier) return { levels: mask, hidden: 0 };
    const levels = new Uint8Array(n), most = state.sort ? 1 : 4;
    let hidden = 0;
    for (let row = 0; row < n; row++) {
      const found = tier[row];
      if (!found) continue;
      if (mask[row]) levels[row] = found < most ? found : most;
      else hidden++;
    }
    return { levels, hidden };
  }
  // The rows of a level, in `order`; best matches first unless a head was clicked.
  function arranged(levels, order, up) {
    const ends = new Uint32Array(6), n = order.length;
    for (let i = 0; i < n; i++) ends[levels[order[i]]]++;
    ends[0] = 0;
    for (let at = 3; at > 0; at--) ends[at] += ends[at + 1];
    const starts = ends.subarray(1).slice(), rows = new Uint32Array(ends[1]);
    for (let i = 0; i < n; i++) {
      const row = order[up ? n - 1 - i : i], at = levels[row];
      if (at) rows[starts[at]++] = row;
    }
    return rows;
  }
  function update() {
    const start = performance.now(), query = $("query").value, how = $("how").value;
    mask ??= admitted();
    try { state.tier = query ? Data.match(query, how) : null; } catch (error) {
      $("status").textContent = `Not a regular expression: ${error.message}`;
      return;
    }
    const { key, up } = state.sort ?? { key: models.length > 1 ? "mean" : 0, up: false };
    const { levels, hidden } = leveled();
    state.rows = arranged(levels, Data.order(key, state.prompt), up);
    report(hidden);
    grid.invalidateAllRows();
    grid.updateRowCount();
    grid.scrollRowToTop(0);
    grid.render();
    drawSoon();
    app.dataset.ms = (performance.now() - start).toFixed(1);
  }
  function report(elsewhere) {
    const parts = [`${count(state.rows.length)} of ${count(meta.rows)} tokens`];
    if (elsewhere) {
      const all = element("button", `show ${count(elsewhere)} more that the filters hide`, "link");
      all.onclick = () => { $("scope").value = "all"; $("words").checked = $("specials").checked = false; filtersChanged(); };
      parts.push("; ", all);
    }
    $("status").replaceChildren(...parts);
  }
  function filtersChanged() { mask = null; update(); }

  // --- One token --------------------------------------------------------------------------
  function address(row) {
    const twin = Data.tokens.indexOf(Data.tokens[row]) !== row || Data.tokens.indexOf(Data.tokens[row], row + 1) >= 0;
    return `#token=${encodeURIComponent(Data.tokens[row])}${twin ? `&row=${row}` : ""}`;
  }
  function select(row, remember = true) {
    state.row = row;
    if (remember) history.replaceState(null, "", address(row));
    const link = element("a", "link to this token");
    link.href = address(row);
    const ids = Data.vocabularies.map(({ place, ids }, at) => place[row] < 0 ? null
      : `${meta.models.filter((m) => m.vocabulary === at).map((m) => m.name).join(", ")}: id ${ids[place[row]]}`);
    const title = element("h3", shown(Data.tokens[row], 200));
    const about = element("p", [ids.filter(Boolean).join(" · ") || "–", " · ", link], "how");
    $("detail").replaceChildren(title, about, element("div", details(row), "scroll"));
    drawScatter();
  }
  function details(row) {
    const head = element("tr", [element("th", "model"), ...meta.prompts.map((p) => element("th", p.id))]);
    const body = models.map((at) => element("tr", [
      element("th", [named(meta.models[at]), element("small", `of ${count(meta.vocabularies[meta.models[at].vocabulary].size)}`)]),
      ...meta.prompts.map((_, prompt) => element("td", detail(row, at, prompt)))]));
    return element("table", [element("thead", head), element("tbody", body)]);
  }
  function detail(row, model, prompt) {
    const [share, rank, reward] = ["percentile", "rank", "reward"].map((m) => Data.value(row, model, prompt, m));
    if (share !== share) return element("span", Data.column(model, prompt) ? "no such token" : "–", "how");
    return [bar(share, `${form.percentile(share)} %`), element("small", `rank ${count(rank)}`),
      element("small", `reward ${form.reward(reward)}`)];
  }
  function follow() {
    const found = /^#token=([^&]*)(?:&row=(\d+))?$/.exec(location.hash);
    if (!found) return;
    let text;
    try { text = decodeURIComponent(found[1]); } catch { return; }
    const row = found[2] && Data.tokens[+found[2]] === text ? +found[2] : Data.tokens.indexOf(text);
    document.getElementById("explorer").scrollIntoView();
    if (row < 0) { $("status").textContent = "No token of these models is the one linked to."; return; }
    $("query").value = text;
    update();
    select(row, false);
  }

  // --- Scatter ----------------------------------------------------------------------------
  const canvas = $("scatter"), SIZE = 400, GAP = 8;
  let points = null; // { key, rows, x, y } in pixels; kept until an axis changes.
  function axis(id) { return $(id).value.split(":").map(Number); }
  function scaled(id) {
    const [model, prompt] = axis(id), { place } = Data.vocabularies[meta.models[model].vocabulary];
    const column = Data.column(model, prompt), out = new Float32Array(meta.rows).fill(NaN);
    if (!column) return null;
    const values = state.measure === "reward" ? column.reward : column.percentile;
    const high = values[column.order[0]], low = values[column.order[column.n - 1]];
    for (let row = 0; row < meta.rows; row++) {
      if (place[row] >= 0) out[row] = GAP + ((SIZE - 2 * GAP) * (values[place[row]] - low)) / (high - low || 1);
    }
    return out;
  }
  function place() {
    const key = `${$("x").value} ${$("y").value} ${state.measure}`;
    if (points?.key === key) return points;
    const x = scaled("x"), y = scaled("y");
    if (!x || !y) return null;
    const rows = [];
    for (let row = 0; row < meta.rows; row++) if (x[row] === x[row] && y[row] === y[row]) rows.push(row);
    points = { key, rows: Uint32Array.from(rows), x, y: y.map((v) => SIZE - v) };
    return points;
  }
  let base = null; // The plot without what is chosen: { key, mask, image }.
  function cloud(at, pen) {
    if (base?.key === at.key && base.mask === mask) return base.image;
    const counts = new Uint32Array(SIZE * SIZE), thin = at.rows.length < 30000;
    for (const row of at.rows) {
      if (!mask[row]) continue;
      const pixel = (at.y[row] | 0) * SIZE + (at.x[row] | 0);
      counts[pixel]++;
      if (thin) { counts[pixel + 1]++; counts[pixel + SIZE]++; counts[pixel + SIZE + 1]++; }
    }
    const image = pen.createImageData(SIZE, SIZE), pixels = new Uint32Array(image.data.buffer);
    const ink = matchMedia("(prefers-color-scheme: dark)").matches ? 0xf0b77d : 0xa85f1d; // Blue, green, red.
    const alpha = Uint32Array.from({ length: 64 }, (_, n) => (n ? Math.min(255, 90 + 55 * Math.log2(n + 1)) : 0));
    for (let i = 0; i < counts.length; i++) pixels[i] = ((alpha[Math.min(counts[i], 63)] << 24) | ink) >>> 0;
    base = { key: at.key, mask, image };
    return image;
  }
  function drawScatter() {
    const at = place();
    if (!at) return;
    const pen = canvas.getContext("2d"), found = [], { tier } = state;
    pen.putImageData(cloud(at, pen), 0, 0);
    if (tier) for (const row of state.rows) if (found.length < 1500 && at.x[row] === at.x[row]) found.push(row);
    pen.fillStyle = "#d9730d";
    for (const row of found) pen.fillRect(at.x[row] - 1.5, at.y[row] - 1.5, 4, 4);
    if (state.row >= 0 && at.x[state.row] === at.x[state.row] && at.y[state.row] === at.y[state.row]) {
      pen.lineWidth = 2.5;
      pen.strokeStyle = getComputedStyle(app).color;
      pen.strokeRect(at.x[state.row] - 6, at.y[state.row] - 6, 13, 13);
    }
  }
  let waiting = 0; // The rows come first; the plot follows when they are on the screen.
  function drawSoon() {
    clearTimeout(waiting);
    waiting = setTimeout(drawScatter, 30);
  }
  function nearest(event) {
    const at = place(), box = canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) * SIZE) / box.width, y = ((event.clientY - box.top) * SIZE) / box.height;
    let best = -1, least = 18 ** 2;
    for (const row of at?.rows ?? []) {
      // A match of the search wins over a point that is no nearer than three pixels more.
      const distance = (at.x[row] - x) ** 2 + (at.y[row] - y) ** 2 - (state.tier?.[row] ? 9 : 0);
      if (distance < least && mask[row]) { least = distance; best = row; }
    }
    return best;
  }
  function axes() {
    for (const [id, chosen] of [["x", 0], ["y", 1]]) {
      const options = models.flatMap((at) => meta.prompts.map((prompt, p) => meta.models[at].columns[p] === null ? []
        : new Option(`${meta.models[at].name} · ${prompt.id}`, `${at}:${p}`)).flat());
      $(id).replaceChildren(...options);
      const other = options.find((o) => models.length > 1 ? o.value.startsWith("1:") : o.value.endsWith(":1"));
      if (chosen && other) $(id).value = other.value;
      $(id).onchange = drawScatter;
    }
    canvas.onclick = (event) => { const row = nearest(event); if (row >= 0) select(row); };
    canvas.onmousemove = (event) => {
      const row = nearest(event);
      $("hover").replaceChildren(row < 0 ? "Point at a token to read it; click to pick it." : shown(Data.tokens[row]));
    };
  }

  // --- Start ------------------------------------------------------------------------------
  function controls() {
    $("prompt").replaceChildren(...meta.prompts.map((p, at) => new Option(p.id, at)));
    const several = meta.vocabularies.map((v, at) =>
      new Option(`the ${count(v.size)} of ${meta.models.filter((m) => m.vocabulary === at).map((m) => m.name).join(", ")}`, at));
    const options = [new Option("all tokens", "all"), ...(several.length > 1 ? several : [])];
    if (several.length > 1 && Data.held.includes(models.length)) options.unshift(new Option("tokens of every model", "shared"));
    $("scope").replaceChildren(...options);
    $("query").oninput = () => { if (state.sort) { state.sort = null; grid.setSortColumns([]); } update(); };
    $("how").onchange = update;
    for (const id of ["scope", "words", "specials"]) $(id).onchange = filtersChanged;
    $("prompt").onchange = async () => { state.prompt = +$("prompt").value; await load(state.prompt); columnsChanged(); };
    $("measure").onchange = () => { state.measure = $("measure").value; columnsChanged(); };
    window.addEventListener("hashchange", follow);
  }
  const breath = () => new Promise((resolve) => setTimeout(resolve));
  async function load(prompt) {
    for (const at of models) {
      if (!Data.column(at, prompt)) {
        await Data.load(at, prompt);
        await breath(); // One column at a time, so that the page stays alive.
      }
    }
  }
  async function start() {
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack gzip (DecompressionStream)");
    await Data.read();
    await load(0);
    controls();
    axes();
    app.classList.remove("waiting");
    makeGrid();
    update();
    for (const prompt of meta.prompts.keys()) await load(prompt);
    follow();
    if (state.row < 0 && state.rows.length) select(state.rows[0], false);
    drawScatter();
    Data.match("e", "contains"); // The first search of the long string flattens it.
    app.dataset.ready = "yes";
  }
  start().catch((error) => { $("status").textContent = `The explorer cannot start: ${error.message}`; console.error(error); });
})();
