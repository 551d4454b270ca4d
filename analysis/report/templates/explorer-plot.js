"use strict";
// The explorer's plot: every admitted token by its place under A and under B; without B, a histogram
// of A. A drag, or the arrow keys with Shift, selects an area. `view` says what is shown: pair() ->
// [A, B or null], name(side), measure(), mask(), rows() of the table, labelled() lists of rows, tier(), row(); it
// gets hover(row), pick(row) and area(box or null).
const Plot = (canvas, view) => {
  const SIZE = canvas.width, GAP = 12, BINS = 72, ROOM = SIZE - 2 * GAP, { meta } = Data;
  const WIDE = ROOM / BINS, pen = canvas.getContext("2d");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let box = null, start = null, cursor = null, hovered = -1; // In pixels of the canvas; start: of a drag.

  // --- Where each token stands -------------------------------------------------------------
  const shows = () => (view.measure() === "reward" || !view.pair()[1] ? "reward" : "percentile");
  function ends([model, prompt]) {
    if (shows() === "percentile") return [0, 1];
    const finite = Data.column(model, prompt).reward.filter((x) => x === x);
    return [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))];
  }
  // Pixels of each row from the low end of an axis; NaN where the model has no such token.
  function scaled([model, prompt], [low, high]) {
    const { place } = Data.vocabularies[meta.models[model].vocabulary], out = new Float32Array(meta.rows).fill(NaN);
    const values = Data.column(model, prompt)[shows()];
    for (let row = 0; row < meta.rows; row++) {
      if (place[row] >= 0) out[row] = GAP + (ROOM * (values[place[row]] - low)) / (high - low || 1);
    }
    return out;
  }
  const bin = (x) => Math.min(BINS - 1, ((x - GAP) / WIDE) | 0);
  // In a histogram the tokens of a bar lie one above the other.
  function stacked(x, mask) {
    const y = new Float32Array(meta.rows).fill(NaN), counts = new Uint32Array(BINS), seen = new Uint32Array(BINS);
    for (let row = 0; row < x.length; row++) if (mask[row] && x[row] === x[row]) counts[bin(x[row])]++;
    const most = Math.max(1, ...counts), bars = Array.from(counts, (n) => ((ROOM - 40) * n) / most);
    for (let row = 0; row < x.length; row++) {
      if (mask[row] && x[row] === x[row]) y[row] = SIZE - GAP - ((seen[bin(x[row])]++ + 0.5) * (ROOM - 40)) / most;
    }
    return { y, bars };
  }
  let points = null; // { key, mask, rows, x, y, bars, ranges, image }; image is the plot without what is chosen.
  function place() {
    const [one, other] = view.pair(), mask = view.mask(), key = `${one} ${other} ${shows()} ${dark.matches}`;
    if (!mask || [one, other].some((side) => side && !Data.column(...side))) return null;
    if (points?.key === key && points.mask === mask) return points;
    const ranges = [one, other].map((side) => side && ends(side)), x = scaled(one, ranges[0]);
    const { y, bars } = other ? { y: scaled(other, ranges[1]).map((v) => SIZE - v) } : stacked(x, mask);
    const rows = [];
    for (let row = 0; row < meta.rows; row++) if (mask[row] && x[row] === x[row] && y[row] === y[row]) rows.push(row);
    points = { key, mask, rows: Uint32Array.from(rows), x, y, bars, ranges, image: null };
    points.image = bars ? null : cloud(points);
    return points;
  }

  // --- Drawing ---------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(canvas).getPropertyValue(`--${name}`);
  function cloud({ rows, x, y }) {
    const counts = new Uint32Array(SIZE * (SIZE + 1)), thin = rows.length < 30000;
    for (const row of rows) {
      const pixel = (y[row] | 0) * SIZE + (x[row] | 0);
      counts[pixel]++;
      if (thin) { counts[pixel + 1]++; counts[pixel + SIZE]++; counts[pixel + SIZE + 1]++; }
    }
    const image = pen.createImageData(SIZE, SIZE), pixels = new Uint32Array(image.data.buffer);
    const ink = dark.matches ? 0xf0b77d : 0xa85f1d; // Blue, green, red.
    const alpha = Uint32Array.from({ length: 64 }, (_, n) => (n ? Math.min(255, 90 + 55 * Math.log2(n + 1)) : 0));
    for (let i = 0; i < pixels.length; i++) pixels[i] = ((alpha[Math.min(counts[i], 63)] << 24) | ink) >>> 0;
    return image;
  }
  function axes({ ranges }) {
    const [one, other] = view.pair(), write = (letter, side, range) => {
      const ends = shows() === "reward" ? ` from ${range.map((x) => Write.form.reward(x, 2)).join(" to ")}` : "";
      return `${other ? `${letter} ` : ""}${view.name(side)}: ${shows()}${ends} →`;
    };
    pen.fillStyle = colour("soft");
    pen.font = "11.5px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    pen.textAlign = "right";
    pen.fillText(write("A", one, ranges[0]), SIZE - 2, SIZE, SIZE - 4);
    if (!other) return;
    pen.save();
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "top";
    pen.fillText(write("B", other, ranges[1]), -2, 0, SIZE - 4);
    pen.restore();
  }
  const taken = []; // The boxes of the names that are written, so that none covers another.
  function name(at, row, must) {
    const text = Data.tokens[row].replace(/^[ _▁]+/, "").trim().slice(0, 24) || "␣";
    pen.font = `${must ? "600 " : ""}13px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    const wide = pen.measureText(text).width, left = at.x[row] + wide + 10 > SIZE ? at.x[row] - wide - 7 : at.x[row] + 7;
    const top = at.bars ? GAP + 20 : Math.min(Math.max(at.y[row], 9), SIZE - 24), mine = [left, top - 8, left + wide, top + 8];
    if (!must && taken.some(([a, b, c, d]) => mine[0] < c && a < mine[2] && mine[1] < d && b < mine[3])) return false;
    taken.push(mine);
    pen.lineJoin = "round";
    pen.lineWidth = 4;
    pen.strokeStyle = colour("card");
    pen.strokeText(text, left, top);
    pen.fillStyle = colour("ink");
    pen.fillText(text, left, top);
    return true;
  }
  function ring(at, row) {
    pen.lineWidth = 2;
    pen.strokeStyle = colour("ink");
    if (at.bars) {
      pen.beginPath();
      pen.moveTo(at.x[row], SIZE - GAP);
      pen.lineTo(at.x[row], GAP + 20);
      pen.stroke();
    } else pen.strokeRect(at.x[row] - 5, at.y[row] - 5, 11, 11);
  }
  function draw() {
    const at = place(), shown = (row) => row >= 0 && at.mask[row] && at.x[row] === at.x[row] && at.y[row] === at.y[row];
    if (!at) return;
    pen.clearRect(0, 0, SIZE, SIZE);
    if (at.image) pen.putImageData(at.image, 0, 0);
    pen.fillStyle = colour("bar");
    at.bars?.forEach((high, i) => pen.fillRect(GAP + i * WIDE, SIZE - GAP - high, WIDE - 1, high));
    axes(at);
    const rows = view.rows(), marked = view.tier() || box ? rows.subarray(0, 1500).filter(shown) : [];
    pen.fillStyle = colour("bottom");
    const dot = marked.length > 100 ? 2 : 4;
    for (const row of marked) {
      if (at.bars) pen.fillRect(at.x[row] - 1, SIZE - GAP - 9, 2, 9);
      else pen.fillRect(at.x[row] - dot / 2, at.y[row] - dot / 2, dot, dot);
    }
    if (box) {
      pen.fillStyle = `color-mix(in srgb, ${colour("link")} 12%, transparent)`;
      pen.fillRect(box[0], box[1], box[2] - box[0], box[3] - box[1]);
      pen.strokeStyle = colour("link");
      pen.lineWidth = 1;
      pen.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - box[0], box[3] - box[1]);
    }
    taken.length = 0;
    for (const row of new Set([hovered, view.row()])) {
      if (shown(row)) { ring(at, row); name(at, row, !taken.length); }
    }
    for (const list of at.bars ? [] : view.labelled()) {
      let left = list.length > 14 ? 6 : list.length;
      for (let i = 0; i < list.length && left; i++) if (shown(list[i]) && name(at, list[i], false)) left--;
    }
    if (cursor && document.activeElement === canvas) {
      pen.strokeStyle = colour("link");
      pen.strokeRect(cursor[0] - 8, cursor[1] - 8, 16, 16);
    }
  }
  let waiting = 0; // The rows come first; the plot follows when they are on the screen.
  function drawSoon() {
    clearTimeout(waiting);
    waiting = setTimeout(draw, 20);
  }

  // --- Pointing, picking and selecting ----------------------------------------------------
  function nearest([x, y]) {
    const at = place(), tier = view.tier();
    let best = -1, least = at?.bars ? 1e9 : 18 ** 2;
    for (const row of at?.rows ?? []) {
      // A match of the search wins over a point that is no nearer than three pixels more.
      const distance = (at.x[row] - x) ** 2 + (at.bars ? 0.01 : 1) * (at.y[row] - y) ** 2 - (tier?.[row] ? 9 : 0);
      if (distance < least) { least = distance; best = row; }
    }
    return best;
  }
  // 1 for each row inside the selected area; null where none is selected.
  function inside() {
    const at = place();
    if (!box || !at) return null;
    const found = new Uint8Array(meta.rows);
    for (const row of at.rows) {
      found[row] = at.x[row] >= box[0] && at.x[row] <= box[2] && (at.bars || (at.y[row] >= box[1] && at.y[row] <= box[3])) ? 1 : 0;
    }
    return found;
  }
  function select(from, to) {
    const [x, y] = [0, 1].map((i) => [from[i], to[i]].sort((a, b) => a - b));
    box = view.pair()[1] ? [x[0], y[0], x[1], y[1]] : [x[0], GAP, x[1], SIZE - GAP];
    view.area(box);
  }
  const clear = () => { box = null; view.area(null); };
  function hover(row) {
    hovered = row;
    view.hover(row);
    draw();
  }
  function spot(event) {
    const frame = canvas.getBoundingClientRect(), at = (v, low, size) => Math.min(SIZE, Math.max(0, ((v - low) * SIZE) / size));
    return [at(event.clientX, frame.left, frame.width), at(event.clientY, frame.top, frame.height)];
  }
  const far = (to) => Math.hypot(start[0] - to[0], start[1] - to[1]) > 5;
  canvas.onpointerdown = (event) => { start = spot(event); canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = (event) => (start && far(spot(event)) ? select(start, spot(event)) : hover(nearest(spot(event))));
  canvas.onpointerup = (event) => {
    if (start && !far(spot(event))) {
      const row = nearest(spot(event));
      if (row >= 0) view.pick(row);
      else clear();
    }
    start = null;
  };
  canvas.onpointercancel = () => { start = null; };
  canvas.onpointerleave = () => hover(-1);
  canvas.onblur = draw;
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8] }[event.key];
    cursor ??= [SIZE / 2, SIZE / 2];
    if (step) {
      if (event.shiftKey) start ??= cursor;
      cursor = cursor.map((v, i) => Math.min(SIZE - GAP, Math.max(GAP, v + step[i])));
      if (event.shiftKey) select(start, cursor);
      else start = null;
      hover(nearest(cursor));
    } else if (event.key === "Enter" && hovered >= 0) view.pick(hovered);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  };
  canvas.onkeyup = (event) => { if (event.key === "Shift") start = null; };
  dark.onchange = draw;

  return { draw, drawSoon, inside, clear, hover: (row) => { hovered = row; draw(); }, forget: () => { box = null; } };
};
