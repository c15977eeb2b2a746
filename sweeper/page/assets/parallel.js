"use strict";
/* Parallel coordinates: one axis for each param and score, one line for each trial. */

{
  const { state } = sweeper;
  const element = document.getElementById("parallel");
  const list = document.getElementById("axes");
  let chart = null;
  let axes = [];
  let isRestoring = false;
  let margins = { left: 60, right: 60 };

  /* An axis in the scale in which it is drawn: log10 for logarithmic params, places for
     categories. Trials without a value lie at `missing`, below all others. */
  function axisFor(column) {
    const values = sweeper.data.all.map(column.of);
    const isMissing = values.some((v) => v === undefined || (!column.categories && !sweeper.isNumber(v)));
    if (column.categories) {
      const places = [...column.categories, ...(isMissing ? ["n/a"] : [])];
      const position = (trial) => {
        const value = column.of(trial);
        return value === undefined ? places.length - 1 : places.indexOf(String(value));
      };
      return { column, position, places };
    }
    const scale = column.isLog ? Math.log10 : (v) => v;
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (!sweeper.isNumber(value)) continue;
      low = Math.min(low, scale(value));
      high = Math.max(high, scale(value));
    }
    if (low > high) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const known = values.filter(sweeper.isNumber).map(scale).sort((a, b) => a - b);
    const quantile = (share) => known[Math.round(share * (known.length - 1))];
    const distinct = [...new Set(known)];
    const missing = low - (high - low) * 0.12;
    const position = (trial) => {
      const value = column.of(trial);
      return sweeper.isNumber(value) ? scale(value) : missing;
    };
    // With ten values or more, the colours ignore the outermost 5 % at each end: one value far off
    // would give all others the same colour.
    let colours = known.length < 10 ? [low, high] : [quantile(0.05), quantile(0.95)];
    if (colours[0] === colours[1]) colours = [low, high];
    return { column, position, low, high, colours, distinct, missing: isMissing ? missing : null };
  }

  function allAxes() {
    const { params, goals, scores } = sweeper.columns;
    const varied = params.filter((column) => !column.isConstant);
    const known = new Map([...varied, ...goals, ...scores].map((c) => [c.name, c]));
    const usual = [...varied, ...goals].map((c) => c.name);
    const order = [...new Set([...state.axes, ...usual, ...known.keys()])].filter((n) => known.has(n));
    const isOff = (name) => state.hidden.has(name) || (!usual.includes(name) && !state.axes.includes(name));
    return order.map((name) => ({ ...axisFor(known.get(name)), name, isShown: !isOff(name) }));
  }

  let axesOf = null; // the data that the axes were made of

  sweeper.axisOf = (name) => {
    if (axesOf !== sweeper.data) axes = allAxes();
    axesOf = sweeper.data;
    return axes.find((axis) => axis.name === name);
  };

  /* --- colours -------------------------------------------------------------------------------- */

  const palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#888"];
  sweeper.palette = palette;

  sweeper.colourScale = () => {
    const { goals, scores, params, duration } = sweeper.columns;
    const key = state.colour || `score.${state.goal}`;
    const column = [...goals, ...scores, ...params, duration].find((c) => c.key === key);
    const axis = axisFor(column);
    const grey = sweeper.isDark() ? "#5b6470" : "#b4bac2";
    const of = (trial) => {
      const value = column.of(trial);
      if (axis.places) return value === undefined ? grey : palette[axis.position(trial) % palette.length];
      if (!sweeper.isNumber(value)) return grey;
      const [low, high] = axis.colours;
      return sweeper.shade((axis.position(trial) - low) / (high - low));
    };
    return { column, axis, of };
  };

  function text(words) {
    const span = document.createElement("span");
    span.textContent = words;
    return span;
  }

  function drawLegend(scale) {
    const legend = document.getElementById("legend");
    const { column, axis } = scale;
    const parts = [text(column.name)];
    if (axis.places) {
      axis.places.forEach((place, i) => {
        const dot = document.createElement("i");
        dot.className = "dot";
        dot.style.background = place === "n/a" ? "grey" : palette[i % palette.length];
        parts.push(dot, text(place));
      });
    } else {
      const bar = document.createElement("i");
      const stops = [0, 0.25, 0.5, 0.75, 1].map(sweeper.shade);
      bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
      const back = column.isLog ? (v) => 10 ** v : (v) => v;
      const [low, high] = axis.colours.map((at) => sweeper.text(back(at)));
      const isCut = axis.colours[0] > axis.low || axis.colours[1] < axis.high;
      parts.push(text((isCut ? "≤ " : "") + low), bar, text((isCut ? "≥ " : "") + high), text("grey: n/a"));
    }
    legend.replaceChildren(...parts);
  }

  /* --- the chart ------------------------------------------------------------------------------- */

  function label(axis, value) {
    if (axis.missing !== null && value < axis.low - (axis.high - axis.low) * 0.06) {
      return Math.abs(value - axis.missing) < 1e-9 * Math.max(1, Math.abs(value)) ? "n/a" : "";
    }
    return sweeper.text(axis.column.isLog ? +(10 ** value).toPrecision(3) : +value.toPrecision(4));
  }

  function ticks(axis) {
    const { low, high, missing, column, distinct } = axis;
    const span = high - low;
    let steps;
    if (distinct.length > 1 && distinct.length <= 6) steps = distinct;
    else if (column.isLog && span >= 1) {
      const every = Math.ceil(span / 6);
      steps = [];
      for (let at = Math.ceil(low); at <= high; at += every) steps.push(at);
      for (const end of [low, high]) {
        if (steps.every((at) => Math.abs(at - end) > span / 12)) steps.push(end);
      }
    } else {
      steps = [0, 1, 2, 3, 4, 5].map((i) => low + (span * i) / 5);
      if (column.isWhole && !column.isLog) steps = [...new Set(steps.map(Math.round))];
    }
    return missing === null ? steps : [missing, ...steps];
  }

  /* Return an axis's distance from the chart's left edge in pixels, or undefined if it is hidden. */
  sweeper.placeOf = (name) => {
    const index = axes.filter((axis) => axis.isShown).findIndex((axis) => axis.name === name);
    const span = chart.getWidth() - margins.left - margins.right;
    const n_gaps = Math.max(1, axes.filter((axis) => axis.isShown).length - 1);
    return index < 0 ? undefined : margins.left + (index * span) / n_gaps;
  };

  function optionOf(axis, index, colours) {
    const common = {
      id: axis.name, dim: index, name: axis.name, nameLocation: "end", nameGap: 12,
      nameTextStyle: { color: colours.ink, fontWeight: 600 },
      axisLine: { lineStyle: { color: colours.line } },
      axisLabel: {
        color: colours.ink, backgroundColor: colours.ground, padding: [1, 3], borderRadius: 2,
      },
      areaSelectStyle: { width: 22, color: colours.accent, borderColor: colours.accent, opacity: 0.25 },
    };
    if (axis.places) return { ...common, type: "category", data: axis.places };
    const at = ticks(axis);
    return {
      ...common, type: "value", scale: true, max: axis.high,
      // Leave a little space below, so that a range can be dragged around "n/a".
      min: axis.missing === null ? axis.low : axis.missing - (axis.high - axis.low) * 0.04,
      axisLabel: { ...common.axisLabel, customValues: at, formatter: (v) => label(axis, v) },
      axisTick: { customValues: at },
    };
  }

  function widest(axis) {
    const texts = axis.places || ticks(axis).map((at) => label(axis, at));
    return Math.max(axis.name.length, ...texts.map((text) => text.length)) * 7.5 + 40;
  }

  sweeper.colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      ink: of("--ink"), soft: of("--soft"), line: of("--line"), accent: of("--accent"),
      ground: of("--panel"),
    };
  };

  function draw() {
    axes = allAxes();
    const visible = axes.filter((axis) => axis.isShown);
    const trials = sweeper.found();
    const scale = sweeper.colourScale();
    const colours = sweeper.colours();
    const width = visible.reduce((sum, axis) => sum + Math.max(90, widest(axis)), 60);
    if (visible.length) {
      margins = { left: widest(visible[0]) / 2, right: widest(visible.at(-1)) / 2 + 30 };
    }
    element.style.width = `max(100%, ${Math.round(width)}px)`;
    if (chart === null) {
      chart = echarts.init(element);
      chart.on("axisareaselected", brushed);
      chart.on("click", (event) => event.data && sweeper.open(event.data.name));
    }
    chart.resize();
    const opacity = trials.length > 500 ? 0.4 : 0.75;
    // Without a GPU, browsers draw hairlines five times as fast as slightly wider lines.
    const width_px = trials.length > 200 ? 1 : 1.4;
    chart.setOption({
      animation: false,
      aria: { enabled: true },
      textStyle: { color: colours.ink },
      tooltip: {
        formatter: (event) => (event.data ? sweeper.describe(event.data.name) : ""),
      },
      parallel: { ...margins, top: 40, bottom: 20, axisExpandable: false },
      parallelAxis: visible.map((axis, index) => optionOf(axis, index, colours)),
      series: {
        type: "parallel", inactiveOpacity: 0.03, activeOpacity: opacity, progressive: 0,
        emphasis: { disabled: true },
        data: trials.map((trial) => ({
          name: trial.run_id,
          value: visible.map((axis) => axis.position(trial)),
          lineStyle: { color: scale.of(trial), width: width_px, opacity },
        })),
      },
    }, { notMerge: true });
    drawLegend(scale);
    drawNames();
    isRestoring = true;
    for (const { name } of visible) {
      const intervals = state.brush[name];
      if (intervals) chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: name, intervals });
    }
    isRestoring = false;
  }

  function brushed(event) {
    if (isRestoring) return;
    for (const { parallelAxisId: name, intervals } of event.batch || [event]) {
      if (intervals && intervals.length) state.brush[name] = intervals;
      else delete state.brush[name];
    }
    later(() => sweeper.changed("brush")); // the lines follow at once, all else when it rests
  }

  let timer = 0;

  function later(call) {
    clearTimeout(timer);
    timer = setTimeout(call, 200);
  }

  /* --- the names of the axes: their order, and which are hidden ------------------------------- */

  function drawNames() {
    const focused = document.activeElement?.dataset?.axis;
    list.replaceChildren(
      ...axes.map((axis) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.draggable = true;
        button.dataset.axis = axis.name;
        button.textContent = axis.name;
        button.setAttribute("aria-pressed", String(axis.isShown));
        button.title = axis.isShown ? "click hides the axis" : "click adds the axis";
        button.addEventListener("click", () => toggle(axis));
        button.addEventListener("keydown", (event) => onKey(event, axis.name));
        button.addEventListener("dragstart", (event) => {
          event.dataTransfer.setData("text/plain", axis.name);
        });
        button.addEventListener("dragover", (event) => event.preventDefault());
        button.addEventListener("drop", (event) => {
          event.preventDefault();
          move(event.dataTransfer.getData("text/plain"), axis.name);
        });
        item.append(button);
        return item;
      }),
    );
    if (focused) list.querySelector(`[data-axis="${CSS.escape(focused)}"]`)?.focus();
  }

  function toggle(axis) {
    state.axes = axes.filter((a) => a.isShown || a === axis).map((a) => a.name);
    if (axis.isShown) {
      state.hidden.add(axis.name);
      state.axes = state.axes.filter((name) => name !== axis.name);
      delete state.brush[axis.name];
    } else state.hidden.delete(axis.name);
    sweeper.changed("selection");
  }

  function onKey(event, name) {
    const names = axes.map((axis) => axis.name);
    const at = names.indexOf(name);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by !== undefined && names[at + by] !== undefined) {
      event.preventDefault();
      swap(at, at + by);
    }
    if (event.key === "Delete" && axes[at].isShown) toggle(axes[at]);
  }

  function swap(one, other) {
    const shown = axes.map((axis) => axis.name);
    [shown[one], shown[other]] = [shown[other], shown[one]];
    keep(shown);
  }

  function move(name, before) {
    const rest = axes.map((axis) => axis.name).filter((n) => n !== name);
    if (!axes.some((axis) => axis.name === name)) return;
    const from = axes.findIndex((axis) => axis.name === name);
    const to = axes.findIndex((axis) => axis.name === before);
    rest.splice(rest.indexOf(before) + (from < to ? 1 : 0), 0, name);
    keep(rest);
  }

  function keep(order) {
    const off = axes.filter((axis) => !axis.isShown).map((axis) => axis.name);
    state.axes = order;
    off.forEach((name) => state.hidden.add(name));
    sweeper.changed("selection");
  }

  sweeper.onChange((what) => {
    if (what === "all" || what === "selection") draw();
  });
  addEventListener("resize", () => later(() => sweeper.data && draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (sweeper.data) sweeper.changed("all");
  });
}
