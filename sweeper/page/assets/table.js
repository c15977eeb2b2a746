"use strict";
/* The table of the selected trials. It can be sorted by any column. Two trials can be ticked, to
   compare their notebooks. */

{
  const { state } = sweeper;
  const table = document.getElementById("trials");
  const more = document.getElementById("more");
  const compare = document.getElementById("compare");
  const FIRST_ROWS = 100;
  const MORE_ROWS = 500;
  const SEEN_ROWS = 25; // Rows are added in steps of this number, more than the box shows (chosen).
  const AHEAD_PX = 400; // Rows are added this many pixels below the visible part (chosen).
  const ticked = new Set();
  let n_rows = FIRST_ROWS;

  function columns() {
    const { goals, scores, params, duration, memory } = sweeper.columns;
    const hasMemory = sweeper.data.all.some((t) => memory.of(t) !== undefined);
    const noted = (name) => {
      const of = (t) => sweeper.noteOf(t.run_id)[name] || undefined;
      return sweeper.data.all.some(of) ? [{ key: name, name: name.replace("trial_", ""), of }] : [];
    };
    const hasReason = sweeper.data.all.some((t) => t.reason || t.message);
    const why = (t) => [t.reason, t.message].filter(Boolean).join(": ") || undefined;
    const hasDuration = sweeper.data.all.some((t) => duration.of(t) !== undefined);
    return [
      { key: "run", name: "run", of: (t) => t.run_id },
      ...noted("trial_name"),
      { key: "state", name: "state", of: (t) => t.state },
      ...goals, ...params, ...scores,
      ...(hasDuration ? [duration] : []),
      ...(hasMemory ? [memory] : []),
      ...noted("note"),
      ...(hasReason ? [{ key: "why", name: "why", of: why }] : []),
    ];
  }

  /* Return the selected trials in the order of the table. By default, the best comes first. */
  sweeper.ordered = () => {
    const [key, isDown] = sorting();
    const column = columns().find((c) => c.key === key) || columns()[0];
    const rank = (value) => (value === undefined || value === null ? 2 : numbers.isNumber(value) ? 0 : 1);
    // In the default order, trials that did not complete come last, even if their scores are better.
    const isLate = (trial) => Number(state.sort === null && trial.state !== "completed");
    return [...sweeper.selected()].sort((a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      if (isLate(a) !== isLate(b)) return isLate(a) - isLate(b);
      if (rank(x) !== rank(y)) return rank(x) - rank(y);
      const by = rank(x) === 0 ? x - y : String(x ?? "").localeCompare(String(y ?? ""));
      return (isDown ? -by : by) || a.run_id.localeCompare(b.run_id);
    });
  };

  function sorting() {
    const goal = sweeper.goal();
    return state.sort || [`score.${goal.name}`, goal.direction === "maximize"];
  }

  function header(column) {
    const [key, isDown] = sorting();
    const cell = document.createElement("th");
    const button = document.createElement("button");
    const isSorted = column.key === key;
    button.type = "button";
    button.textContent = column.name + (isSorted ? (isDown ? " ↓" : " ↑") : "");
    cell.setAttribute("aria-sort", isSorted ? (isDown ? "descending" : "ascending") : "none");
    button.addEventListener("click", () => {
      state.sort = [column.key, isSorted && !isDown];
      sweeper.changed("table");
    });
    if (isOfNumbers(column)) cell.className = "number";
    cell.append(button);
    return cell;
  }

  /* Return whether a column contains numbers. Its cells and its head are then aligned to the right. */
  const isOfNumbers = (column) => sweeper.data.all.some((t) => numbers.isNumber(column.of(t)));

  function row(trial, shown, isRight) {
    const element = document.createElement("tr");
    element.classList.toggle("best", sweeper.data.best.includes(trial.run_id));
    const first = document.createElement("td");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = ticked.has(trial.run_id);
    box.setAttribute("aria-label", `compare ${trial.run_id}`);
    box.addEventListener("change", () => {
      if (box.checked) ticked.add(trial.run_id);
      else ticked.delete(trial.run_id);
      compare.disabled = ticked.size !== 2;
    });
    first.append(box);
    const cells = shown.map((column) => {
      const cell = document.createElement("td");
      const value = column.of(trial);
      if (column.key === "run") {
        cell.append(sweeper.runLink(trial.run_id), ...sweeper.noteButtons(trial.run_id));
      } else {
        cell.textContent = value === undefined || value === "" ? "" : column.text?.(value) ?? String(value);
        if (isRight.has(column)) cell.className = "number";
        if (column.key === "state") cell.className = `state-${trial.state}`;
        cell.title = value === undefined ? "" : numbers.full(value);
      }
      return cell;
    });
    element.append(first, ...cells);
    return element;
  }

  let shownTrials = []; // the selected trials, in the order of the table
  let rowOf = (trial) => row(trial, [], new Set());
  const body = table.tBodies[0];
  const box = table.parentElement;

  /* Add rows until they reach below the visible part of the table.
     top: how far the reader has scrolled, in pixels. */
  function fill(top = box.scrollTop) {
    const most = Math.min(n_rows, shownTrials.length);
    const n_seen = () => body.rows.length;
    let isFilled = n_seen() >= most;
    while (!isFilled) {
      body.append(...shownTrials.slice(n_seen(), Math.min(most, n_seen() + SEEN_ROWS)).map(rowOf));
      isFilled = n_seen() >= most || box.scrollHeight > top + box.clientHeight + AHEAD_PX;
    }
  }

  function draw() {
    const shown = columns();
    shownTrials = sweeper.ordered();
    const head = document.createElement("tr");
    head.append(document.createElement("th"), ...shown.map(header));
    table.tHead.replaceChildren(head);
    const isRight = new Set(shown.filter(isOfNumbers));
    rowOf = (trial) => row(trial, shown, isRight);
    const top = box.scrollTop;
    body.replaceChildren();
    fill(top);
    box.scrollTop = top;
    const left = shownTrials.length - n_rows;
    more.hidden = left <= 0;
    more.textContent = left > MORE_ROWS ? `${MORE_ROWS} more of ${left}` : `${left} more`;
  }

  box.addEventListener("scroll", () => fill(), { passive: true });
  addEventListener("beforeprint", () => {
    body.append(...shownTrials.slice(body.rows.length, n_rows).map(rowOf));
  });

  more.addEventListener("click", () => {
    n_rows += MORE_ROWS;
    draw();
  });
  compare.addEventListener("click", () => {
    const [one, other] = sweeper.ordered().map((t) => t.run_id).filter((id) => ticked.has(id));
    const pair = other ? [one, other] : [...ticked];
    sweeper.open(...pair);
  });
  /* Return the rows of a file with the selected trials, in the order of the table, after a head. */
  sweeper.tableRows = () => {
    const starred = { name: "starred", of: (t) => (sweeper.noteOf(t.run_id).starred ? "yes" : "") };
    const shown = [...columns(), ...(sweeper.data.all.some(starred.of) ? [starred] : [])];
    return [
      shown.map((column) => column.name),
      ...sweeper.ordered().map((trial) => shown.map((column) => column.of(trial))),
    ];
  };
  sweeper.addMenu(table, "trials", { csv: () => sweeper.csv(sweeper.tableRows()) });
  const section = table.closest("section");
  sweeper.whenVisible(section, draw, true); // Drawn before charts, because its first rows are quick.
  sweeper.onChange((what) => {
    if (what !== "open") sweeper.mark(section);
  });
}
