"use strict";
// The explorer's data: blobs of the page -> typed arrays (analysis/report/explorer.py says how they are
// packed), ranks, percentiles and rewards, search. Nothing here touches what is shown.
const Data = (() => {
  const meta = JSON.parse(document.getElementById("explorer-meta").textContent);

  async function unpack(at) {
    const node = document.getElementById(`blob-${at}`);
    const text = atob(node.textContent.trim());
    node.remove(); // The page need not hold it twice.
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function unpackedAs(planes, Type) {
    const size = Type.BYTES_PER_ELEMENT, n = planes.length / size;
    const bytes = new Uint8Array(planes.length);
    for (let plane = 0; plane < size; plane++) {
      for (let i = 0, from = plane * n, to = plane; i < n; i++, to += size) bytes[to] = planes[from + i];
    }
    return new Type(bytes.buffer); // Every browser's machine is little-endian.
  }

  function summed(steps) {
    for (let i = 1; i < steps.length; i++) steps[i] += steps[i - 1];
    return steps;
  }

  const WIDTH = 2 ** 20; // More than any vocabulary; a key is order × WIDTH + place, exact in float64.

  // Places of `values` by falling value, ties by place; NaN is left out.
  function descending(values) {
    const bits = new Uint32Array(1), float = new Float32Array(bits.buffer);
    const keys = new Float64Array(values.length);
    let n = 0;
    for (let i = 0; i < values.length; i++) {
      if (values[i] !== values[i]) continue;
      float[0] = values[i] + 0; // -0 becomes 0.
      const order = bits[0] >>> 31 ? bits[0] : ~bits[0] & 0x7fffffff;
      keys[n++] = (order >>> 0) * WIDTH + i;
    }
    const sorted = keys.subarray(0, n).sort(), places = new Uint32Array(n);
    for (let i = 0; i < n; i++) places[i] = sorted[i] % WIDTH;
    return places;
  }

  // A column as rank, percentile and reward by place in the vocabulary,
  // NaN where not scored. Rank 1 is the highest. `of` numbers the value of each token; `places` holds the
  // place of each value, then how many tokens have it; `steps` the values in units of the last digit.
  function column(of, places, steps, { scored: n, least, decimals }) {
    const nothing = () => new Float64Array(of.length).fill(NaN), different = places.length / 2;
    const rank = nothing(), percentile = Float32Array.from(rank), reward = nothing();
    for (let i = 0; i < of.length; i++) {
      const at = of[i] - 1;
      if (at < 0) continue;
      rank[i] = n + 1 - (places[at] + places[different + at]) / 2;
      percentile[i] = places[at] / (2 * n);
      reward[i] = (least + steps[at]) / 10 ** decimals;
    }
    return { reward, rank, percentile, decimals };
  }

  const columns = new Map(); // `${model}:${prompt}` -> what `column` returns.
  const loading = new Map(); // The same keys -> a promise, while a column is unpacked.
  const data = { meta, tokens: [], joined: "", starts: null, vocabularies: [], held: null, filters: [], words: null };

  data.read = async () => {
    data.tokens = JSON.parse(new TextDecoder().decode(await unpack(meta.tokens)));
    const folded = data.tokens.map((token) => token.toLowerCase());
    data.joined = `${folded.join("\0")}\0`;
    data.starts = new Uint32Array(meta.rows + 1); // Where each row starts in `joined`.
    folded.forEach((text, row) => { data.starts[row + 1] = data.starts[row] + text.length + 1; });
    data.held = new Uint8Array(meta.rows); // In how many models' vocabularies a row is.
    for (const [at, about] of meta.vocabularies.entries()) {
      const rows = summed(unpackedAs(await unpack(about.rows), Uint32Array));
      const place = new Int32Array(meta.rows).fill(-1);
      rows.forEach((row, i) => { place[row] = i; });
      const ids = summed(unpackedAs(await unpack(about.ids), Uint32Array));
      const models = meta.models.filter((model) => model.vocabulary === at).length;
      rows.forEach((row) => { data.held[row] += models; });
      data.vocabularies.push({ rows, place, ids, flags: await unpack(about.flags) });
    }
    for (const { label, values, rows, of } of meta.filters) {
      data.filters.push({ label, values, rows: summed(unpackedAs(await unpack(rows), Uint32Array)),
        of: unpackedAs(await unpack(of), Uint32Array) });
    }
    data.words = new Set(summed(unpackedAs(await unpack(meta.words), Uint32Array)));
  };

  let spelt = null;
  const bare = (row) => data.tokens[row].replace(/^[ _▁]/, "").toLowerCase();
  // In how many spellings the text of a row is there: with and without a space, in upper and lower case.
  data.spellings = (row) => {
    if (!spelt) {
      spelt = new Map();
      for (let at = 0; at < meta.rows; at++) spelt.set(bare(at), (spelt.get(bare(at)) ?? 0) + 1);
    }
    return spelt.get(bare(row));
  };

  // At most five words that are one slip from a text (a letter more, fewer or other, or two letters
  // exchanged), exchanges and common words first.
  data.near = (text) => {
    const wanted = text.trim().toLowerCase(), found = new Map();
    for (let row = 0; row < meta.rows; row++) {
      const word = bare(row), far = Math.abs(word.length - wanted.length);
      if (far > 1 || found.has(word) || !/^\p{L}{3,}$/u.test(word)) continue;
      const [x, y] = between(wanted, word);
      const exchanged = x.length === 2 && x[0] === y[1] && x[1] === y[0];
      if (exchanged || (x.length < 2 && y.length < 2)) found.set(word, (exchanged ? 100 : 0) + data.spellings(row));
    }
    return [...found.keys()].sort((a, b) => found.get(b) - found.get(a)).slice(0, 5);
  };
  // What two texts have between their common start and their common end.
  function between(a, b) {
    const most = Math.min(a.length, b.length);
    let start = 0, end = 0;
    while (start < most && a[start] === b[start]) start++;
    while (end < most - start && a.at(-1 - end) === b.at(-1 - end)) end++;
    return [a, b].map((text) => text.slice(start, text.length - end));
  }
  // The row of a word: behind a space, else by itself, else in another case; -1 where there is none.
  data.rowOf = (text) => {
    const word = text.trim(), tier = data.match(word, "whole");
    const exact = [` ${word}`, word, ` ${word.toLowerCase()}`].map((one) => data.tokens.indexOf(one)).find((row) => row >= 0);
    return word ? exact ?? tier.findIndex((level) => level > 2) : -1;
  };

  // 1 for each row that has a value of a filter.
  data.members = (filter, value) => {
    const inside = new Uint8Array(meta.rows), { rows, of } = data.filters[filter];
    rows.forEach((row, i) => { if (of[i] === value) inside[row] = 1; });
    return inside;
  };

  const packed = (model, prompt) => meta.models[model].columns[prompt]; // null where not scored
  data.scored = (model, prompt) => packed(model, prompt) !== null;
  async function read(about) {
    const numbers = async (blob) => unpackedAs(await unpack(blob), Uint32Array);
    const places = await numbers(about.places), steps = summed(await numbers(about.rewards));
    summed(places.subarray(0, places.length / 2));
    return column(await numbers(about.values), places, steps, about);
  }
  data.load = async (model, prompt) => {
    const key = `${model}:${prompt}`;
    if (!data.scored(model, prompt) || columns.has(key)) return;
    if (!loading.has(key)) loading.set(key, read(packed(model, prompt)).then((made) => columns.set(key, made)));
    await loading.get(key);
  };

  data.column = (model, prompt) => columns.get(`${model}:${prompt}`);

  // One number of a row: measure is reward, rank or percentile; NaN where there is none.
  data.value = (row, model, prompt, measure) => {
    const place = data.vocabularies[meta.models[model].vocabulary].place[row];
    const column = columns.get(`${model}:${prompt}`);
    return column && place >= 0 && column.percentile[place] === column.percentile[place] ? column[measure][place] : NaN;
  };

  // Mean and standard deviation over the models of each row's percentiles under a prompt.
  const together = new Map();
  data.together = (prompt) => {
    if (together.has(prompt)) return together.get(prompt);
    const sum = new Float64Array(meta.rows), squares = new Float64Array(meta.rows), count = new Uint8Array(meta.rows);
    meta.models.forEach((about, model) => {
      const column = columns.get(`${model}:${prompt}`);
      if (!column) return;
      const { rows } = data.vocabularies[about.vocabulary];
      for (let i = 0; i < rows.length; i++) {
        const share = column.percentile[i];
        if (share !== share) continue;
        sum[rows[i]] += share; squares[rows[i]] += share * share; count[rows[i]]++;
      }
    });
    const mean = new Float32Array(meta.rows), spread = new Float32Array(meta.rows);
    for (let row = 0; row < meta.rows; row++) {
      mean[row] = count[row] ? sum[row] / count[row] : NaN;
      spread[row] = count[row] ? Math.sqrt(Math.max(squares[row] / count[row] - mean[row] ** 2, 0)) : NaN;
    }
    together.set(prompt, { mean, spread });
    return together.get(prompt);
  };

  // Each row's percentile under [model, prompt] `x` minus that under `y`, in hundredths.
  data.difference = (x, y) => kept(`${x} ${y}`, () => {
    const out = new Float32Array(meta.rows).fill(NaN);
    const [one, other] = [x, y].map(([model, prompt]) => columns.get(`${model}:${prompt}`)?.percentile);
    if (!one || !other) return out;
    const [from, to] = [x, y].map(([model]) => data.vocabularies[meta.models[model].vocabulary]);
    from.rows.forEach((row, i) => { if (to.place[row] >= 0) out[row] = 100 * (one[i] - other[to.place[row]]); });
    return out;
  });
  data.apart = (x, y) => kept(`apart ${x} ${y}`, () => data.difference(x, y).map(Math.abs));
  // Rows by falling difference, or by its falling size.
  data.orderApart = (x, y, size) => kept(`order ${size} ${x} ${y}`, () =>
    descending(size ? data.apart(x, y) : data.difference(x, y)));

  // What `make` returns, kept for the last few keys.
  const latest = new Map();
  function kept(key, make) {
    if (!latest.has(key)) {
      if (latest.size >= 24) latest.delete(latest.keys().next().value);
      latest.set(key, make());
    }
    return latest.get(key);
  }

  // Rows by falling value of "mean", "spread" or of [model, prompt].
  data.order = (key, prompt) => kept(`order ${key} ${prompt}`, () => {
    if (typeof key === "string") return descending(data.together(prompt)[key]);
    const { rows } = data.vocabularies[meta.models[key].vocabulary];
    return descending(data.column(key, prompt).percentile).map((place) => rows[place]);
  });

  // Calls `found(row, at)` once for each row whose folded text holds `wanted`, `at` characters in.
  // One search through one long string: a call for each of 400,000 short ones takes ten times as long.
  function scan(wanted, found) {
    const { joined, starts } = data;
    for (let at = joined.indexOf(wanted), row = 0; at >= 0; at = joined.indexOf(wanted, at)) {
      while (starts[row + 1] <= at) row++;
      const end = starts[row + 1] - 1;
      if (at + wanted.length <= end) found(row, at - starts[row], end - starts[row]);
      else if (at + 1 < end) { at++; continue; } // Over the seam of two tokens.
      at = end + 1;
    }
  }

  // How well each row matches: 0 not, 1 somewhere, 2 at its start or behind a space, 3 but for case and outer space,
  // 4 exactly. `how` is contains, starts, whole or regex; a bad expression throws.
  data.match = (query, how) => {
    const tier = new Uint8Array(meta.rows), { tokens } = data;
    if (how === "regex") {
      const expression = new RegExp(query, "iu");
      for (let row = 0; row < tier.length; row++) tier[row] = expression.test(tokens[row]) ? 1 : 0;
      return tier;
    }
    const wanted = query.toLowerCase(), bare = wanted.trim();
    const least = { contains: 1, starts: 2, whole: 3 }[how];
    const { joined, starts } = data, length = (bare || wanted).length;
    const blank = (from, to) => {
      for (let i = from; i < to; i++) if (joined[i].trim()) return false;
      return true;
    };
    scan(bare || wanted, (row, at, size) => {
      const from = starts[row], end = from + size;
      const start = bare === wanted ? at : joined.slice(from, end).indexOf(wanted);
      // A word finds itself with and without spaces around it; longer tokens must hold the spaces too.
      const alone = bare && blank(from, from + at) && blank(from + at + length, end);
      const found = tokens[row] === query ? 4 : alone ? 3 : start < 0 ? 0 : start === 0 || (start > 0 && blank(from, from + start)) ? 2 : 1;
      if (found >= least) tier[row] = found;
    });
    return tier;
  };

  return data;
})();
