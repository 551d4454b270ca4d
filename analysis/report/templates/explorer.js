"use strict";
// The token explorer: controls, table and details over `Data`; the address of the page holds them all.
(() => {
  const app = document.getElementById("explorer-app");
  const $ = (id) => document.getElementById(`explorer-${id}`);
  const { meta } = Data, { element, count, number } = Write;
  const models = meta.models.map((_, at) => at), FEW = 12; // Prompts whose details all fit.
  const pairs = meta.models.reduce((n, about) => n + about.columns.filter((at) => at !== null).length, 0);
  const state = { rows: new Uint32Array(0), tier: null, row: -1, mask: null };
  const prompt = () => +$("prompt").value, measure = () => $("measure").value;
  const side = (id) => [+$(`${id}-model`).value, +$(`${id}-prompt`).value];
  const pair = () => [side("a"), side("b")];
  const plot = Plot($("scatter"), { pair, measure, mask: () => state.mask, row: () => state.row,
    tier: () => state.tier, matches: () => (state.tier ? state.rows : null) });

  // --- Table ------------------------------------------------------------------------------
  // The columns: key, head, what CSV calls it, and the number of a row.
  function columns() {
    const own = models.filter((at) => meta.models[at].columns[prompt()] !== null);
    const list = own.map((at) => ({ key: String(at), head: () => Write.model(meta.models[at]),
      name: `${meta.models[at].slug}, ${measure()}`, value: (row) => Data.value(row, at, prompt(), measure()) }));
    const together = (key) => ({ key, head: () => element("span", key), name: key,
      value: (row) => Data.together(prompt())[key][row] });
    const apart = { key: "difference", head: () => element("span", "A − B"),
      name: `difference of percentiles, ${pair().map(sideName).join(" minus ")}`, value: (row) => Data.difference(...pair())[row] };
    return [...(pairs > 1 ? [apart] : []), ...(own.length > 1 ? [together("mean"), together("spread")] : []), ...list];
  }
  const sideName = ([model, asked]) => `${meta.models[model].slug} under ${meta.prompts[asked].id}`;
  function cell(row, { key, value }) {
    const x = value(row);
    if (key === "difference") return element("span", number(x, "difference"));
    if (key === "mean") return Write.bar(x, number(x, "percentile"));
    if (key === "spread") return element("span", number(x, "percentile"));
    return Write.bar(Data.value(row, +key, prompt(), "percentile"), number(x, measure()));
  }
  function definitions() {
    const shown = columns(), narrow = app.clientWidth < 560, first = narrow ? 128 : 190;
    const rest = app.clientWidth - first - 250, each = Math.max(narrow ? 104 : 132, Math.min(240, (rest / models.length) | 0));
    const widths = { difference: 78, mean: 84, spread: 74 };
    const token = { id: "token", field: "row", name: element("span", "token"), width: first, sortable: false,
      formatter: (at, _, value, about, item) => Write.token(Data.tokens[item.row]) };
    return [token, ...shown.map((column) => ({ id: column.key, field: "row", name: column.head(), sortable: true,
      width: widths[column.key] ?? each, defaultSortAsc: !(column.key in widths) && measure() === "rank",
      formatter: (at, _, value, about, item) => cell(item.row, column) }))];
  }
  const provider = { getLength: () => state.rows.length, getItem: (at) => ({ row: state.rows[at] }), getItemMetadata: () => null };
  let grid;
  function makeGrid() {
    grid = new Slick.Grid($("grid"), provider, definitions(), {
      enableColumnReorder: false, enableHtmlRendering: false, rowHeight: 28, frozenColumn: 0,
      enableCellNavigation: true, syncColumnCellResize: true, mixinDefaults: false,
    });
    grid.onSort.subscribe((event, { sortCol, sortAsc }) => {
      $("sort").value = sortCol.id;
      // A rank falls as its reward rises.
      $("rising").checked = !Number.isNaN(+sortCol.id) && measure() === "rank" ? !sortAsc : sortAsc;
      update();
    });
    grid.onActiveCellChanged.subscribe((event, { row }) => row !== undefined && select(state.rows[row]));
    new ResizeObserver(() => grid.resizeCanvas()).observe($("grid"));
  }
  function columnsChanged() {
    const sort = $("sort").value, own = columns().map(({ key }) => key);
    const names = { difference: "A − B", mean: "mean percentile", spread: "spread of the models" };
    const options = [new Option("best match, then mean", ""), ...(own.includes("difference") ? [new Option("largest difference", "apart")] : []),
      ...own.map((key) => new Option(names[key] ?? meta.models[+key].name, key))];
    $("sort").replaceChildren(...options);
    $("sort").value = options.some((option) => option.value === sort) ? sort : "";
    grid.setColumns(definitions());
    marked();
    update();
  }
  // The head of the column by which the rows are sorted has an arrow.
  function marked() {
    const key = $("sort").value, up = $("rising").checked;
    const rank = !Number.isNaN(+key) && measure() === "rank";
    grid.setSortColumns(key && key !== "apart" ? [{ columnId: key, sortAsc: rank ? !up : up }] : []);
  }

  // --- Which rows, in which order ---------------------------------------------------------
  function admitted() {
    const scope = $("scope").value, words = $("words").checked, specials = $("specials").checked;
    const special = new Uint8Array(meta.rows), sets = [];
    for (const { rows, flags } of Data.vocabularies) rows.forEach((row, i) => { special[row] |= flags[i] & 8; });
    Data.filters.forEach((_, at) => { if ($(`set-${at}`).value) sets.push(Data.members(at, +$(`set-${at}`).value)); });
    const word = /^[ _▁]?[\p{L}\p{M}'’-]+$/u;
    return Uint8Array.from(Data.held, (held, row) =>
      (scope === "shared" ? held === models.length : scope === "all" || Data.vocabularies[+scope].place[row] >= 0)
      && sets.every((inside) => inside[row])
      && !(specials && special[row]) && (!words || word.test(Data.tokens[row])) ? 1 : 0);
  }
  // How good a match each admitted row is, 0 for none; and how many matches are not admitted.
  function leveled() {
    const { tier, mask } = state, n = meta.rows;
    if (!tier) return { levels: mask, hidden: 0 };
    const levels = new Uint8Array(n), most = $("sort").value ? 1 : 4;
    let hidden = 0;
    for (let row = 0; row < n; row++) {
      const found = tier[row];
      if (!found) continue;
      if (mask[row]) levels[row] = found < most ? found : most;
      else hidden++;
    }
    return { levels, hidden };
  }
  // The rows of a level, in `order`; best matches first unless an order was chosen.
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
  function ordered() {
    const key = $("sort").value;
    if (key === "apart" || key === "difference") return Data.orderApart(...pair(), key === "apart");
    const first = models.find((at) => meta.models[at].columns[prompt()] !== null);
    return Data.order(key ? (Number.isNaN(+key) ? key : +key) : models.length > 1 ? "mean" : first, prompt());
  }
  function update() {
    const start = performance.now(), query = $("query").value;
    state.mask ??= admitted();
    try { state.tier = query ? Data.match(query, $("how").value) : null; } catch (error) {
      $("status").textContent = `Not a regular expression: ${error.message}`;
      return;
    }
    const { levels, hidden } = leveled();
    state.rows = arranged(levels, ordered(), $("rising").checked);
    report(hidden);
    grid.invalidateAllRows();
    grid.updateRowCount();
    grid.scrollRowToTop(0);
    grid.render();
    plot.drawSoon();
    remember();
    app.dataset.ms = (performance.now() - start).toFixed(1);
  }
  function report(elsewhere) {
    const query = $("query").value, none = !state.rows.length && !elsewhere && query;
    const parts = [none && meta.whole ? `“${query}” is no token of these models, nor part of one: assay score rates any text` : `${count(state.rows.length)} of ${count(meta.rows)} tokens`];
    $("grid").hidden = Boolean(none);
    if (elsewhere) {
      const all = element("button", `show ${count(elsewhere)} more that the filters hide`, "link");
      all.onclick = () => {
        $("scope").value = "all";
        $("words").checked = $("specials").checked = false;
        Data.filters.forEach((_, at) => { $(`set-${at}`).value = ""; });
        filtersChanged();
      };
      parts.push("; ", all);
    }
    $("status").replaceChildren(...parts);
  }
  function filtersChanged() { state.mask = null; update(); }
  function save() {
    const shown = columns(), head = ["token", ...shown.map(({ name }) => name)];
    const exact = ["rank", "reward"].includes(measure()); // Percentiles are in hundredths, as on the page.
    const written = (key, x) => (key === "difference" ? +x.toFixed(4)
      : exact && !Number.isNaN(+key) ? x : +(100 * x).toFixed(4));
    const rows = Array.from(state.rows, (row) => [Data.tokens[row], ...shown.map(({ key, value }) => written(key, value(row)))]);
    Write.download(`tokens_${meta.prompts[prompt()].id}.csv`, Write.csv([head, ...rows]));
  }

  // --- One token --------------------------------------------------------------------------
  function named(row) {
    const twin = Data.tokens.indexOf(Data.tokens[row]) !== row || Data.tokens.indexOf(Data.tokens[row], row + 1) >= 0;
    return `token=${encodeURIComponent(Data.tokens[row])}${twin ? `&row=${row}` : ""}`;
  }
  function select(row, shown = true) {
    state.row = row;
    const link = element("a", "link to this token");
    link.href = `#${named(row)}`;
    const ids = Data.vocabularies.map(({ place, ids }, at) => place[row] < 0 ? null
      : `${meta.models.filter((m) => m.vocabulary === at).map((m) => m.name).join(", ")}: id ${ids[place[row]]}`);
    const title = element("h3", Write.token(Data.tokens[row], 200));
    const about = element("p", [ids.filter(Boolean).join(" · ") || "–", " · ", link], "how");
    $("detail").replaceChildren(title, about, element("div", details(row), "scroll"));
    plot.draw();
    if (shown) remember();
  }
  function details(row) {
    const every = [...meta.prompts.keys()];
    const few = every.length <= FEW ? every : [...new Set([prompt(), ...pair().map(([, asked]) => asked)])];
    const head = element("tr", [element("th", "model"), ...few.map((at) => element("th", meta.prompts[at].id))]);
    const body = models.map((at) => element("tr", [
      element("th", [Write.model(meta.models[at]), element("small", `of ${count(meta.models[at].of)}`)]),
      ...few.map((asked) => element("td", detail(row, at, asked)))]));
    return element("table", [element("thead", head), element("tbody", body)]);
  }
  function detail(row, model, asked) {
    const share = Data.value(row, model, asked, "percentile");
    if (share !== share) return element("span", Data.column(model, asked) ? "no such token" : "–", "how");
    const more = [element("small", `rank ${count(Data.value(row, model, asked, "rank"))}`)];
    if (meta.whole) more.push(element("small", `reward ${Write.form.reward(Data.value(row, model, asked, "reward"))}`));
    return [Write.bar(share, `${Write.form.percentile(share)} %`), ...more];
  }

  // --- The view in the address ------------------------------------------------------------
  // A control's value by names, which stay the same when the report is written again.
  const texts = [["q", "query"], ["as", "how"], ["among", "scope"], ["show", "measure"], ["sort", "sort"]];
  const ticks = [["words", "words"], ["plain", "specials"], ["rising", "rising"]];
  const slug = (at) => meta.models[at].slug, asked = (at) => meta.prompts[at].id;
  const place = (list, name, otherwise) => { const at = list.findIndex((one) => one === name); return at < 0 ? otherwise : at; };
  const slugs = models.map(slug), ids = meta.prompts.map(({ id }) => id);
  const plain = {}; // The view without a choice.
  function view() {
    const all = {};
    for (const [key, id] of texts) all[key] = $(id).value;
    for (const [key, id] of ticks) all[key] = $(id).checked ? "1" : "";
    if (all.sort !== "" && !Number.isNaN(+all.sort)) all.sort = `model ${slug(+all.sort)}`;
    if (!Number.isNaN(+all.among)) all.among = `model ${slug(meta.models.findIndex((m) => m.vocabulary === +all.among))}`;
    all.prompt = asked(prompt());
    for (const id of ["a", "b"]) all[id] = `${slug(side(id)[0])} ${asked(side(id)[1])}`;
    Data.filters.forEach(({ label, values }, at) => { const chosen = $(`set-${at}`).value; all[label] = chosen && values[+chosen]; });
    return all;
  }
  function address() {
    const parts = state.row >= 0 ? [named(state.row)] : [], now = view();
    // A token alone is also searched for; beside a view it is not.
    for (const key of Object.keys(now)) {
      if (now[key] !== plain[key] || (key === "q" && parts.length)) parts.push(`${encodeURIComponent(key)}=${encodeURIComponent(now[key])}`);
    }
    return `#${parts.join("&") || "explorer"}`;
  }
  let restoring = true; // Until the first view stands, the address is read and not written.
  let written = 0; // A browser allows few changes of the address a second.
  function remember() {
    if (restoring) return;
    clearTimeout(written);
    written = setTimeout(() => {
      const here = address();
      $("link").href = here;
      if (here !== "#explorer" || /=/.test(location.hash)) history.replaceState(null, "", here);
    }, 150);
  }
  function set(wanted) {
    const full = { ...plain, ...wanted };
    $("prompt").value = place(ids, full.prompt, 0);
    for (const id of ["a", "b"]) {
      const [model, ...rest] = full[id].split(" ");
      $(`${id}-model`).value = place(slugs, model, 0);
      $(`${id}-prompt`).value = place(ids, rest.join(" "), 0);
    }
    for (const [key, id] of texts) if (key !== "sort" && key !== "among") choose($(id), full[key]);
    for (const [key, id] of ticks) $(id).checked = full[key] === "1";
    const among = /^model (.*)$/.exec(full.among), at = place(slugs, among?.[1], -1);
    choose($("scope"), at < 0 ? full.among : String(meta.models[at].vocabulary));
    Data.filters.forEach(({ label, values }, i) => { const chosen = place(values, full[label], -1); $(`set-${i}`).value = chosen < 0 ? "" : chosen; });
    columnsChanged(); // Makes the orders of the rows that can be chosen.
    const by = /^model (.*)$/.exec(full.sort);
    choose($("sort"), by ? String(place(slugs, by[1], "")) : full.sort);
  }
  function choose(control, value) {
    const was = control.value;
    control.value = value;
    if (control.value !== value) control.value = was; // No such option in this report.
  }
  async function follow() {
    const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    if (!["token", ...Object.keys(plain)].some((key) => key in wanted)) return;
    document.getElementById("explorer").scrollIntoView();
    if ("token" in wanted) wanted.q ??= wanted.token;
    restoring = true;
    await load(place(ids, wanted.prompt, place(ids, plain.prompt, 0)));
    set(wanted);
    await loadPair();
    state.mask = null;
    marked();
    update();
    const row = !("token" in wanted) ? -1 : Data.tokens[+wanted.row] === wanted.token ? +wanted.row : Data.tokens.indexOf(wanted.token);
    if ("token" in wanted && row < 0) $("status").textContent = `${meta.whole ? "No token of these models" : "No token in this page"} is the one linked to.`;
    restoring = false;
    if (row >= 0) select(row, false);
    $("link").href = address();
  }

  // --- Start ------------------------------------------------------------------------------
  const options = (id, list) => $(id).replaceChildren(...list.map(([text, value]) => new Option(text, value)));
  function controls() {
    const prompts = meta.prompts.map(({ id }, at) => [id, at]), every = models.map((at) => [meta.models[at].name, at]);
    options("prompt", prompts);
    for (const id of ["a", "b"]) {
      options(`${id}-model`, every);
      options(`${id}-prompt`, prompts);
      for (const part of ["model", "prompt"]) $(`${id}-${part}`).onchange = pairChanged;
    }
    const scored = (model, at) => meta.models[model].columns[at] !== null;
    const first = ids.findIndex((_, at) => scored(0, at)), last = ids.findLastIndex((_, at) => scored(0, at));
    const other = models.find((at) => at > 0 && scored(at, first));
    $("a-prompt").value = first;
    $("b-model").value = other ?? 0;
    $("b-prompt").value = other === undefined ? last : first;
    const several = meta.vocabularies.map((v, at) =>
      [`the ${count(v.size)} of ${meta.models.filter((m) => m.vocabulary === at).map((m) => m.name).join(", ")}`, at]);
    const scopes = [["all tokens", "all"], ...(several.length > 1 ? several : [])];
    if (several.length > 1 && Data.held.includes(models.length)) scopes.unshift(["tokens of every model", "shared"]);
    options("scope", scopes);
    if (!meta.whole) $("measure").querySelector("[value=reward]").remove();
    $("pair").hidden = pairs < 2;
    filterControls();
    $("query").oninput = () => { if ($("sort").value) { $("sort").value = ""; marked(); } update(); };
    for (const id of ["how", "sort", "rising"]) $(id).onchange = () => { marked(); update(); };
    for (const id of ["scope", "words", "specials"]) $(id).onchange = filtersChanged;
    $("prompt").onchange = async () => { await load(prompt()); columnsChanged(); };
    $("measure").onchange = columnsChanged;
    $("csv").onclick = save;
    $("apart").onclick = () => { $("sort").value = "apart"; $("rising").checked = false; marked(); update(); };
    window.addEventListener("hashchange", follow);
  }
  function filterControls() {
    $("sets").replaceChildren(...Data.filters.map(({ label, values, of }, at) => {
      const sizes = new Uint32Array(values.length), list = element("select");
      of.forEach((value) => sizes[value]++);
      list.id = `explorer-set-${at}`;
      list.append(new Option("any", ""), ...values.map((value, i) => new Option(`${value} (${count(sizes[i])})`, i)));
      list.onchange = filtersChanged;
      return element("label", [`${label} `, list]);
    }));
  }
  async function pairChanged() { await loadPair(); columnsChanged(); plot.draw(); }
  const loadPair = async () => { for (const [model, at] of pair()) await Data.load(model, at); };
  const breath = () => new Promise((resolve) => setTimeout(resolve));
  async function load(at) {
    for (const model of models) {
      if (Data.column(model, at)) continue;
      await Data.load(model, at);
      await breath(); // One column at a time, so that the page stays alive.
    }
  }
  function clicks() {
    const canvas = $("scatter");
    canvas.onclick = (event) => { const row = plot.nearest(event); if (row >= 0) select(row); };
    canvas.onmousemove = (event) => {
      const row = plot.nearest(event);
      $("hover").replaceChildren(row < 0 ? "Point at a token to read it; click to pick it." : Write.token(Data.tokens[row]));
    };
  }
  async function start() {
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack gzip (DecompressionStream)");
    await Data.read();
    controls();
    clicks();
    await load(prompt());
    await loadPair();
    app.classList.remove("waiting");
    makeGrid();
    columnsChanged();
    Object.assign(plain, view());
    await follow();
    restoring = false;
    if (state.row < 0 && state.rows.length) select(state.rows[0], false);
    $("link").href = address();
    plot.draw();
    Data.match("e", "contains"); // The first search of the long string flattens it.
    app.dataset.ready = "yes";
    for (const at of meta.prompts.keys()) await load(at);
    if (meta.prompts.length <= FEW && state.row >= 0) select(state.row, false);
    app.dataset.loaded = "yes";
  }
  start().catch((error) => { $("status").textContent = `The explorer cannot start: ${error.message}`; console.error(error); });
})();
