"use strict";
// The token explorer: its controls over `Data`, `Plot` and `Table`. Nothing is unpacked before the
// explorer comes into view or a link asks for it; the address of the page holds the view. The values of
// the controls are names, which stay the same when the report is written again.
(() => {
  const app = document.getElementById("explorer-app");
  const $ = (id) => document.getElementById(`explorer-${id}`);
  const { meta } = Data, { element, count, number } = Write;
  const models = [...meta.models.keys()], prompts = [...meta.prompts.keys()], FEW = 12; // Prompts whose details all fit.
  const slugs = meta.models.map(({ slug }) => slug), ids = meta.prompts.map(({ id }) => id);
  const state = { rows: new Uint32Array(0), tier: null, row: -1, mask: null };
  const prompt = () => ids.indexOf($("prompt").value), measure = () => $("measure").value;
  const scored = (at) => models.filter((model) => Data.scored(model, at));
  const words = (at) => `“${meta.prompts[at].text}”`;
  const short = (at) => `“${meta.prompts[at].short}”`;
  // The two axes: [model, prompt], and [model, prompt] or null.
  function pair() {
    const a = slugs.indexOf($("a").value), [kind, name] = halves($("b").value);
    return [[a, prompt()], kind === "model" ? [slugs.indexOf(name), prompt()] : kind === "prompt" ? [a, ids.indexOf(name)] : null];
  }
  function halves(value) {
    const at = value.indexOf(" ");
    return at < 0 ? [value, ""] : [value.slice(0, at), value.slice(at + 1)];
  }
  let drawing = 0; // Of the rows of an area, once a frame.
  const plot = Plot($("plot"), { pair, measure, name: axis, mask: () => state.mask, rows: () => state.rows,
    labelled, tier: () => state.tier, row: () => state.row, pick: select, hover, area: () => { cancelAnimationFrame(drawing); drawing = requestAnimationFrame(update); } });
  const table = Table($("grid"), { columns, rows: () => state.rows, row: () => state.row, sorted, sort,
    pick: select, hover: (row) => { plot.hover(row); hover(row); } });

  // --- Columns ----------------------------------------------------------------------------
  function axis([model, asked]) {
    return asked === prompt() ? meta.models[model].name : `${meta.models[model].name} on ${short(asked)}`;
  }
  function columns() {
    const at = prompt(), [one, other] = pair(), own = scored(at), sides = other ? [one, other] : [];
    const rest = own.filter((model) => ![one, other].some((side) => side?.[0] === model && side[1] === at));
    const place = ([model, asked], letter = "") => ({
      key: asked === at ? `model ${slugs[model]}` : "other", name: `${sideName([model, asked])}, ${measure()}`,
      head: () => [element("b", letter), Write.model(meta.models[model]), asked === at ? "" : element("small", short(asked))], wide: true,
      value: (row) => (measure() === "percentile" ? hundredths(100 * percentile(row, model, asked)) : Data.value(row, model, asked, measure())),
      cell: (row) => Write.bar(percentile(row, model, asked), shown(row, model, asked)) });
    const together = (key) => ({ key, name: key, head: () => element("span", key),
      value: (row) => hundredths(100 * Data.together(at)[key][row]),
      cell: (row) => element("span", number(Data.together(at)[key][row], "percentile")) });
    const difference = { key: "difference", name: `difference of percentiles, ${sides.map(sideName).join(" minus ")}`,
      head: () => element("span", "A − B"), value: (row) => hundredths(Data.difference(...sides)[row]),
      cell: (row) => element("span", number(Data.difference(...sides)[row], "difference")) };
    return [place(one, other ? "A " : ""), ...(other ? [place(other, "B "), difference] : []),
      ...(own.length > 1 ? [together("mean"), together("spread")] : []), ...rest.map((model) => place([model, at]))];
  }
  // The rows whose names may stand in the plot, in lists of which six are written: the first of a search
  // or an area; else the words that A and B place furthest apart, in both directions: no beginnings of words:
  // they are not in the list of words, and have few spellings.
  function labelled() {
    const [one, other] = pair(), word = /^[ _▁]\p{L}{4,}$/u;
    if (state.tier || plot.inside() || !other) return [state.rows.subarray(0, 6), state.rows.subarray(6, 14)];
    const order = Data.orderApart(one, other, false);
    return [order, order.slice().reverse()].map((list) => {
      const found = [];
      for (let i = 0; i < list.length && found.length < 60; i++) if (state.mask[list[i]] && word.test(Data.tokens[list[i]]) && (Data.words.size ? Data.words.has(list[i]) : Data.spellings(list[i]) > 2)) found.push(list[i]);
      return found;
    });
  }
  const hundredths = (x) => +x.toFixed(4);
  const percentile = (row, model, asked) => Data.value(row, model, asked, "percentile");
  const shown = (row, model, asked, kind = measure()) =>
    number(Data.value(row, model, asked, kind), kind, Data.column(model, asked)?.decimals);
  const sideName = ([model, asked]) => `${slugs[model]} under ${ids[asked]}`;
  function sorted() {
    const key = $("sort").value, up = $("rising").checked;
    return [key, measure() === "rank" && /^(model|other)/.test(key) ? !up : up]; // A rank falls as its reward rises.
  }
  function sort(key) {
    $("rising").checked = $("sort").value === key && !$("rising").checked;
    $("sort").value = key;
    update();
  }
  // After another question, model, or number to show.
  function columnsChanged() {
    const names = { difference: "A − B", mean: "mean of the models", spread: "spread of the models", other: "B" };
    const keys = columns().map(({ key }) => key);
    keep("sort", [["best match, then highest", ""], ...(pair()[1] ? [["largest difference of A and B", "apart"]] : []),
      ...keys.map((key) => [names[key] ?? meta.models[slugs.indexOf(halves(key)[1])].name, key])]);
    $("plot").ariaLabel = `${pair()[1] ? "Scatter plot of the tokens: " : "Histogram of the tokens: "}${pair().filter(Boolean).map(axis).join(" against ")}. `
      + "The arrow keys move over it, Enter picks a word, the arrow keys with Shift select an area, Escape clears it.";
    plot.forget();
    update();
    if (state.row >= 0) select(state.row, false);
    else hover(-1);
  }

  // --- Which rows, in which order ---------------------------------------------------------
  const sets = () => meta.filters.map(({ label }, at) => [label, `set-${at}`]);
  const filtered = () => [...sets().map(([, id]) => $(id).value), $("words").checked, $("specials").checked,
    $("scope").value !== "all"].filter(Boolean).length;
  function admitted() {
    const [scope, slug] = halves($("scope").value), plainWords = $("words").checked, specials = $("specials").checked;
    const special = new Uint8Array(meta.rows), word = /^[ _▁]?[\p{L}\p{M}'’-]+$/u;
    for (const { rows, flags } of Data.vocabularies) rows.forEach((row, i) => { special[row] |= flags[i] & 8; });
    const inside = sets().map(([, id], at) => [$(id).value, at]).filter(([chosen]) => chosen)
      .map(([chosen, at]) => Data.members(at, meta.filters[at].values.indexOf(chosen)));
    const own = scope === "model" && Data.vocabularies[meta.models[slugs.indexOf(slug)].vocabulary].place;
    return Uint8Array.from(Data.held, (held, row) =>
      (scope === "shared" ? held === models.length : !own || own[row] >= 0) && inside.every((set) => set[row])
      && !(specials && special[row]) && (!plainWords || word.test(Data.tokens[row])) ? 1 : 0);
  }
  // How good a match each shown row is, 0 for none; and what hides the other matches.
  function leveled() {
    const { tier, mask } = state, area = plot.inside(), levels = new Uint8Array(meta.rows), most = $("sort").value ? 1 : 4;
    const hidden = { filters: 0, area: 0, exact: false };
    for (let row = 0; row < meta.rows; row++) {
      const found = tier ? tier[row] : 1;
      if (!found) continue;
      hidden.exact ||= found > 2;
      if (!mask[row]) hidden.filters++;
      else if (area && !area[row]) hidden.area++;
      else levels[row] = Math.min(found, most);
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
    const key = $("sort").value, [one, other] = pair(), [kind, slug] = halves(key);
    if (key === "apart" || key === "difference") return Data.orderApart(one, other, key === "apart");
    if (key === "other") return Data.order(...other);
    if (kind === "model") return Data.order(slugs.indexOf(slug), prompt());
    return scored(prompt()).length > 1 ? Data.order(key || "mean", prompt()) : Data.order(...one);
  }
  function update() {
    const query = $("query").value, needed = [...scored(prompt()).map((model) => [model, prompt()]), ...pair().filter(Boolean)];
    if (!needed.every((side) => Data.column(...side))) return; // What reads them updates the rows afterwards.
    state.mask ??= admitted();
    try { state.tier = query ? Data.match(query, $("how").value) : null; } catch (error) {
      $("status").textContent = `Not a regular expression: ${error.message}`;
      return;
    }
    const { levels, hidden } = leveled();
    state.rows = arranged(levels, ordered(), $("rising").checked);
    report(query, hidden);
    table.fill();
    plot.drawSoon();
    remember();
  }
  // How many rows there are; where there are none, what hides them.
  function report(query, { filters, area, exact }) {
    const found = state.rows.length, all = found + filters + area, active = filtered();
    const parts = [], asked = `“${query.trim() || query}”`, total = `${count(found)} of ${count(meta.rows)} tokens${query ? ` match ${asked}` : ""}. `;
    const lone = query && !exact && $("how").value !== "regex";
    if (lone) parts.push(`${asked} ${all ? "is part of tokens, but no token by itself" : "is no token of these models, nor part of one"}: `, element("code", "assay score"), " rates any text. ");
    else if (!all) parts.push(`No token of these models matches ${asked}. `);
    if (lone && !all) parts.push(...suggestions(query, (word) => { $("query").value = word; update(); }));
    if (filters && (query || !found)) parts.push(`The filters hide ${query ? `${count(filters)} that match` : "all"}. `);
    if (area && !found) parts.push("None is in the selected area. ");
    if (active) parts.push(button("Clear filters", clearFilters), " ");
    if (plot.inside()) parts.push(button("Clear the selected area", () => plot.clear()), " ");
    if (query && !found) parts.push(button("Clear the search", () => { $("query").value = ""; update(); $("query").focus(); }));
    $("count").textContent = active ? ` (${active})` : "";
    $("status").replaceChildren(total, ...(found ? parts : []));
    $("none").replaceChildren(...(found ? [] : parts));
    $("grid").firstChild.hidden = !found;
  }
  function button(text, act) {
    const node = element("button", text, "link");
    node.onclick = act;
    return node;
  }
  function suggestions(text, act) {
    const words = Data.near(text);
    return words.length ? ["Did you mean ", ...words.flatMap((word) => [button(word, () => act(word)), " "]), "? "] : [];
  }
  function clearFilters() {
    for (const [, id] of sets()) $(id).value = "";
    $("words").checked = $("specials").checked = false;
    $("scope").value = "all";
    filtersChanged();
  }
  function filtersChanged() { state.mask = null; update(); }
  function save() {
    const list = columns(), rows = Array.from(state.rows, (row) => [Data.tokens[row], ...list.map(({ value }) => value(row))]);
    Write.download(`tokens_${ids[prompt()]}.csv`, Write.csv([["token", ...list.map(({ name }) => name)], ...rows]));
  }

  // --- One token --------------------------------------------------------------------------
  const HINT = "Point at a word to read it; drag to list an area.";
  function hover(row) {
    const sides = pair().filter(Boolean), at = row >= 0 ? row : state.row;
    const kinds = sides.length > 1 ? [measure()] : ["percentile", "reward"];
    const side = (kind) => ([model, asked], i) =>
      `${sides.length > 1 ? `${"AB"[i]} ` : ""}${shown(at, model, asked, kind)}${kind === "percentile" ? " %" : ""}`;
    const said = kinds.map((kind) => `${kind} ${sides.map(side(kind)).join(", ")}`).join(", ");
    $("hover").replaceChildren(...(at < 0 ? [HINT] : [Write.token(Data.tokens[at]), ` ${said}`]));
  }
  function named(row) {
    const twin = Data.tokens.indexOf(Data.tokens[row]) !== row || Data.tokens.indexOf(Data.tokens[row], row + 1) >= 0;
    return `token=${encodeURIComponent(Data.tokens[row])}${twin ? `&row=${row}` : ""}`;
  }
  async function select(row, kept = true) {
    state.row = row;
    table.mark();
    plot.draw();
    hover(row);
    if (kept) remember();
    const every = detailed();
    for (const at of every) await load(at);
    if (state.row !== row) return;
    const link = element("a", "link to this token");
    link.href = `#${named(row)}`;
    const known = Data.vocabularies.map(({ place, ids }, at) => place[row] < 0 ? null
      : `${meta.models.filter((m) => m.vocabulary === at).map((m) => m.name).join(", ")}: id ${ids[place[row]]}`);
    const about = element("p", [known.filter(Boolean).join(" · ") || "–", " · ", link], "how");
    $("detail").hidden = false;
    $("detail").replaceChildren(element("h3", Write.token(Data.tokens[row], 200)), element("div", details(row, every), "scroll"), about);
  }
  const detailed = () => (prompts.length <= FEW ? prompts : [...new Set([prompt(), ...pair().filter(Boolean).map(([, asked]) => asked)])]);
  function details(row, every) {
    const head = element("tr", [element("th", "model"), ...every.map((at) => element("th", words(at), "asked"))]);
    const body = models.map((model) => {
      const first = element("th", [Write.model(meta.models[model]), element("small", ` of ${count(meta.models[model].of)}`)]);
      first.scope = "row";
      return element("tr", [first, ...every.map((asked) => element("td", detail(row, model, asked)))]);
    });
    return element("table", [element("thead", head), element("tbody", body)]);
  }
  function detail(row, model, asked) {
    const share = percentile(row, model, asked);
    if (share !== share) return element("span", Data.column(model, asked) ? "no such token" : "–", "how");
    const more = ["rank", "reward"].map((kind) => `${kind} ${shown(row, model, asked, kind)}`);
    return [Write.bar(share, `${Write.form.percentile(share)} %`), element("small", more.join(", "))];
  }

  // --- The view in the address ------------------------------------------------------------
  const texts = [["q", "query"], ["as", "how"], ["prompt", "prompt"], ["among", "scope"], ["show", "measure"],
    ["a", "a"], ["b", "b"], ["sort", "sort"], ...sets()];
  const ticks = [["words", "words"], ["plain", "specials"], ["rising", "rising"]];
  let plain = null; // The view without a choice.
  const view = () => Object.fromEntries([...texts.map(([key, id]) => [key, $(id).value]),
    ...ticks.map(([key, id]) => [key, $(id).checked ? "1" : ""])]);
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
  function choose(id, value) {
    const options = $(id).options; // This report may not have the choice of a link.
    if (!options || [...options].some((option) => option.value === value)) $(id).value = value;
  }
  async function set(wanted) {
    const full = { ...plain, ...wanted };
    choose("prompt", full.prompt);
    await pairChanged(full);
    for (const [key, id] of texts) if (!["prompt", "a", "b", "sort"].includes(key)) choose(id, full[key]);
    for (const [key, id] of ticks) $(id).checked = full[key] === "1";
    state.mask = null;
    columnsChanged(); // Makes the orders of the rows that can be chosen.
    choose("sort", full.sort);
    update();
  }
  const linked = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const isView = () => ["token", ...[...texts, ...ticks].map(([key]) => key)].some((key) => key in linked());
  async function follow() {
    const wanted = linked();
    document.getElementById("explorer").scrollIntoView();
    if ("token" in wanted) wanted.q ??= wanted.token;
    restoring = true;
    if (!("prompt" in wanted) && switched()) wanted.prompt = switched();
    await set(wanted);
    const row = !("token" in wanted) ? -1 : Data.tokens[+wanted.row] === wanted.token ? +wanted.row : Data.tokens.indexOf(wanted.token);
    if ("token" in wanted && row < 0) $("status").textContent = "No token of these models is the one linked to.";
    restoring = false;
    if (row >= 0) await select(row, false);
    $("query").focus({ preventScroll: true });
    $("link").href = address();
  }

  // --- The question, and the two axes ------------------------------------------------------
  const questions = document.getElementById("questions"); // The page's switch; it offers some of the prompts.
  const switched = () => questions?.querySelector("input:checked")?.value;
  function ask(id) {
    const radio = [...(questions?.querySelectorAll("input") ?? [])].find((one) => one.value === id);
    if (!radio || radio.checked) return asked(id);
    radio.checked = true;
    radio.dispatchEvent(new Event("change", { bubbles: true })); // Comes back through `asked`.
  }
  async function asked(id) {
    if (!ids.includes(id)) return; // Of a large run the explorer holds the first questions alone.
    choose("prompt", id);
    await pairChanged();
    columnsChanged();
  }
  // Offers the models and prompts that can be axes, chooses those of `wanted`, and reads their columns.
  async function pairChanged(wanted = {}) {
    const at = prompt(), own = scored(at);
    keep("a", own.map((model) => [meta.models[model].name, slugs[model]]));
    if (wanted.a) choose("a", wanted.a);
    const a = slugs.indexOf($("a").value), others = own.filter((model) => model !== a);
    const asked = prompts.filter((other) => other !== at && Data.scored(a, other));
    keep("b", [["another model, same question", others.map((model) => [meta.models[model].name, `model ${slugs[model]}`])],
      ["the same model, another question", asked.map((other) => [short(other), `prompt ${ids[other]}`])],
      ["nothing: a histogram of A", "none"]]);
    if (wanted.b) choose("b", wanted.b);
    $("a").closest(".controls").hidden = $("a").options.length + $("b").options.length < 3;
    await load(at);
    for (const side of pair()) if (side) await Data.load(...side);
  }
  // Gives a list of choices to a control, and keeps what was chosen where it is still offered.
  function keep(id, list) {
    const was = $(id).value, option = ([text, value]) => new Option(text, value);
    $(id).replaceChildren(...list.filter(([, value]) => value?.length !== 0 || value === "").map(([text, value]) => {
      if (!Array.isArray(value)) return option([text, value]);
      const group = element("optgroup", value.map(option));
      group.label = text;
      return group;
    }));
    choose(id, was);
    if ($(id).selectedIndex < 0) $(id).selectedIndex = 0;
  }

  // --- Start ------------------------------------------------------------------------------
  async function load(at) {
    for (const model of scored(at)) {
      if (Data.column(model, at)) continue;
      await Data.load(model, at);
      await new Promise((resolve) => setTimeout(resolve)); // One column at a time: the page stays alive.
    }
  }
  function controls() {
    keep("prompt", prompts.map((at) => [short(at), ids[at]]));
    $("prompt").parentNode.hidden = prompts.length < 2 && !questions;
    const one = (at) => meta.models.filter((m) => m.vocabulary === at);
    const several = meta.vocabularies.length < 2 ? [] : meta.vocabularies.map((v, at) =>
      [`the ${count(v.size)} of ${one(at).map((m) => m.name).join(", ")}`, `model ${one(at)[0].slug}`]);
    const shared = several.length && Data.held.includes(models.length) ? [["tokens of every model", "shared"]] : [];
    keep("scope", [...shared, ["all tokens", "all"], ...several]);
    $("scope").parentNode.hidden = !several.length;
    filterControls();
    $("query").oninput = () => { $("sort").value = ""; $("rising").checked = false; update(); };
    for (const id of ["how", "sort", "rising"]) $(id).onchange = update;
    for (const id of ["scope", "words", "specials"]) $(id).onchange = filtersChanged;
    $("prompt").onchange = () => ask($("prompt").value);
    for (const id of ["a", "b"]) $(id).onchange = async () => { await pairChanged(); columnsChanged(); };
    $("measure").onchange = columnsChanged;
    $("csv").onclick = save;
    questions?.addEventListener("change", () => asked(switched()));
  }
  function filterControls() {
    $("sets").replaceChildren(...meta.filters.map(({ label, values }, at) => {
      const sizes = new Uint32Array(values.length), list = element("select");
      Data.filters[at].of.forEach((value) => sizes[value]++);
      list.id = `explorer-set-${at}`;
      list.append(new Option("any", ""), ...values.map((value, i) => new Option(`${value} (${count(sizes[i])})`, value)));
      list.onchange = filtersChanged;
      return element("label", [`${label} `, list]);
    }));
  }
  async function start() {
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack gzip (DecompressionStream)");
    if (document.readyState === "loading") await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
    await Data.read();
    controls();
    choose("prompt", switched() ?? "");
    await pairChanged();
    columnsChanged();
    plain = view();
    app.classList.remove("waiting");
    app.inert = false;
    if (isView()) await follow();
    restoring = false;
    $("link").href = address();
    app.dataset.ready = "yes";
  }
  const word = document.getElementById("word"); // The first screen's box, and what it found.
  if (word) {
    word.onsubmit = (event) => {
      event.preventDefault();
      look(word.querySelector("input").value);
    };
  }
  // A bar for each model and question, below the box.
  async function look(text) {
    await begin();
    const row = Data.rowOf(text), found = document.getElementById("word-found"), again = (other) => {
      word.querySelector("input").value = other;
      look(other);
    };
    found.hidden = false;
    if (row < 0) {
      found.replaceChildren(`No token of these models is “${text.trim()}” by itself. `, ...suggestions(text, again));
      return;
    }
    const every = detailed(), link = element("a", "Open it in the explorer");
    for (const at of every) await load(at);
    link.href = `#${named(row)}`;
    found.replaceChildren(element("h3", Write.token(Data.tokens[row], 200)), element("div", details(row, every), "scroll"), link);
  }
  let started = null;
  const begin = () => (started ??= start().catch((error) => {
    $("status").textContent = `The explorer cannot start: ${error.message}`;
    console.error(error);
  }));
  const seen = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) { seen.disconnect(); begin(); } }, { rootMargin: "300px" });
  seen.observe(app);
  window.addEventListener("hashchange", () => { if (isView()) (plain ? follow() : begin()); });
  if (isView()) begin();
})();
