"use strict";
/* The learning curves of the selected trials, or the means of groups with their 95 % intervals. The
   pointer shows the values at a step. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const element = byId("curves");
  const MOST_ROWS = 10; // most trials whose values at a step are listed (chosen, not measured)
  let curves = null; // by run id: [text that identifies the attempt, {score: [steps, values]}]
  let lines = []; // the drawn lines: {name, run_id, points, color}
  let axes = null; // {toY}: function from a value to its position on the vertical axis
  const guide = document.createElement("div");
  guide.className = "guide";
  guide.hidden = true;

  /* Return the points of a trial's curve, smoothed if the reader has chosen it. */
  function pointsOf(trial) {
    const [steps, values] = curves[trial.run_id]?.[1]?.[state.metric] || [[], []];
    const isDrawn = (v) => numbers.isNumber(v) && (!state.isLog || v > 0);
    const points = steps.map((step, i) => [step, values[i]]).filter((p) => isDrawn(p[1]));
    const share = state.smooth / 10;
    let last = points[0]?.[1];
    return points.map(([step, v]) => [step, (last = share * last + (1 - share) * v)]);
  }

  /* Return the axes for all of these points, and keep the function from a value to its position. */
  function axesFor(points, left = sweeper.grid.left) {
    const steps = points.map((p) => p[0]);
    const range = (vs) => vs.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const [first, last] = points.length ? range(steps) : [0, 1];
    const [low, high] = numbers.ends(points.map((p) => p[1]));
    const toY = (v) => (state.isLog ? Math.log10(Math.max(v, low)) : Math.max(low, Math.min(high, v)));
    axes = { toY };
    return {
      grid: { ...sweeper.grid, left },
      xAxis: sweeper.roundAxis("step", first, last, { min: first, max: Math.max(last, first + 1), isWhole: true, nameGap: 26 }),
      yAxis: state.isLog ? sweeper.logAxis(state.metric, low, Math.max(high, low * 1.01))
        : sweeper.roundAxis(state.metric, low, high),
    };
  }

  function drawnBands() {
    const bands = sweeper.bands(pointsOf).filter((band) => band.points.length);
    const colours = sweeper.colours();
    const low = (p) => p[1] - (p[2] || 0);
    const high = (p) => p[1] + (p[2] || 0);
    const all = bands.flatMap(({ points }) => points.flatMap((p) => [[p[0], low(p)], [p[0], high(p)]]));
    const base = axesFor(state.isLog ? all.filter((p) => p[1] > 0) : all);
    lines = bands.map(({ value, points }, i) => ({ name: value, points, color: sweeper.palette(i) }));
    return {
      ...base, grid: { ...base.grid, top: 34 },
      legend: { data: bands.map((band) => band.value), textStyle: { color: colours.ink }, top: 0 },
      series: bands.flatMap(({ value, points }, i) => {
        const color = sweeper.palette(i);
        return [
          {
            type: "line", name: value, showSymbol: false, silent: true, itemStyle: { color }, lineStyle: { color },
            data: points.map((p) => [p[0], axes.toY(p[1])]),
          },
          {
            type: "custom", silent: true, itemStyle: { color, opacity: 0.2 }, data: [points[0]],
            renderItem: (_, api) => ({
              type: "polygon", style: api.style(),
              shape: {
                points: [...points.map((p) => api.coord([p[0], axes.toY(high(p))])),
                  ...points.map((p) => api.coord([p[0], axes.toY(low(p))])).reverse()],
              },
            }),
          },
        ];
      }),
    };
  }

  function option() {
    if (curves === null) return {};
    if (state.group) return drawnBands();
    const scale = sweeper.colourScale();
    const colours = sweeper.colours();
    lines = [];
    for (const trial of sweeper.selected()) {
      const points = pointsOf(trial);
      if (points.length === 0) continue;
      const isPruned = trial.state === "pruned";
      lines.push({
        name: trial.run_id, run_id: trial.run_id, points, isPruned,
        color: isPruned ? colours.soft : scale.of(trial),
      });
    }
    if (lines.length === 0) {
      const textStyle = { color: colours.soft, fontSize: 14, fontWeight: "normal" };
      return { title: { text: "no selected trial has a curve", left: "center", top: "middle", textStyle } };
    }
    const base = axesFor(lines.flatMap((line) => line.points));
    const coordsOf = ({ points }) => points.map(([step, v]) => [step, axes.toY(v)]);
    return {
      ...base,
      series: [
        {
          type: "lines", coordinateSystem: "cartesian2d", polyline: true,
          data: lines.map((line) => ({
            run_id: line.run_id,
            coords: line.points.length > 1 ? coordsOf(line) : [...coordsOf(line), ...coordsOf(line)],
            lineStyle: {
              color: line.color, width: line.isPruned ? 1 : 1.5, type: line.isPruned ? "dashed" : "solid",
              opacity: lines.length > 100 ? 0.5 : 0.75,
            },
          })),
        },
        {
          type: "scatter", symbolSize: 5, itemStyle: { color: colours.soft },
          data: lines.filter((line) => line.isPruned || line.points.length === 1)
            .map((line) => ({ value: coordsOf(line).at(-1), run_id: line.run_id })),
        },
      ],
    };
  }

  /* Return the point of a curve that is nearest to a step, or null if the curve has no point near it. */
  function pointAt(points, step) {
    let [low, high] = [0, points.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < step) low = middle + 1;
      else high = middle;
    }
    const before = points[Math.max(0, low - 1)];
    const nearest = Math.abs(before[0] - step) <= Math.abs(points[low][0] - step) ? before : points[low];
    const gap = points.length > 1 ? (points.at(-1)[0] - points[0][0]) / (points.length - 1) : 1;
    return Math.abs(nearest[0] - step) <= Math.max(1, gap) ? nearest : null;
  }

  /* Show the values of the curves at the step under the pointer. If there are too many curves, show the
     nearest one and the best. */
  function onHover(chart, event) {
    const place = [event.offsetX, event.offsetY];
    if (!guide.isConnected) element.append(guide); // Each new chart of ECharts empties the element.
    const isInside = lines.length && chart.containPixel("grid", place);
    guide.hidden = !isInside;
    if (!isInside) {
      sweeper.tip(null);
      return;
    }
    const step = Math.round(chart.convertFromPixel("grid", place)[0]);
    const known = lines.map((line) => ({ ...line, at: pointAt(line.points, step) })).filter((line) => line.at);
    if (!known.length) {
      sweeper.tip(null);
      return;
    }
    const shown = known.map((line) => Math.abs(line.at[0] - step)).reduce((a, b) => Math.min(a, b));
    const at = known.find((line) => Math.abs(line.at[0] - step) === shown).at[0];
    guide.style.left = `${chart.convertToPixel("grid", [at, 0])[0]}px`;
    const distance = (line) => Math.abs(chart.convertToPixel("grid", [line.at[0], axes.toY(line.at[1])])[1] - place[1]);
    const nearest = known.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const goal = sweeper.data.objectives.find((g) => g.name === state.metric) || sweeper.goal();
    const isDown = goal.name === state.metric ? goal.direction === "maximize" : false;
    const order = [...known].sort((a, b) => (isDown ? b.at[1] - a.at[1] : a.at[1] - b.at[1]));
    const others = order.filter((line) => line !== nearest);
    const rows = known.length > MOST_ROWS ? [nearest, ...others.slice(0, MOST_ROWS - 1)] : order;
    const text = numbers.formatOf(known.map((line) => line.at[1]));
    const half = (line) => (numbers.isNumber(line.at[2]) ? numbers.withInterval(line.at[1], line.at[2]) : text(line.at[1]));
    const left = known.length - rows.length;
    sweeper.tip(
      `<b>step ${numbers.full(at)}</b> ${sweeper.escaped(state.metric)}`
      + sweeper.rows(rows.map((line) => [line.name, half(line), line.color, line === nearest]))
      + (left > 0 ? `<p>and ${left} more</p>` : ""),
      event.event,
    );
  }

  element.addEventListener("pointerleave", () => {
    guide.hidden = true;
  });

  function arrange() {
    const metrics = new Set();
    for (const [, series] of Object.values(curves)) for (const name in series) metrics.add(name);
    const names = [...metrics].sort();
    byId("curves-section").hidden = names.length === 0;
    byId("curves-about").hidden = Object.keys(curves).length < 500;
    if (!names.includes(state.metric)) {
      state.metric = names.includes(state.goal) ? state.goal : names[0] || null;
    }
    sweeper.fillSelect(byId("metric"), names.map((name) => [name, name]), state.metric);
    sweeper.mark(element);
  }

  sweeper.curves = (known) => {
    curves = known;
    arrange();
  };

  byId("metric").addEventListener("change", (event) => {
    state.metric = event.target.value;
    sweeper.mark(element);
    sweeper.changed("open");
  });
  byId("log").addEventListener("change", (event) => {
    state.isLog = event.target.checked;
    sweeper.mark(element);
    sweeper.changed("open");
  });
  byId("smooth").addEventListener("input", (event) => {
    state.smooth = Number(event.target.value);
    sweeper.mark(element);
    sweeper.changed("open");
  });

  sweeper.chart({
    id: "curves", option, onHover,
    csv: () => [
      ["run", "step", state.metric],
      ...lines.flatMap((line) => line.points.map(([step, value]) => [line.name, step, value])),
    ],
  });

  let n_curves = -1;
  sweeper.onChange((what) => {
    if (what !== "all") return;
    byId("log").checked = state.isLog;
    byId("smooth").value = state.smooth;
    if (curves !== null) arrange(); // The page's address may have changed, and may name no score.
    const ended = sweeper.data.all.filter((t) => !["running", "frozen"].includes(t.state)).length;
    if (ended !== n_curves) sweeper.load("curves.js");
    n_curves = ended;
  });
}
