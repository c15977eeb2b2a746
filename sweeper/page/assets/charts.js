"use strict";
/* All charts except the parallel coordinates. Each one is drawn when it comes into view. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const charts = new Map(); // by element: the chart, null before it is in view
  let curves = null;

  /* Draw a chart when it is in view. */
  function add(element, option) {
    sweeper.whenVisible(element, () => {
      let chart = charts.get(element);
      if (!chart) {
        chart = echarts.init(element);
        chart.on("click", (event) => event.data?.run_id && sweeper.open(event.data.run_id));
        charts.set(element, chart);
      }
      chart.resize();
      chart.setOption({ animation: false, aria: { enabled: true }, ...option() }, { notMerge: true });
    });
    if (!charts.has(element)) charts.set(element, null);
    const save = document.createElement("button");
    save.type = "button";
    save.className = "save";
    save.textContent = "SVG";
    save.addEventListener("click", () => {
      const aside = document.createElement("div");
      Object.assign(aside.style, { width: `${element.clientWidth}px`, height: `${element.clientHeight}px` });
      const drawn = echarts.init(aside, null, {
        renderer: "svg", width: element.clientWidth, height: element.clientHeight,
      });
      drawn.setOption({ animation: false, ...option() });
      sweeper.download(`${sweeper.data.study}-${element.id || element.dataset.column}.svg`, drawn.getDataURL());
      drawn.dispose();
    });
    element.before(save);
  }

  sweeper.download = (name, url) => {
    const link = document.createElement("a");
    Object.assign(link, { download: name, href: url });
    link.click();
  };

  const escaped = (text) =>
    String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  /* Return the description of a trial for a tooltip, as HTML. */
  sweeper.describe = (run_id) => {
    const trial = sweeper.trial(run_id);
    if (!trial) return "";
    const pairs = { ...trial.scores, ...trial.params };
    const rows = Object.entries(pairs).slice(0, 20).map(
      ([name, value]) => `${escaped(name)}: ${escaped(sweeper.text(value))}`,
    );
    return [`<b>${escaped(run_id)}</b> ${escaped(trial.state)}`, ...rows].join("<br>");
  };

  const tooltip = {
    formatter: (event) => (event.data?.run_id ? sweeper.describe(event.data.run_id) : ""),
    confine: true,
  };

  function axis(name, more = {}) {
    const colours = sweeper.colours();
    return {
      name, nameLocation: "middle", nameGap: 28, scale: true,
      nameTextStyle: { color: colours.soft }, axisLabel: { color: colours.soft, hideOverlap: true },
      axisLine: { lineStyle: { color: colours.line } },
      splitLine: { lineStyle: { color: colours.line, opacity: 0.5 } },
      ...more,
    };
  }

  const valueAxis = (name) => axis(name, { type: "value", nameGap: 48, axisLabel: {
    color: sweeper.colours().soft, formatter: (v) => sweeper.text(+v.toPrecision(4)) } });

  function point(trial, value, scale, chosen) {
    const isChosen = chosen.has(trial.run_id);
    return {
      value, run_id: trial.run_id,
      itemStyle: { color: scale.of(trial), opacity: isChosen ? 0.9 : 0.12 },
    };
  }

  const chosen = () => new Set(sweeper.selected().map((trial) => trial.run_id));
  const grid = { left: 66, right: 18, top: 16, bottom: 44 };
  const hasGoal = (trial) => sweeper.isNumber(trial.scores[state.goal]);

  function history() {
    const scale = sweeper.colourScale();
    const picked = chosen();
    const done = sweeper.data.all.filter((t) => t.state === "completed" && hasGoal(t));
    const isBetter = sweeper.goal().direction === "minimize" ? (a, b) => a < b : (a, b) => a > b;
    let best;
    const line = done.map((trial) => {
      const value = trial.scores[state.goal];
      if (best === undefined || isBetter(value, best)) best = value;
      return [+trial.run_id, best];
    });
    return {
      grid, tooltip, xAxis: axis("trial", { type: "value", minInterval: 1 }),
      yAxis: valueAxis(state.goal),
      series: [
        {
          type: "scatter", symbolSize: 8,
          data: done.map((t) => point(t, [+t.run_id, t.scores[state.goal]], scale, picked)),
        },
        {
          type: "line", step: "end", showSymbol: false, data: line, silent: true,
          lineStyle: { color: sweeper.colours().ink, width: 1.5 },
        },
      ],
    };
  }

  function importance() {
    const found = Object.entries(sweeper.data.importances[state.goal] || {}).reverse();
    const colours = sweeper.colours();
    const percent = (v) => `${Math.round(100 * v)} %`;
    return {
      grid: { ...grid, left: 20, containLabel: true },
      tooltip: { valueFormatter: (v) => `${(100 * v).toFixed(1)} %` },
      xAxis: axis("share", {
        type: "value", max: 1, axisLabel: { color: colours.soft, formatter: percent, hideOverlap: true },
      }),
      yAxis: axis("", {
        type: "category", data: found.map(([name]) => name), axisLabel: { color: colours.ink },
      }),
      series: [
        {
          type: "bar", data: found.map(([, [share]]) => share), itemStyle: { color: colours.accent },
        },
        ...found.map(([name, [, low, high]]) => ({
          type: "line", data: [[low, name], [high, name]], symbol: "rect", symbolSize: [2, 9],
          lineStyle: { color: colours.ink, width: 1.5 }, itemStyle: { color: colours.ink },
        })),
      ],
    };
  }

  function slice(column) {
    const place = (t) => (column.categories ? String(column.of(t)) : column.of(t));
    const scale = sweeper.colourScale();
    const picked = chosen();
    const points = sweeper.data.all
      .filter((t) => t.state === "completed" && hasGoal(t) && column.of(t) !== undefined)
      .map((t) => point(t, [place(t), t.scores[state.goal]], scale, picked));
    const x = column.categories
      ? axis(column.name, { type: "category", data: column.categories })
      : axis(column.name, { type: column.isLog ? "log" : "value" });
    return {
      grid: { ...grid, left: 58 }, tooltip, xAxis: x, yAxis: valueAxis(""),
      series: { type: "scatter", symbolSize: 6, data: points },
    };
  }

  function pair() {
    const [x, y] = (state.pair || []).map((key) => sweeper.columns.params.find((c) => c.key === key));
    if (!x || !y) return {};
    const scale = sweeper.colourScale();
    const picked = chosen();
    const place = (column, t) => (column.categories ? String(column.of(t)) : column.of(t));
    const axisOf = (column, more) => axis(column.name, column.categories
      ? { type: "category", data: column.categories, ...more }
      : { type: column.isLog ? "log" : "value", ...more });
    const points = sweeper.data.all
      .filter((t) => t.state === "completed" && hasGoal(t))
      .filter((t) => x.of(t) !== undefined && y.of(t) !== undefined)
      .map((t) => point(t, [place(x, t), place(y, t)], scale, picked));
    return {
      grid: { ...grid, left: 90 }, tooltip, xAxis: axisOf(x, {}), yAxis: axisOf(y, { nameGap: 70 }),
      series: { type: "scatter", symbolSize: 11, data: points },
    };
  }

  function pareto() {
    const [first, second] = sweeper.data.objectives;
    const scale = sweeper.colourScale();
    const picked = chosen();
    const best = new Set(sweeper.data.best);
    const points = sweeper.data.all
      .filter((t) => sweeper.isNumber(t.scores[first.name]) && sweeper.isNumber(t.scores[second.name]))
      .map((t) => ({
        ...point(t, [t.scores[first.name], t.scores[second.name]], scale, picked),
        symbolSize: best.has(t.run_id) ? 14 : 7,
      }));
    const front = points.filter((p) => best.has(p.run_id)).map((p) => p.value).sort((a, b) => a[0] - b[0]);
    return {
      grid, tooltip, xAxis: axis(`${first.name} (${first.direction})`, { type: "value" }),
      yAxis: valueAxis(`${second.name} (${second.direction})`),
      series: [
        { type: "scatter", data: points },
        {
          type: "line", data: front, showSymbol: false, silent: true,
          lineStyle: { color: sweeper.colours().ink, type: "dashed", width: 1 },
        },
      ],
    };
  }

  function memory() {
    const scale = sweeper.colourScale();
    const picked = chosen();
    const { memory: column } = sweeper.columns;
    const points = sweeper.data.all
      .filter((t) => column.of(t) !== undefined)
      .map((t) => point(t, [t.duration_s, column.of(t)], scale, picked));
    return {
      grid, tooltip, xAxis: axis("duration [s]", { type: "value" }), yAxis: valueAxis(column.name),
      series: { type: "scatter", symbolSize: 8, data: points },
    };
  }

  /* Return the points of a trial's curve, smoothed if the reader has chosen it. */
  function pointsOf(trial) {
    const [steps, values] = curves[trial.run_id]?.[1]?.[state.metric] || [[], []];
    const isDrawn = (v) => sweeper.isNumber(v) && (!state.isLog || v > 0);
    const points = steps.map((step, i) => [step, values[i]]).filter((p) => isDrawn(p[1]));
    const share = state.smooth / 10;
    let last = points[0]?.[1];
    return points.map(([step, v]) => [step, (last = share * last + (1 - share) * v)]);
  }

  function drawnBands() {
    const bands = sweeper.bands(pointsOf).filter((band) => band.points.length);
    const colours = sweeper.colours();
    const [low, high] = [(p) => p[1] - p[2], (p) => p[1] + p[2]];
    return {
      grid: { ...grid, top: 34 }, legend: { data: bands.map((band) => band.value), textStyle: { color: colours.ink } },
      xAxis: axis("step", { type: "value" }),
      yAxis: { ...valueAxis(state.metric), type: state.isLog ? "log" : "value" },
      series: bands.flatMap(({ value, points }, i) => {
        const color = sweeper.palette[i % sweeper.palette.length];
        return [
          {
            type: "line", name: value, showSymbol: false, itemStyle: { color }, lineStyle: { color },
            data: points.map((p) => [p[0], p[1]]),
          },
          {
            type: "custom", silent: true, itemStyle: { color, opacity: 0.2 }, data: [points[0]],
            renderItem: (_, api) => ({
              type: "polygon", style: api.style(),
              shape: {
                points: [...points.map((p) => api.coord([p[0], high(p)])),
                  ...points.map((p) => api.coord([p[0], low(p)])).reverse()],
              },
            }),
          },
        ];
      }),
    };
  }

  function drawnCurves() {
    if (curves === null) return {};
    if (state.group) return drawnBands();
    const scale = sweeper.colourScale();
    const colours = sweeper.colours();
    const lines = [];
    for (const trial of sweeper.selected()) {
      const coords = pointsOf(trial);
      if (coords.length < 1) continue;
      const isPruned = trial.state === "pruned";
      lines.push({
        run_id: trial.run_id, coords: coords.length > 1 ? coords : [coords[0], coords[0]],
        lineStyle: {
          color: isPruned ? colours.soft : scale.of(trial), width: isPruned ? 1 : 1.6,
          opacity: 0.7, type: isPruned ? "dashed" : "solid",
        },
      });
    }
    const pruned = lines.filter((line) => line.lineStyle.type === "dashed");
    const all = lines.flatMap((line) => line.coords);
    const [xs, ys] = [0, 1].map((i) => all.map((p) => p[i]));
    const range = (vs) => vs.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const [[left, right], [low, high]] = [range(xs), range(ys)];
    return {
      grid, tooltip,
      xAxis: axis("step", { type: "value", min: all.length ? left : 0, max: all.length ? right : 1 }),
      yAxis: {
        ...valueAxis(state.metric), type: state.isLog ? "log" : "value",
        ...(all.length && low < high ? { min: low, max: high } : {}),
      },
      series: [
        { type: "lines", coordinateSystem: "cartesian2d", polyline: true, data: lines },
        {
          type: "scatter", symbolSize: 5, itemStyle: { color: colours.soft },
          data: pruned.map((line) => ({ value: line.coords.at(-1), run_id: line.run_id })),
        },
      ],
    };
  }

  const stateColours = {
    completed: "#2a9d6f", pruned: "#8d99a6", failed: "#d1495b", stopped: "#c9a227", running: "#3b82c4",
  };

  /* Assign each trial to the first free lane, so that trials that ran at the same time differ. */
  function timeline() {
    const now = sweeper.data.written_at_s;
    const ran = sweeper.data.all
      .filter((t) => t.started_at_s > 0)
      .map((t) => {
        const length = t.state === "running" ? Math.max(0, now - t.started_at_s) : t.duration_s;
        return { trial: t, from: t.started_at_s, to: t.started_at_s + length };
      })
      .sort((a, b) => a.from - b.from);
    const ends = [];
    for (const item of ran) {
      let lane = ends.findIndex((end) => end <= item.from + 0.05);
      if (lane < 0) lane = ends.length;
      ends[lane] = item.to;
      item.lane = lane;
    }
    byId("timeline").style.height = `${Math.min(600, 90 + 22 * ends.length)}px`;
    charts.get(byId("timeline")).resize();
    const colours = sweeper.colours();
    const picked = chosen();
    return {
      grid: { ...grid, left: 40 }, tooltip,
      xAxis: axis("", { type: "time", axisLabel: { color: colours.soft, hideOverlap: true } }),
      yAxis: axis("slot", { type: "category", data: ends.map((_, i) => i + 1), nameGap: 24 }),
      dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl" }],
      series: {
        type: "custom", encode: { x: [0, 1], y: 2 },
        renderItem(params, api) {
          const [from, to] = [0, 1].map((i) => api.coord([api.value(i), api.value(2)]));
          const height = api.size([0, 1])[1] * 0.7;
          const shape = echarts.graphic.clipRectByRect(
            { x: from[0], y: from[1] - height / 2, width: Math.max(1.5, to[0] - from[0]), height },
            params.coordSys,
          );
          return shape && { type: "rect", shape, style: api.style() };
        },
        data: ran.map(({ trial, from, to, lane }) => ({
          value: [from * 1000, to * 1000, lane], run_id: trial.run_id,
          itemStyle: {
            color: stateColours[trial.state] || "grey", opacity: picked.has(trial.run_id) ? 1 : 0.25,
            borderColor: colours.ground, borderWidth: 1,
          },
        })),
      },
    };
  }

  /* --- all charts ----------------------------------------------------------------------------- */

  sweeper.curves = (known) => {
    curves = known;
    const metrics = new Set();
    for (const [, series] of Object.values(known)) for (const name in series) metrics.add(name);
    const names = [...metrics].sort();
    byId("curves-section").hidden = names.length === 0;
    byId("curves-about").hidden = Object.keys(known).length < 500;
    if (!names.includes(state.metric)) {
      state.metric = names.includes(state.goal) ? state.goal : names[0] || null;
    }
    sweeper.fillSelect(byId("metric"), names.map((name) => [name, name]), state.metric);
    sweeper.mark(byId("curves"));
  };

  byId("metric").addEventListener("change", (event) => {
    state.metric = event.target.value;
    sweeper.mark(byId("curves"));
    sweeper.changed("open");
  });

  byId("log").addEventListener("change", (event) => {
    state.isLog = event.target.checked;
    sweeper.mark(byId("curves"));
    sweeper.changed("open");
  });
  byId("smooth").addEventListener("input", (event) => {
    state.smooth = Number(event.target.value);
    sweeper.mark(byId("curves"));
    sweeper.changed("open");
  });

  function arrange() {
    const { data, columns } = sweeper;
    byId("log").checked = state.isLog;
    byId("smooth").value = state.smooth;
    byId("pareto-section").hidden = data.objectives.length < 2;
    byId("memory-section").hidden = data.all.every((t) => t.gpu_peak_bytes === undefined);
    const varied = columns.params.filter((column) => !column.isConstant);
    byId("slices-section").hidden = varied.length === 0;
    const hasImportance = Object.keys(data.importances[state.goal] || {}).length > 0;
    byId("importance-section").hidden = !hasImportance;
    byId("remark").textContent = data.remark;
    byId("history").parentElement.classList.toggle("wide", !hasImportance);
    const names = [...byId("slices").querySelectorAll(".chart")].map((element) => element.dataset.column);
    if (names.join() !== varied.map((c) => c.key).join()) {
      for (const element of byId("slices").querySelectorAll(".chart")) forget(element);
      byId("slices").replaceChildren(
        ...varied.map((column) => {
          const element = document.createElement("div");
          element.className = "chart";
          element.dataset.column = column.key;
          const frame = document.createElement("div");
          frame.append(element);
          return frame;
        }),
      );
      for (const element of byId("slices").querySelectorAll(".chart")) {
        add(element, () => slice(sweeper.columns.params.find((c) => c.key === element.dataset.column)));
      }
    }
  }

  function forget(element) {
    sweeper.forget(element);
    charts.get(element)?.dispose();
    charts.delete(element);
  }

  let n_curves = -1;

  sweeper.onChange((what) => {
    if (what === "open" || what === "table") return;
    if (what === "all") {
      arrange();
      const ended = sweeper.data.all.filter((t) => !["running", "frozen"].includes(t.state)).length;
      if (ended !== n_curves) sweeper.load("curves.js");
      n_curves = ended;
    }
    for (const element of charts.keys()) sweeper.mark(element);
  });

  add(byId("history"), history);
  add(byId("importance"), importance);
  add(byId("curves"), drawnCurves);
  add(byId("pair"), pair);
  add(byId("pareto"), pareto);
  add(byId("memory"), memory);
  add(byId("timeline"), timeline);
  addEventListener("resize", () => {
    for (const chart of charts.values()) chart?.resize();
  });
}
