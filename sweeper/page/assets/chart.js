"use strict";
/* What all charts have in common: when they are drawn, their axes, the description under the pointer,
   and the menu that saves them. Each chart registers with `sweeper.chart`. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const charts = new Map(); // by element: the chart of ECharts, null before it is first in view
  const MOST_POINTS = 2000; // most points in one chart (chosen, not measured)

  /* --- the description under the pointer ------------------------------------------------------ */

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);

  /* Show a description next to the pointer, as HTML. Null hides it. */
  sweeper.tip = (html, event) => {
    tip.hidden = !html;
    if (!html) return;
    if (tip.dataset.of !== html) tip.innerHTML = html;
    tip.dataset.of = html;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(innerHeight - height - 4, event.clientY + 12))}px`;
  };

  sweeper.escaped = (text) =>
    String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  /* Return rows of a description as HTML: [name, value, colour of a dot, whether it is marked]. */
  sweeper.rows = (rows) => {
    const lines = rows.map(([name, value, colour, isMarked]) => {
      const dot = colour ? `<i class="dot" style="background:${colour}"></i>` : "";
      return `<tr${isMarked ? ' class="marked"' : ""}><th>${dot}${sweeper.escaped(name)}</th><td>${sweeper.escaped(value)}</td></tr>`;
    });
    return `<table>${lines.join("")}</table>`;
  };

  /* Return the description of a trial as HTML, with the values that the table shows. */
  sweeper.describe = (run_id) => {
    const trial = sweeper.trial(run_id);
    if (!trial) return "";
    const { goals, scores, params, duration, memory } = sweeper.columns;
    const rows = [...goals, ...scores, ...params, duration, memory]
      .filter((column) => column.of(trial) !== undefined)
      .map((column) => [column.name, numbers.text(column.of(trial), 5)]);
    if (trial.gpu_busy_share !== undefined) rows.push(["GPU busy", numbers.percent(trial.gpu_busy_share)]);
    const why = [trial.reason, trial.message].filter(Boolean).join(": ");
    const { trial_name, note, starred } = sweeper.noteOf(run_id);
    const head = `<b>${sweeper.escaped([run_id, trial_name].filter(Boolean).join(" "))}</b> ${starred ? "★ " : ""}${sweeper.escaped(trial.state)}`;
    return head + (note ? `<p>${sweeper.escaped(note.slice(0, 200))}</p>` : "") + (why ? `<p>${sweeper.escaped(why.slice(0, 200))}</p>` : "") + sweeper.rows(rows);
  };

  /* --- the menu of a chart --------------------------------------------------------------------- */

  sweeper.download = (name, url) => {
    const link = document.createElement("a");
    Object.assign(link, { download: name, href: url });
    link.click();
  };

  /* Return rows of cells as a data URL of a file with comma-separated values. */
  sweeper.csv = (rows) => {
    const quoted = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
    const lines = rows.map((row) => row.map(quoted).join(","));
    return `data:text/csv;charset=utf-8,${encodeURIComponent(lines.join("\r\n"))}`;
  };

  /* Add a menu to a chart's heading, whose entries save a file.
     entries: by the ending of the file, a function that returns its URL. */
  sweeper.addMenu = (element, name, entries) => {
    const menu = document.createElement("details");
    menu.className = "menu";
    const summary = document.createElement("summary");
    summary.textContent = "⋯";
    summary.setAttribute("aria-label", `save ${name}`);
    menu.append(summary, ...Object.entries(entries).map(([kind, address]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind.toUpperCase();
      button.addEventListener("click", () => {
        menu.open = false;
        sweeper.download(`${sweeper.data.study}-${name}.${kind}`, address());
      });
      return button;
    }));
    menu.addEventListener("focusout", (event) => {
      if (!menu.contains(/** @type {Node} */ (event.relatedTarget))) menu.open = false;
    });
    const heading = element.closest("section").querySelector("h2");
    if (element.closest("#slices")) element.before(menu);
    else heading.append(menu);
  };

  function svgOf(element, option) {
    const size = { width: element.clientWidth, height: element.clientHeight };
    const drawn = echarts.init(document.createElement("div"), null, { renderer: "svg", ...size });
    drawn.setOption({ animation: false, ...option() });
    const url = drawn.getDataURL();
    drawn.dispose();
    return url;
  }

  /* --- a chart --------------------------------------------------------------------------------- */

  /* Register a chart. Its section is hidden while it has nothing to show.

     id or element: the element in which it is drawn.
     option: returns what ECharts draws. A point with `run_id` has a description and opens a notebook.
     isEmpty: returns whether there is nothing to show.
     csv: returns the rows of its file. By default, these are the selected trials.
     onHover: called with the chart and the event when the pointer moves. The chart then shows no
     descriptions of points.
     height: returns the height of the element in pixels. By default, the style sheet decides. */
  sweeper.chart = ({ id, element = byId(id), name = id, option, isEmpty, csv, onHover, height }) => {
    const section = element.closest("section");
    sweeper.whenVisible(element, () => {
      let chart = charts.get(element);
      if (height) element.style.height = `${height()}px`;
      if (!chart) {
        chart = echarts.init(element);
        listen(chart, element, onHover);
        charts.set(element, chart);
      }
      chart.resize();
      const drawn = option();
      element.toggleAttribute("data-cut", hasCut(drawn)); // The style sheet then explains triangles.
      chart.setOption({ animation: false, aria: { enabled: true }, ...drawn }, { notMerge: true });
    });
    charts.set(element, null);
    sweeper.addMenu(element, name, {
      svg: () => svgOf(element, option), csv: () => sweeper.csv((csv || sweeper.tableRows)()),
    });
    if (isEmpty) {
      sweeper.onChange((what) => {
        if (what === "all" || what === "selection") section.hidden = isEmpty();
      });
    }
  };

  /* Return whether a chart has points beyond the end of an axis. Such a point is drawn as a triangle at
     the end of the axis. */
  const hasCut = ({ series = [] }) =>
    [].concat(series).some(({ data = [] }) => data.some((point) => point?.symbol === "triangle"));

  function listen(chart, element, onHover) {
    chart.on("click", (event) => event.data?.run_id && sweeper.open(event.data.run_id));
    if (onHover) {
      chart.getZr().on("mousemove", (event) => onHover(chart, event));
    } else {
      chart.on("mousemove", ({ data, event }) => {
        if (data?.run_id) sweeper.tip(sweeper.describe(data.run_id), event.event);
        else if (data?.about) sweeper.tip(data.about, event.event);
      });
      chart.on("mouseout", () => sweeper.tip(null));
    }
    element.addEventListener("pointerleave", () => sweeper.tip(null));
  }

  sweeper.forgetChart = (element) => {
    sweeper.forget(element);
    charts.get(element)?.dispose();
    charts.delete(element);
  };

  /* --- axes and points ------------------------------------------------------------------------- */

  sweeper.grid = { left: 58, right: 14, top: 12, bottom: 40 };

  /* Return an axis of ECharts. */
  sweeper.axis = (name, more = {}) => {
    const colours = sweeper.colours();
    return {
      name, nameLocation: "middle", nameGap: 26, scale: true, type: "value",
      nameTextStyle: { color: colours.soft },
      axisLine: { lineStyle: { color: colours.line } },
      splitLine: { lineStyle: { color: colours.line, opacity: 0.5 } },
      ...more,
      axisLabel: {
        color: colours.soft, hideOverlap: true, formatter: (v) => numbers.text(v, 6), ...more.axisLabel,
      },
    };
  };

  const ticked = (ticks, label) => ({
    axisTick: { customValues: ticks }, axisLabel: { customValues: ticks, formatter: label },
    splitLine: { lineStyle: { color: sweeper.colours().line, opacity: 0.5 }, customValues: ticks },
  });

  /* Return an axis of numbers from `low` to `high`, with round ticks. */
  sweeper.roundAxis = (name, low, high, more = {}) => {
    const pad = (high - low || Math.abs(low) || 1) * 0.05;
    const [min, max] = [low - pad, high + pad];
    const { isWhole, most = 6, ...rest } = more;
    const ticks = numbers.ticks(min, max, most, isWhole);
    const texts = new Map(numbers.tickTexts(ticks).map((text, i) => [ticks[i], text]));
    const label = (v) => texts.get(+v.toPrecision(12)) ?? numbers.text(v, 6);
    return sweeper.axis(name, { min, max, nameGap: 44, ...ticked(ticks, label), ...rest });
  };

  /* Return a logarithmic axis. Values are drawn at their log10. */
  sweeper.logAxis = (name, low, high, more = {}) => {
    const [min, max] = [Math.log10(low), Math.log10(high)];
    const pad = (max - min || 0.1) * 0.04;
    const ticks = numbers.logTicks(10 ** (min - pad), 10 ** (max + pad)).map((v) => Math.log10(v));
    const label = (at) => numbers.text(+(10 ** at).toPrecision(9), 6);
    return sweeper.axis(name, { min: min - pad, max: max + pad, nameGap: 44, ...ticked(ticks, label), ...more });
  };

  /* Return the axis of a param or a score. `scale` comes from scales.js, and values are drawn at
     `scale.position(trial)`. */
  sweeper.columnAxis = (scale, more = {}) => {
    const pad = scale.places ? 0.6 : (scale.high - scale.low) * 0.05;
    const ticks = scale.ticks.filter((at) => at !== scale.missing);
    const cut = (words) => (words.length > 18 ? `${words.slice(0, 17)}…` : words);
    const high = scale.places ? scale.places.length - 1 : scale.high;
    return sweeper.axis(scale.column.name, {
      min: scale.low - pad, max: high + pad, ...ticked(ticks, (at) => cut(scale.label(at))), ...more,
    });
  };

  /* Return the ends of an objective's axis, and `at`, which gives the position of a value. Outliers,
     for which `isCut` is true, are drawn at the ends. */
  sweeper.goalScale = (trials, of) => {
    const [low, high] = numbers.ends(trials.map(of));
    const at = (value) => Math.max(low, Math.min(high, value));
    return { low, high, at, isCut: (value) => value < low || value > high };
  };

  sweeper.hasGoal = (trial) => trial.state === "completed" && numbers.isNumber(trial.scores[state.goal]);
  sweeper.end_s = (trial) => trial.ended_at_s ?? sweeper.data.written_at_s;

  /* Return the trials that a chart of points shows: all, or every k-th and the best if they are many. */
  sweeper.sampled = (trials) => {
    const every = Math.ceil(trials.length / MOST_POINTS);
    const best = new Set(sweeper.data.best);
    return trials.filter((trial, i) => i % every === 0 || best.has(trial.run_id));
  };

  let [chosen, chosenOf] = [null, null];
  sweeper.isChosen = (trial) => {
    const selected = sweeper.selected();
    if (chosenOf !== selected) chosen = new Set(selected);
    chosenOf = selected;
    return chosen.has(trial);
  };

  /* Return the point of a trial for ECharts. Points of trials that are not selected are faint. */
  sweeper.point = (trial, value, isCut = false) => ({
    value, run_id: trial.run_id, ...(isCut ? { symbol: "triangle" } : {}),
    itemStyle: {
      color: sweeper.isChosen(trial) ? sweeper.colourScale().of(trial) : sweeper.colours().faint,
      opacity: sweeper.isChosen(trial) ? 0.85 : 0.2,
    },
  });

  /* Return the trials that a chart shows, in the order of drawing: selected trials are on top. */
  sweeper.layered = (trials) => {
    const isChosen = (trial) => Number(sweeper.isChosen(trial));
    return [...sweeper.sampled(trials)].sort((a, b) => isChosen(a) - isChosen(b));
  };

  sweeper.onChange((what) => {
    if (what === "open" || what === "table") return;
    for (const element of charts.keys()) sweeper.mark(element);
  });
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => charts.forEach((chart, element) => chart && sweeper.mark(element)), 100);
  });
}
