"use strict";
/* Groups of trials with the same value of a param: means with their 95 % intervals, and the means of
   their learning curves. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const MOST_GROUPS = 12;
  /* 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom. For more degrees of freedom than
     the list has, `mean` adds 2.4 / degrees of freedom to 1.96, the quantile of the normal
     distribution. */
  const T = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16,
    2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086,
  ];

  /* Return the mean and half the width of its 95 % interval. A single value has no interval. */
  function mean(values) {
    const n = values.length;
    const middle = values.reduce((sum, v) => sum + v, 0) / n;
    if (n < 2) return [middle, undefined];
    const squares = values.reduce((sum, v) => sum + (v - middle) ** 2, 0);
    return [middle, (T[n - 2] || 1.96 + 2.4 / (n - 1)) * Math.sqrt(squares / (n - 1) / n)];
  }

  /* Return the params by which trials can be grouped: those with few values that several trials have. */
  function groupable() {
    const { params } = sweeper.columns;
    return params.filter((column) => {
      const n = new Set(sweeper.data.all.map((t) => String(column.of(t)))).size;
      return n > 1 && n <= MOST_GROUPS && n < sweeper.data.all.length;
    });
  }

  /* Return [value, trials] for each value of the param by which the reader groups trials, or null if
     there is no such param. Only trials that are selected and completed are in a group. */
  sweeper.groups = () => {
    const column = groupable().find((c) => c.key === state.group);
    if (!column) return null;
    const found = new Map();
    for (const trial of sweeper.selected()) {
      const value = column.of(trial);
      if (trial.state !== "completed" || value === undefined) continue;
      if (!found.has(String(value))) found.set(String(value), []);
      found.get(String(value)).push(trial);
    }
    const order = column.categories || [...found.keys()].sort((a, b) => a - b);
    return order.filter((value) => found.has(value)).map((value) => [value, found.get(value)]);
  };

  function drawTable() {
    const cells = (texts, kind) => {
      const row = document.createElement("tr");
      row.append(...texts.map((text, i) => {
        const cell = document.createElement(kind);
        if (i > 0) cell.className = "number";
        cell.textContent = text;
        return cell;
      }));
      return row;
    };
    const { goals, scores, duration } = sweeper.columns;
    const columns = [...goals, ...scores, duration].filter((column) =>
      sweeper.data.all.some((trial) => column.of(trial) !== undefined));
    const rows = sweeper.groups().map(([value, trials]) => [
      value, String(trials.length),
      ...columns.map((column) => {
        const values = trials.map(column.of).filter(numbers.isNumber);
        if (!values.length) return "";
        const [middle, half] = mean(values);
        return half === undefined ? column.text(middle) : numbers.withInterval(middle, half);
      }),
    ]);
    const name = byId("group").selectedOptions[0]?.textContent || "";
    byId("groups").tHead.replaceChildren(cells([name, "trials", ...columns.map((c) => c.name)], "th"));
    byId("groups").tBodies[0].replaceChildren(...rows.map((row) => cells(row, "td")));
  }

  /* Return the mean of each group's curves, at each step that at least two of its curves have. */
  sweeper.bands = (pointsOf) =>
    (sweeper.groups() || []).map(([value, trials]) => {
      const at = new Map();
      for (const trial of trials) {
        for (const [step, v] of pointsOf(trial)) at.set(step, [...(at.get(step) || []), v]);
      }
      const steps = [...at].filter(([, values]) => values.length > 1).sort(([a], [b]) => a - b);
      return { value, points: steps.map(([step, values]) => [step, ...mean(values)]) };
    });

  function arrange() {
    const columns = groupable();
    byId("group-label").hidden = columns.length === 0;
    if (!columns.some((c) => c.key === state.group)) state.group = null;
    const none = [["", "none"]];
    sweeper.fillSelect(byId("group"), [...none, ...columns.map((c) => [c.key, c.name])], state.group || "");
    byId("groups-section").hidden = state.group === null;
    if (state.group !== null) drawTable();
  }

  byId("group").addEventListener("change", (event) => {
    state.group = event.target.value || null;
    sweeper.changed("selection");
  });
  sweeper.onChange((what) => {
    if (["all", "selection", "brush"].includes(what)) arrange();
  });
}
