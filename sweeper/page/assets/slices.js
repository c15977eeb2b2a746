"use strict";
/* The score by each param alone. Values that many trials share are spread sideways, with a box of
   their quartiles. */

{
  const { state } = sweeper;
  const slices = document.getElementById("slices");
  const more = /** @type {HTMLButtonElement} */ (document.getElementById("slices-more"));
  const FIRST = 6; // number of params that have a chart at first: one row of charts (chosen)
  let isAll = false; // whether all params have a chart
  const FEW = 12; // Params with at most this many values have boxes (chosen, not measured).

  /* Return a series of box plots for ECharts: whiskers, quartiles and median. */
  function boxes(groups, half, goal) {
    const colours = sweeper.colours();
    const all = groups.map(([at, trials]) => [at, scales.box(trials.map((t) => goal.at(t.scores[state.goal])))]);
    return {
      type: "custom", silent: true, z: 1, encode: { x: 0, y: [1, 2] },
      data: all.filter(([, box]) => box.n > 3).map(([at, box]) => [at, box.first, box.third, box.middle, box.low, box.high]),
      renderItem(_, api) {
        const y = (i) => api.coord([api.value(0), api.value(i)])[1];
        const [left, right] = [-half, half].map((by) => api.coord([api.value(0) + by, api.value(1)])[0]);
        const middle = (left + right) / 2;
        const line = (x1, y1, x2, y2, width) => ({
          type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colours.soft, lineWidth: width },
        });
        return {
          type: "group",
          children: [
            {
              type: "rect", shape: { x: left, y: y(2), width: right - left, height: y(1) - y(2) },
              style: { fill: colours.line, opacity: 0.45, stroke: colours.soft },
            },
            line(left, y(3), right, y(3), 2), line(middle, y(2), middle, y(5), 1), line(middle, y(1), middle, y(4), 1),
          ],
        };
      },
    };
  }

  function option(column) {
    const trials = sweeper.data.all.filter((t) => sweeper.hasGoal(t) && column.of(t) !== undefined);
    const score = (t) => t.scores[state.goal];
    const goal = sweeper.goalScale(sweeper.data.all.filter(sweeper.hasGoal), score);
    const scale = scales.of(column, trials, 4);
    const groups = new Map();
    for (const trial of trials) {
      const at = scale.position(trial);
      if (!groups.has(at)) groups.set(at, []);
      groups.get(at).push(trial);
    }
    const isFew = groups.size <= FEW && trials.length >= 2 * groups.size;
    const places = [...groups.keys()].sort((a, b) => a - b);
    const gaps = places.slice(1).map((at, i) => at - places[i]);
    const half = isFew ? 0.32 * Math.min(...gaps, scale.places ? 1 : Infinity) : 0;
    const width = Number.isFinite(half) ? half : 0;
    const x = (t) => scale.position(t) + 1.4 * width * scales.jitter(t.run_id);
    const axis = sweeper.columnAxis(scale);
    axis.axisLabel.fontSize = 11;
    if (isFew) Object.assign(axis, { min: Math.min(axis.min, places[0] - 1.5 * width), max: Math.max(axis.max, places.at(-1) + 1.5 * width) });
    return {
      grid: { ...sweeper.grid, left: 38, right: 8 }, xAxis: axis,
      yAxis: sweeper.roundAxis("", goal.low, goal.high, { most: 5 }),
      series: [
        ...(isFew ? [boxes([...groups], width, goal)] : []),
        {
          type: "scatter", symbolSize: trials.length > 300 ? 4 : 6, z: 2,
          data: sweeper.layered(trials).map((t) => sweeper.point(t, [x(t), goal.at(score(t))], goal.isCut(score(t)))),
        },
      ],
    };
  }

  /* Make a chart for each param, the most important first. */
  function arrange() {
    const importances = Object.keys(sweeper.data.importances[state.goal] || {});
    const rank = (column) => (importances.includes(column.name) ? importances.indexOf(column.name) : 99);
    const varied = sweeper.columns.params.filter((column) =>
      !column.isConstant && sweeper.data.all.some((t) => sweeper.hasGoal(t) && column.of(t) !== undefined));
    varied.sort((a, b) => rank(a) - rank(b));
    document.getElementById("slices-section").hidden = varied.length === 0;
    more.hidden = varied.length <= FIRST;
    more.textContent = isAll ? `only ${FIRST}` : `all ${varied.length} parameters`;
    if (!isAll) varied.splice(FIRST);
    const before = [...slices.querySelectorAll(".chart")];
    if (before.map((element) => element.dataset.column).join() === varied.map((c) => c.key).join()) return;
    before.forEach(sweeper.forgetChart);
    slices.replaceChildren(...varied.map((column) => {
      const frame = document.createElement("div");
      const element = document.createElement("div");
      element.className = "chart";
      element.dataset.column = column.key;
      frame.append(element);
      return frame;
    }));
    for (const element of slices.querySelectorAll(".chart")) {
      const { column: key } = element.dataset;
      const named = () => sweeper.columns.params.find((c) => c.key === key);
      sweeper.chart({ element, name: named().name, option: () => option(named()) });
    }
  }

  more.addEventListener("click", () => {
    isAll = !isAll;
    arrange();
    sweeper.drawSoon();
  });
  sweeper.onChange((what) => {
    if (what === "all") arrange();
  });
}
