"use strict";
// The explorer's table: a plain table that grows as its reader scrolls; the arrow keys go from row to
// row, Enter opens one. `view`: columns() -> [{ key, head(), cell(row), wide }], rows(), row(), sorted() ->
// [key, rising]; it gets sort(key), pick(row) and hover(row).
const Table = (frame, view) => {
  const MORE = 60, { element } = Write, table = frame.querySelector("table");
  let columns = [], shown = 0;

  function line(row, at) {
    const button = element("button", Write.token(Data.tokens[row]));
    button.tabIndex = at ? -1 : 0;
    const head = element("th", button), tr = element("tr", [head, ...columns.map(({ cell, wide }) => element("td", cell(row), wide ? "wide" : ""))]);
    head.scope = "row";
    tr.ariaRowIndex = at + 2;
    tr.dataset.row = row;
    return tr;
  }
  function grow() {
    const rows = view.rows(), end = Math.min(rows.length, shown + MORE), lines = [];
    for (; shown < end; shown++) lines.push(line(rows[shown], shown));
    table.tBodies[0].append(...lines);
    mark();
  }
  function mark() {
    for (const tr of table.tBodies[0].rows) {
      if (+tr.dataset.row === view.row()) tr.setAttribute("aria-current", "true");
      else tr.removeAttribute("aria-current");
    }
  }
  function heads() {
    const [sorted, rising] = view.sorted();
    return columns.map(({ key, head, wide }) => {
      const button = element("button", head()), cell = element("th", button, wide ? "wide" : "");
      button.onclick = () => view.sort(key);
      cell.scope = "col";
      if (key === sorted) cell.setAttribute("aria-sort", rising ? "ascending" : "descending");
      return cell;
    });
  }
  // Writes the table anew, from its first row; the head or the row that had the focus has it again.
  function fill() {
    const focused = frame.contains(document.activeElement) ? document.activeElement : null;
    const head = focused?.closest("thead th")?.cellIndex, row = focused?.closest("tbody tr")?.dataset.row;
    columns = view.columns();
    const first = element("th", "token");
    first.scope = "col";
    table.tHead.replaceChildren(element("tr", [first, ...heads()]));
    table.ariaRowCount = view.rows().length + 1;
    table.tBodies[0].replaceChildren();
    shown = 0;
    frame.scrollTop = 0;
    grow();
    const { rows } = table.tBodies[0], again = head ? table.tHead.rows[0].cells[head] : row && ([...rows].find((tr) => tr.dataset.row === row) ?? rows[0]);
    again?.querySelector("button").focus({ preventScroll: true });
  }
  function move(to) {
    const lines = table.tBodies[0].rows;
    if (to >= lines.length) grow();
    const button = lines[Math.max(0, Math.min(to, lines.length - 1))]?.cells[0].firstChild;
    for (const one of table.tBodies[0].querySelectorAll("[tabindex='0']")) one.tabIndex = -1;
    if (button) { button.tabIndex = 0; button.focus(); }
  }

  frame.onscroll = () => { if (frame.scrollTop + 2 * frame.clientHeight > frame.scrollHeight) grow(); };
  const over = (event) => event.target.closest("tbody tr");
  table.onclick = (event) => { if (over(event)) view.pick(+over(event).dataset.row); };
  table.onpointerover = (event) => view.hover(over(event) ? +over(event).dataset.row : -1);
  table.onpointerleave = () => view.hover(-1);
  table.addEventListener("focusin", (event) => { if (over(event)) view.hover(+over(event).dataset.row); });
  table.tBodies[0].onkeydown = (event) => {
    const at = over(event).rowIndex - 1, to = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 12, PageDown: at + 12, Home: 0 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  };
  return { fill, mark };
};
