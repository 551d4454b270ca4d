"use strict";
// The page of `assay serve`. Texts of models and of the reader reach the page as text nodes only.
const Data = { meta: { display: null }, tokens: [] }; // What the explorer's scripts read.
(async () => {
  const TOKEN = new URLSearchParams(location.search).get("token") ?? "", END = 20, LATER_MS = 400;
  const $ = (id) => document.getElementById(id);
  const COLOURS = ["#1d7fd8", "#d9822b"];
  let about = null, panels = [], table = null, rows = [], query = "", sort = "", rising = false, drawn = 0, timer = 0;

  // --- Talking to the server ----------------------------------------------------------------
  const headers = { "x-assay-token": TOKEN };
  async function failure(response) {
    const text = await response.text();
    try { return JSON.parse(text).error ?? text; } catch { return text || response.statusText; }
  }
  function lost(error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the connection ended; is the command still running?");
  }
  async function get(path) {
    const response = await fetch(path, { headers }).catch(lost);
    if (!response.ok) throw new Error(await failure(response));
    return response.json();
  }
  // Sends a request; calls `take(event, data)` for each event until the computation ends.
  async function compute(path, body, signal, take) {
    const sent = { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body), signal };
    const response = await fetch(path, sent).catch(lost);
    if (!response.ok) throw new Error(await failure(response));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", ended = false; !ended; ) {
      const { value, done } = await reader.read().catch(lost);
      if (done) lost({});
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop();
      for (const piece of pieces) {
        const [, event, data] = piece.match(/^event: (\w+)\ndata: (.*)$/);
        if (event === "error") throw new Error(JSON.parse(data).line);
        if (event === "end") ended = true; else take(event, JSON.parse(data));
      }
    }
  }
  const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer;
  const waiting = (before) => (before ? `waiting: ${before} before this one` : "next");
  const said = (error) => (error.name === "AbortError" ? "cancelled" : error.message);
  function script(name) {
    return new Promise((resolve, reject) => {
      const node = document.createElement("script");
      Object.assign(node, { src: `/static/${name}`, onload: resolve, onerror: () => reject(new Error(`${name} is missing`)) });
      document.head.append(node);
    });
  }
  function line(id, text, failed = false) {
    $(id).textContent = text;
    $(id).classList.toggle("failed", failed);
  }
  // Shows or hides a button; if it had the focus, the one before it has it then.
  function hide(id, hidden) {
    if (hidden && document.activeElement === $(id)) $(id).previousElementSibling.focus();
    $(id).hidden = hidden;
  }

  // --- One ranking --------------------------------------------------------------------------
  const tokensOf = []; // Of each model, a promise, once they are asked for.
  async function panelOf(at, model, system, after, question) {
    const tokens = await (tokensOf[model] ??= get(`/api/tokens/${model}`).catch((error) => { delete tokensOf[model]; throw error; }));
    const size = tokens.length, node = Write.element("div", "", "panel");
    return { at, model, system, after, question, node, tokens, rewards: new Float32Array(size).fill(NaN), sorted: new Float32Array(0),
      scored: 0, began: 0, before: 0, queue: 0, rate: "", state: "", failed: false, answer: 0, kept: "", stale: false, control: new AbortController() };
  }
  const body = ({ model, system, after, question }) => ({ model, system, after, question });
  async function rank(panel) {
    try {
      await compute("/api/rank", body(panel), panel.control.signal, (event, data) => {
        if (event === "waiting") panel.queue = data.before;
        if (event === "rows") take(panel, data);
        if (event === "done") [panel.answer, panel.state] = [data.answer, ""];
        later();
      });
    } catch (error) { [panel.state, panel.failed] = [said(error), error.name !== "AbortError"]; }
    [panel.control, panel.stale] = [null, true];
    draw();
  }
  function take(panel, data) {
    const at = new Uint32Array(bytes(data.rows)), rewards = new Float32Array(bytes(data.rewards));
    const before = panel.scored;
    at.forEach((row, i) => { if (panel.rewards[row] !== panel.rewards[row]) panel.scored++; panel.rewards[row] = rewards[i]; });
    if (before < about.first && panel.scored <= about.first) return; // The rate is that of the rest.
    const now = performance.now();
    if (!panel.began) [panel.began, panel.before] = [now, panel.scored];
    const rate = (panel.scored - panel.before) / ((now - panel.began) / 1000), left = panel.tokens.length - panel.scored;
    panel.rate = rate > 0 ? `${Write.count(Math.round(rate))} a second · ${time(left / rate)} left` : "";
  }
  const time = (s) => (s >= 90 ? `${Math.round(s / 60)} min` : `${Math.ceil(s)} s`);
  function sortRewards(panel) {
    panel.sorted = panel.rewards.filter((x) => x === x).sort();
  }
  // The number of sorted values below x, or up to x.
  function below(sorted, x, equal = false) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < x || (equal && sorted[middle] === x)) low = middle + 1; else high = middle;
    }
    return low;
  }
  function percentile(panel, x) {
    if (x !== x || !panel.sorted.length) return NaN;
    return (below(panel.sorted, x) + below(panel.sorted, x, true)) / (2 * panel.sorted.length);
  }
  const rankOf = (panel, x) => (x === x ? 1 + panel.sorted.length - below(panel.sorted, x, true) : NaN);

  // --- Drawing ------------------------------------------------------------------------------
  function later() {
    if (timer) return;
    const wait = Math.max(0, drawn + LATER_MS - performance.now());
    timer = setTimeout(draw, panels.some((panel) => panel.scored && !panel.sorted.length) ? 0 : wait);
  }
  function draw() {
    clearTimeout(timer);
    timer = 0;
    for (const panel of panels) if (panel.control || panel.stale) { // Others keep their button and its focus.
      panel.stale = false;
      sortRewards(panel);
      drawPanel(panel);
    }
    const running = panels.some((panel) => panel.control);
    hide("cancel", !running);
    const some = panels.some((panel) => panel.scored);
    $("ranking").hidden = !panels.length;
    for (const id of ["finder", "grid"]) $(id).hidden = !some;
    if (some && (!running || ($("grid").scrollTop === 0 && !$("grid").matches(":active")))) fill(); // A click is over before.
    drawReplies();
    drawn = performance.now();
  }
  const modelOf = (panel) => ({ name: about.models[panel.model].slug, slug: about.models[panel.model].source, colour: COLOURS[panel.at] });
  const title = (panel) => [...(panels.length > 1 ? [`${"AB"[panel.at]}: `] : []), Write.model(modelOf(panel))];
  function drawPanel(panel) {
    const { element, count } = Write, { sorted, rewards } = panel, total = panel.tokens.length;
    const progress = element("progress"), parts = [count(panel.scored), " of ", count(total), " tokens"];
    Object.assign(progress, { max: total, value: panel.scored, hidden: !panel.control, ariaLabel: "tokens ranked" });
    if (panel.control && panel.rate) parts.push(` · ${panel.rate}`);
    if (panel.control && panel.queue) parts.push(` · ${waiting(panel.queue)}`);
    const state = element("span", panel.state || parts, panel.failed ? "failed" : "how");
    if (panel.failed) state.setAttribute("role", "alert");
    const keep = element("button", panel.kept ? "kept" : "Keep");
    Object.assign(keep, { type: "button", disabled: !panel.answer || Boolean(panel.kept), onclick: () => store(panel),
      title: `writes the ranking into ${about.run}`, hidden: !about.run });
    const list = (name, order) => [element("h3", name === "top" ? "highest" : "lowest", name), element("ul", order.map((row) => {
      const reward = element("small", ` ${Write.form.reward(rewards[row], 2)}`);
      return element("li", [Write.token(panel.tokens[row], 24), reward]);
    }), `chips ${name}`)];
    const system = panel.system.trim() ? [element("p", `System: ${panel.system}`, "asked how")] : [];
    const after = panel.after ? [element("p", `After: ${panel.after}`, "asked how")] : [];
    const ends = sorted.length ? [...list("top", end(panel, 1)), ...list("bottom", end(panel, -1))] : [];
    panel.node.replaceChildren(element("h2", title(panel)), ...system, element("p", `“${panel.question}”`, "asked"), ...after, progress,
      element("p", [state, keep], "state"), ...ends, ...(panel.kept ? [element("p", panel.kept, "how")] : []));
  }
  // The rows of one end, best or worst first.
  function end(panel, sign) {
    const { sorted, rewards } = panel, n = sorted.length, size = Math.min(END, n);
    const limit = sign * (sign > 0 ? sorted[n - size] : sorted[size - 1]), list = [];
    for (let row = 0; row < rewards.length; row++) if (sign * rewards[row] >= limit) list.push(row);
    return list.sort((a, b) => sign * (rewards[b] - rewards[a]) || a - b).slice(0, size);
  }
  function columns() {
    const { element, number, bar } = Write, two = panels.length > 1, list = [];
    for (const panel of panels) {
      const head = (text) => () => (two ? [element("span", "AB"[panel.at], "how"), element("br"), text] : text);
      const value = (row) => panel.rewards[place(panel, row)], share = (row) => percentile(panel, value(row));
      list.push({ key: `percentile${panel.at}`, head: head("percentile"), value: share, wide: true,
        cell: (row) => bar(share(row), share(row) === share(row) ? `${number(share(row), "percentile")} %` : "–") });
      list.push({ key: `reward${panel.at}`, head: head("reward"), value, cell: (row) => number(value(row), "reward") });
      if (!two) list.push({ key: "rank0", head: head("rank"), value: (row) => -rankOf(panel, value(row)), cell: (row) => number(rankOf(panel, value(row)), "rank") });
    }
    if (two) {
      const gap = (row) => 100 * (list[0].value(row) - list[2].value(row));
      list.push({ key: "gap", head: () => "A − B, points", value: gap, cell: (row) => number(gap(row), "difference") });
    }
    return list;
  }
  // The place of a row of the first panel in another one: that of the same token, or of the same text.
  function place(panel, row) {
    if (panel.at === 0 || !panel.places) return row;
    return panel.places[row];
  }
  function matchTokens() {
    const [a, b] = panels;
    if (!b || about.models[a.model].tokenizer === about.models[b.model].tokenizer) return;
    const at = new Map(b.tokens.map((token, row) => [token, row]));
    b.places = a.tokens.map((token) => at.get(token) ?? -1); // `rewards[-1]` is undefined: not there
  }
  let listed = [], picked = -1;
  // The columns of new panels, and the orders that they give.
  function arrange() {
    listed = columns();
    [sort, rising, picked] = [listed[0].key, false, -1];
    const names = listed.map(({ key, head }) => [key, [head()].flat().map((x) => x.textContent ?? x).filter(Boolean).join(" ")]);
    const options = names.flatMap(([key, name]) => [new Option(`${name}, highest first`, `${key} `), new Option(`${name}, lowest first`, `${key} r`)]);
    $("order").replaceChildren(...options);
  }
  function fill() {
    const by = listed.find(({ key }) => key === sort), tokens = panels[0].tokens;
    const keys = new Float64Array(tokens.length), kept = [];
    for (let row = 0; row < tokens.length; row++) {
      if (query && !tokens[row].toLowerCase().includes(query)) continue;
      keys[row] = by.value(row);
      if (keys[row] === keys[row]) kept.push(row);
    }
    rows = kept.sort((a, b) => (rising ? keys[a] - keys[b] : keys[b] - keys[a]) || a - b);
    $("found").textContent = query ? `${Write.count(rows.length)} of ${Write.count(panels[0].scored)} ranked tokens` : "";
    $("order").value = `${sort} ${rising ? "r" : ""}`;
    table.fill();
  }

  // --- Asking, keeping ------------------------------------------------------------------------
  let asks = 0;
  async function ask(event) {
    event?.preventDefault();
    const question = $("question").value, system = $("system").value, after = $("after").value, beside = $("beside").value, model = +$("model").value;
    const asked = [[model, question]];
    if (beside === "question") asked.push([model, $("other").value]);
    if (beside === "model") asked.push([1 - model, question]);
    if (asked.some(([, text]) => !text.trim())) return line("line", "Type a question first.", true);
    stop();
    line("line", "");
    const turn = ++asks;
    try {
      const made = await Promise.all(asked.map(([of, text], at) => panelOf(at, of, system, after, text)));
      if (turn !== asks) return; // Enter was pressed again while the tokens were loading.
      panels = made;
    } catch (error) { return line("line", said(error), true); }
    Data.tokens = panels[0].tokens;
    matchTokens();
    arrange();
    $("panels").replaceChildren(...panels.map(({ node }) => node));
    sides();
    draw();
    panels.forEach(rank);
    reply();
  }
  function stop() { for (const panel of panels) panel.control?.abort(); }
  async function store(panel) {
    const answer = panel.answer;
    Object.assign(panel, { answer: 0, state: "keeping: checking a sample by the plain pass", failed: false, stale: true });
    draw();
    try {
      await compute("/api/keep", { answer }, undefined, (event, data) => {
        if (event === "waiting" && data.before) panel.state = waiting(data.before);
        if (event === "kept") panel.kept = `${data.line}, in ${about.run}`;
        panel.stale = true;
        later();
      });
      panel.state = "";
    } catch (error) { [panel.state, panel.failed, panel.answer] = [said(error), true, answer]; }
    panel.stale = true;
    draw();
  }

  // --- Replies --------------------------------------------------------------------------------

  let replying = null, replyTimer = 0, texts = [], results = [];
  let reading = null;
  const askedNow = () => (panels.length ? panels : [{ at: 0, model: +$("model").value, system: $("system").value, after: $("after").value, question: $("question").value }]);
  const replyLines = () => $("replies").value.split("\n").filter((text) => text.trim()).slice(0, 32);
  async function reply() {
    clearTimeout(replyTimer);
    replying?.abort();
    reading?.abort();
    $("reading").replaceChildren();
    const given = replyLines(), control = (replying = new AbortController()), asked = askedNow();
    if (!given.length) { [texts, results] = [[], []]; line("replies-line", ""); return drawReplies(); }
    if (!asked[0].question.trim()) return line("replies-line", "Type a question first.", true);
    const found = [];
    try {
      await Promise.all(asked.map((panel, at) => compute("/api/reply", { ...body(panel), replies: given }, control.signal, (event, data) => {
        if (event === "replies") found[at] = data;
        else line("replies-line", "scoring …");
      })));
      [texts, results] = [given, found];
      line("replies-line", "");
    } catch (error) { if (error.name !== "AbortError") line("replies-line", said(error), true); }
    drawReplies();
  }
  function drawReplies() {
    const { element, number, bar } = Write, heads = ["reply"], cells = texts.map((text) => [Write.token(text, 300)]);
    results.forEach(({ columns: names, numbers }, at) => {
      const of = results.length > 1 ? `${"AB"[at]}: ` : "", panel = panels[at];
      heads.push(`${of}percentile`, ...names.map((name) => of + name));
      numbers.forEach((values, i) => {
        const share = panel ? percentile(panel, values[0]) : NaN;
        cells[i].push(bar(share, share === share ? `${number(share, "percentile")} %` : "–"), ...values.map((x) => number(x, "reward")));
      });
    });
    $("read").hidden = !texts.length;
    const row = (name, list) => element("tr", list.map((cell, i) => element(i && name === "td" ? "td" : "th", cell)));
    $("replies-table").replaceChildren(...(texts.length ? [element("table", [element("thead", row("th", heads)), element("tbody", cells.map((list) => row("td", list)))])] : []));
  }

  // Each reply, its tokens coloured by the reward that it would have if it ended there.
  async function read() {
    reading?.abort();
    const control = (reading = new AbortController()), asked = askedNow(), every = texts;
    $("reading").replaceChildren();
    try {
      for (const panel of asked) for (const text of every) {
        await compute("/api/running", { ...body(panel), reply: text }, control.signal, (event, data) => {
          if (event === "running") $("reading").append(...coloured(data, asked.length > 1 ? `${"AB"[panel.at]}: ` : ""));
        });
      }
    } catch (error) { if (error.name !== "AbortError") line("replies-line", said(error), true); }
  }
  function coloured({ tokens, rewards }, of) {
    const { element, number } = Write, low = Math.min(...rewards), high = Math.max(...rewards);
    const words = tokens.map((text, i) => {
      const node = element("span", text);
      node.style.setProperty("--at", high > low ? (rewards[i] - low) / (high - low) : 0);
      node.title = number(rewards[i], "reward");
      return node;
    });
    const at = (x) => `“${tokens.slice(0, rewards.indexOf(x) + 1).join("").slice(-24)}”`;
    const ends = `${of}reward if the reply ended there: lowest, ${number(low, "reward")}, behind ${at(low)}; highest, ${number(high, "reward")}, behind ${at(high)} (deepest colour)`;
    return [element("p", words, "read"), element("p", ends, "how")];
  }

  // --- Searching --------------------------------------------------------------------------------
  let searching = null;
  function sides() {
    const names = panels.map((panel, at) => new Option(panels.length > 1 ? `${"AB"[at]}: ${about.models[panel.model].slug}, “${panel.question.slice(0, 40)}”` : "", at));
    $("side").replaceChildren(...names);
    $("side-label").hidden = panels.length < 2;
  }
  async function search(event) {
    event.preventDefault();
    const panel = panels[+$("side").value || 0];
    const asked = panel ?? { model: +$("model").value, system: $("system").value, after: $("after").value, question: $("question").value };
    if (!asked.question.trim()) return line("search-line", "Type a question first.", true);
    searching?.abort();
    const control = (searching = new AbortController()), steps = [];
    const wanted = { direction: $("direction").value, length: +$("length").value, steps: +$("steps").value };
    hide("search-cancel", false);
    drawSearch(panel, steps, wanted.steps);
    try {
      await compute("/api/search", { ...body(asked), ...wanted }, control.signal, (event, data) => {
        if (event === "waiting") line("search-line", waiting(data.before));
        if (event === "began") line("search-line", "compiling the search …");
        if (event === "step") { steps.push(data); drawSearch(panel, steps, wanted.steps); }
        if (event === "done") line("search-line", `${wanted.steps} steps done; ${wanted.direction === "max" ? "highest" : "lowest"} reward found: ${Write.form.reward(steps.at(-1).reward)}`);
      });
    } catch (error) { if (searching === control) line("search-line", said(error), error.name !== "AbortError"); }
    if (searching !== control) return;
    searching = null;
    hide("search-cancel", true);
  }
  function drawSearch(panel, steps, of) {
    const { element, number } = Write, better = steps.filter(({ reward }, i) => !i || reward !== steps[i - 1].reward).slice(-12).reverse();
    if (steps.length) line("search-line", `step ${steps.at(-1).step} of ${of}`);
    const body = better.map(({ step, reward, text }) => {
      const share = panel ? percentile(panel, Math.fround(reward)) : NaN;
      return element("tr", [step, number(reward, "reward"), share === share ? `${number(share, "percentile")} %` : "–", Write.token(text, 300)].map((cell) => element("td", cell.nodeType ? cell : String(cell))));
    });
    const heads = element("tr", ["step", "reward", "percentile", "reply"].map((name) => element("th", name)));
    $("search-table").replaceChildren(...(steps.length ? [element("table", [element("thead", heads), element("tbody", body)])] : []));
    const values = steps.map(({ reward }) => reward), low = Math.min(...values), high = Math.max(...values);
    const y = (x) => (high > low ? 110 - (100 * (x - low)) / (high - low) : 60);
    const points = steps.map(({ step, reward }) => `${((600 * step) / of).toFixed(1)},${y(reward).toFixed(1)}`);
    $("trace").toggleAttribute("hidden", steps.length < 2);
    $("trace").firstElementChild.setAttribute("points", points.join(" "));
  }

  // --- Start ------------------------------------------------------------------------------------
  function controls() {
    const beside = [["nothing", ""], ["another question", "question"]];
    if (about.models.length > 1) beside.push(["the other model", "model"]);
    $("beside").replaceChildren(...beside.map(([name, value]) => new Option(name, value)));
    $("beside").value = about.models.length > 1 ? "model" : "";
    $("model").replaceChildren(...about.models.map(({ slug }, at) => new Option(slug, at)));
    $("model-label").hidden = about.models.length < 2;
    $("beside").onchange = () => { $("other-label").hidden = $("beside").value !== "question"; };
    $("question").value = about.example;
    $("ask").onsubmit = ask;
    for (const id of ["question", "other"]) $(id).onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event); };
    $("cancel").onclick = stop;
    $("search").onsubmit = search;
    $("search-cancel").onclick = () => searching?.abort();
    $("read").onclick = read;
    $("replies").oninput = () => { clearTimeout(replyTimer); replyTimer = setTimeout(reply, LATER_MS); };
    $("find").oninput = () => { query = $("find").value.toLowerCase(); if (panels.length) fill(); };
    $("order").onchange = () => { const [key, how] = $("order").value.split(" "); [sort, rising] = [key, how === "r"]; fill(); };
    const view = {
      columns: () => listed, rows: () => rows, row: () => picked, sorted: () => [sort, rising], hover: () => {},
      pick: (row) => { picked = row; table.mark(); },
      sort: (key) => { [sort, rising] = [key, key === sort && !rising]; fill(); },
    };
    table = Table($("grid"), view);
  }
  try {
    about = await get("/api/about");
    Data.meta.display = about.display;
    await script("explorer-text.js");
    await script("explorer-table.js");
    const { element, count } = Write;
    const names = about.models.flatMap((model, at) => [at ? " · " : "", Write.model({ name: model.slug, slug: model.source, colour: COLOURS[at] }), `, ${count(model.tokens)} tokens`]);
    const run = about.run ? `. Keep writes into ${about.run}.` : ". Start the command with --run=<folder> to keep rankings.";
    $("about").replaceChildren(...names, run);
    controls();
    $("question").focus();
    $("question").select();
    document.body.dataset.ready = "yes";
  } catch (error) { line("about", error.message, true); }
})();
