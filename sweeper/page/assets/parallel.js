"use strict";
/* Parallel coordinates: one axis for each param and score, one line for each trial.

   There are three canvases, one above the other: the faint lines of all trials, the lines of the
   selected trials, and the line under the pointer. So a range that is dragged on an axis redraws only
   the second one. */

{
  const { state } = sweeper;
  const element = document.getElementById("parallel");
  const list = document.getElementById("axes");
  const MARGIN = { top: 14, bottom: 20 };
  // Most faint lines, and most lines of selected trials while a range is dragged (chosen).
  const MOST_FAINT = 3000;
  const canvases = ["faint", "lines", "hover"].map((name) => {
    const canvas = document.createElement("canvas");
    canvas.dataset.layer = name;
    return canvas;
  });
  const handles = document.createElement("div");
  element.append(...canvases, handles);
  let axes = [];
  let axesOf = null; // the study's data from which the axes were made
  let drawn = []; // the lines of the selected trials: {trial, ys}
  let size = { width: 0, height: 0, left: 0, gap: 0 };

  function allAxes() {
    const { params, goals, scores } = sweeper.columns;
    const varied = params.filter((column) => !column.isConstant);
    const known = new Map();
    // A score may have the name of a param; its axis is then named `score.NAME`.
    for (const c of [...varied, ...goals, ...scores]) known.set(known.has(c.name) ? c.key : c.name, c);
    const usual = [...known.keys()].slice(0, varied.length + goals.length);
    const order = [...new Set([...state.axes, ...usual, ...known.keys()])].filter((n) => known.has(n));
    const isOff = (name) => state.hidden.has(name) || (!usual.includes(name) && !state.axes.includes(name));
    return order.map((name) => {
      const scale = scales.of(known.get(name), sweeper.data.all);
      const bottom = scale.missing === null ? scale.low : scale.missing - (scale.high - scale.low) * 0.04;
      return { ...scale, bottom, name, isShown: !isOff(name) };
    });
  }

  sweeper.axisOf = (name) => {
    if (axesOf !== sweeper.data) axes = allAxes();
    axesOf = sweeper.data;
    return axes.find((axis) => axis.name === name);
  };

  const shown = () => axes.filter((axis) => axis.isShown);
  const placeOf = (index) => size.left + index * size.gap;

  /* Return an axis's distance from the chart's left edge in pixels, or undefined if it is hidden. */
  sweeper.placeOf = (name) => {
    const index = shown().findIndex((axis) => axis.name === name);
    return index < 0 ? undefined : placeOf(index);
  };

  const span = () => size.height - MARGIN.top - MARGIN.bottom;
  const heightOf = (axis, at) =>
    MARGIN.top + span() * (1 - (at - axis.bottom) / (axis.high - axis.bottom || 1));
  const positionAt = (axis, y) =>
    axis.bottom + (1 - (y - MARGIN.top) / span()) * (axis.high - axis.bottom);

  /* --- drawing ------------------------------------------------------------------------------- */

  function measure(visible) {
    const context = canvases[1].getContext("2d");
    context.font = "12px system-ui, sans-serif";
    const widthOf = (words) => Math.min(150, context.measureText(words).width);
    const widths = visible.map((axis) => Math.max(0, ...axis.ticks.map((at) => widthOf(axis.label(at)))));
    const wanted = visible.reduce(
      (sum, axis, i) => sum + Math.max(84, widths[i] + 26, 1.25 * widthOf(axis.name) + 20), 40,
    );
    element.style.width = `max(100%, ${Math.round(wanted)}px)`;
    list.style.width = element.style.width;
    const left = Math.max(46, visible.length ? widthOf(visible[0].name) * 0.625 + 4 : 0);
    const right = Math.max(46, (widths.at(-1) || 0) + 14);
    const [width, height] = [element.clientWidth, element.clientHeight];
    size = { width, height, left, gap: (width - left - right) / Math.max(1, visible.length - 1) };
  }

  function cleared(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    context.lineJoin = "round";
    return context;
  }

  function trace(context, ys) {
    context.beginPath();
    for (let i = 0; i < ys.length; i += 1) context.lineTo(placeOf(i), ys[i]);
    context.stroke();
  }

  const lineOf = (visible) => (trial) => ({
    trial, ys: visible.map((axis) => heightOf(axis, axis.position(trial))),
  });

  function drawFaint(visible) {
    const context = cleared(canvases[0]);
    const trials = sweeper.found();
    const every = Math.ceil(trials.length / MOST_FAINT);
    Object.assign(context, { strokeStyle: sweeper.colours().faint, globalAlpha: 0.16, lineWidth: 1 });
    trials.filter((_, i) => i % every === 0).map(lineOf(visible)).forEach((line) => trace(context, line.ys));
  }

  function drawLines(visible) {
    const context = cleared(canvases[1]);
    const scale = sweeper.colourScale();
    const selected = sweeper.selected();
    const every = dragged ? Math.ceil(selected.length / MOST_FAINT) : 1;
    const share = (trial) => (scale.axis.places ? 0 : scale.shareOf(trial) ?? -1);
    const lines = selected.filter((_, i) => i % every === 0).map(lineOf(visible));
    const order = lines.map((line) => ({ ...line, share: share(line.trial) }));
    drawn = order.sort((a, b) => a.share - b.share); // The best lines are drawn last, on top.
    const n = drawn.length;
    // Without a GPU, browsers draw hairlines five times as fast as slightly wider lines.
    Object.assign(context, { lineWidth: n > 200 ? 1 : 1.5, globalAlpha: n > 2000 ? 0.25 : n > 300 ? 0.45 : 0.8 });
    for (const { trial, ys } of drawn) {
      context.strokeStyle = scale.of(trial);
      trace(context, ys);
    }
    drawAxes(context, visible);
  }

  function cut(context, words, width) {
    if (context.measureText(words).width <= width) return words;
    let n = words.length;
    while (n > 1 && context.measureText(`${words.slice(0, n)}…`).width > width) n -= 1;
    return `${words.slice(0, n)}…`;
  }

  function drawAxes(context, visible) {
    const colours = sweeper.colours();
    Object.assign(context, {
      globalAlpha: 1, lineWidth: 1, font: "12px system-ui, sans-serif", textBaseline: "middle",
    });
    visible.forEach((axis, i) => {
      const x = Math.round(placeOf(i)) + 0.5;
      context.strokeStyle = colours.soft;
      context.beginPath();
      context.moveTo(x, MARGIN.top);
      context.lineTo(x, size.height - MARGIN.bottom);
      context.stroke();
      const room = i === visible.length - 1 ? 150 : size.gap - 16;
      for (const at of axis.ticks) {
        const y = heightOf(axis, at);
        context.strokeStyle = colours.soft;
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(x + 4, y);
        context.stroke();
        const words = cut(context, axis.label(at), room);
        Object.assign(context, { strokeStyle: colours.ground, lineWidth: 4, fillStyle: colours.ink });
        context.strokeText(words, x + 7, y);
        context.fillText(words, x + 7, y);
        context.lineWidth = 1;
      }
      for (const [low, high] of state.brush[axis.name] || []) {
        const [top, bottom] = [heightOf(axis, high), heightOf(axis, low)];
        Object.assign(context, { fillStyle: colours.accent, globalAlpha: 0.3 });
        context.fillRect(x - 9, top, 18, bottom - top);
        Object.assign(context, { strokeStyle: colours.accent, globalAlpha: 1 });
        context.strokeRect(x - 9, top, 18, bottom - top);
      }
    });
  }

  function drawHover(line) {
    const context = cleared(canvases[2]);
    if (!line) return;
    Object.assign(context, { strokeStyle: sweeper.colours().ground, lineWidth: 6 });
    trace(context, line.ys);
    Object.assign(context, { strokeStyle: sweeper.colours().ink, lineWidth: 2.5 });
    trace(context, line.ys);
  }

  function draw() {
    if (dragged) { // Do not replace the handle that is dragged. `isLate` lets the end of the drag draw.
      isLate = true;
      return;
    }
    axes = allAxes();
    axesOf = sweeper.data;
    const visible = shown();
    measure(visible);
    drawFaint(visible);
    drawLines(visible);
    drawHover(null);
    drawNames();
    drawHandles(visible);
    element.setAttribute("aria-label", `parallel coordinates of ${visible.map((a) => a.name).join(", ")}`);
  }

  /* --- the line under the pointer ------------------------------------------------------------- */

  function nearest(x, y) {
    if (!drawn.length || shown().length < 2) return null;
    const last = shown().length - 2;
    const left = Math.max(0, Math.min(last, Math.floor((x - size.left) / size.gap)));
    const share = (x - placeOf(left)) / size.gap;
    let [best, least] = [null, 9];
    for (const line of drawn) {
      const at = line.ys[left] + (line.ys[left + 1] - line.ys[left]) * share;
      const distance = Math.abs(at - y);
      if (distance < least) [best, least] = [line, distance];
    }
    return best;
  }

  const within = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  let hovered = null;
  element.addEventListener("pointermove", (event) => {
    if (dragged) return;
    const line = nearest(...within(event));
    if (line !== hovered) drawHover(line);
    hovered = line;
    element.style.cursor = line ? "pointer" : "";
    sweeper.tip(line && sweeper.describe(line.trial.run_id), event);
  });
  element.addEventListener("pointerleave", () => {
    hovered = null;
    drawHover(null);
    sweeper.tip(null);
  });
  element.addEventListener("click", (event) => {
    if (event.target.dataset.axis === undefined && hovered) sweeper.open(hovered.trial.run_id);
  });

  /* --- ranges on the axes ------------------------------------------------------------------------ */

  let isLate = false; // whether the chart must be drawn once no range is dragged any more
  // The range that the reader drags on an axis, or null: {axis, start, moved, rest, grabbed, edge}.
  // start: position where the drag began. moved: whether the pointer has moved since. rest: the other
  // ranges that the axis keeps. grabbed: the existing range that is changed, or undefined for a new
  // range. edge: index of the end of `grabbed` that is moved, or null to move the whole range.
  let dragged = null;

  function drawHandles(visible) {
    handles.replaceChildren(...visible.map((axis, i) => {
      const handle = document.createElement("i");
      handle.className = "axis";
      handle.dataset.axis = axis.name;
      handle.title = "";
      handle.style.left = `${placeOf(i) - 11}px`;
      return handle;
    }));
  }

  const clamped = (axis, at) => Math.max(axis.bottom, Math.min(axis.high, at));

  handles.addEventListener("pointerdown", (event) => {
    const axis = axes.find((a) => a.name === event.target.dataset.axis);
    if (!axis || event.button !== 0) return;
    event.preventDefault();
    event.target.setPointerCapture(event.pointerId);
    const at = positionAt(axis, within(event)[1]);
    const ranges = state.brush[axis.name] || [];
    const near = (6 / span()) * (axis.high - axis.bottom);
    const grabbed = ranges.find(([low, high]) => at > low - near && at < high + near);
    const rest = event.shiftKey || grabbed ? ranges.filter((range) => range !== grabbed) : [];
    dragged = { axis, start: at, moved: false, rest, grabbed, edge: null };
    if (grabbed && Math.abs(at - grabbed[0]) < near) dragged.edge = 0;
    else if (grabbed && Math.abs(at - grabbed[1]) < near) dragged.edge = 1;
  });

  handles.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const { axis, start, grabbed, edge, rest } = dragged;
    const at = positionAt(axis, within(event)[1]);
    if (Math.abs(at - start) * span() > 3 * (axis.high - axis.bottom)) dragged.moved = true;
    if (!dragged.moved) return;
    let range = [start, at];
    if (grabbed && edge === null) range = grabbed.map((end) => end + at - start);
    else if (grabbed) range = [grabbed[1 - edge], at];
    range = range.map((end) => clamped(axis, end)).sort((a, b) => a - b);
    state.brush[axis.name] = [...rest, range];
    sweeper.touch();
    if (!frame) frame = requestAnimationFrame(drawBrush);
  });

  let frame = 0;

  function drawBrush() {
    frame = 0;
    drawLines(shown());
    sweeper.countSelected();
    // The lines follow at once. The rest of the page follows when the pointer rests or is released.
    later(() => sweeper.changed("brush"), dragged ? 400 : 0);
  }

  function release() {
    if (!dragged) return;
    const { axis, moved, rest } = dragged;
    dragged = null;
    if (!moved) {
      if (rest.length) state.brush[axis.name] = rest;
      else delete state.brush[axis.name];
      sweeper.touch();
    }
    drawBrush();
    if (isLate) sweeper.mark(element);
    isLate = false;
  }
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    handles.addEventListener(end, release);
  }

  let timer = 0;

  function later(call, pause_ms) {
    clearTimeout(timer);
    timer = setTimeout(call, pause_ms);
  }

  /* --- the names of the axes: their order, and which are hidden ------------------------------- */

  function drawNames() {
    const focused = document.activeElement?.dataset?.axis;
    const places = new Map(shown().map((axis, i) => [axis.name, placeOf(i)]));
    list.replaceChildren(
      ...axes.map((axis) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.draggable = true;
        button.dataset.axis = axis.name;
        button.textContent = axis.name;
        button.setAttribute("aria-pressed", String(axis.isShown));
        button.title = `${axis.name}: ${axis.isShown ? "click hides the axis" : "click adds the axis"}`;
        if (axis.isShown) {
          item.style.left = `${Math.round(places.get(axis.name))}px`;
          button.style.maxWidth = `${Math.floor(Math.max(60, size.gap - 6))}px`;
        }
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
    const names = axes.map((axis) => axis.name);
    [names[one], names[other]] = [names[other], names[one]];
    keep(names);
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

  /* --- the chart as a file --------------------------------------------------------------------- */

  const { escaped } = sweeper;

  /* Return the chart as SVG: the lines of the selection, the axes and their names. */
  function svg() {
    const visible = shown();
    const scale = sweeper.colourScale();
    const colours = sweeper.colours();
    const lines = drawn.map(({ trial, ys }) => {
      const points = ys.map((y, i) => `${placeOf(i).toFixed(1)},${y.toFixed(1)}`).join(" ");
      return `<polyline points="${points}" fill="none" stroke="${scale.of(trial)}" stroke-opacity="0.6"/>`;
    });
    const parts = visible.flatMap((axis, i) => [
      `<path d="M${placeOf(i)} ${MARGIN.top}V${size.height - MARGIN.bottom}" stroke="${colours.soft}"/>`,
      `<text x="${placeOf(i)}" y="8" text-anchor="middle" font-weight="600">${escaped(axis.name)}</text>`,
      ...axis.ticks.map((at) =>
        `<text x="${placeOf(i) + 7}" y="${heightOf(axis, at) + 4}" paint-order="stroke"`
          + ` stroke="${colours.ground}" stroke-width="3">${escaped(axis.label(at))}</text>`),
    ]);
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -10 ${size.width} ${size.height + 10}"`
      + ` font-family="sans-serif" font-size="12" fill="${colours.ink}">${[...lines, ...parts].join("")}</svg>`;
  }

  sweeper.whenVisible(element, draw);
  sweeper.addMenu(element, "parallel", {
    csv: () => sweeper.csv(sweeper.tableRows()),
    svg: () => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg())}`,
  });
  sweeper.onChange((what) => {
    if (what === "all" || what === "selection") {
      axes = allAxes();
      axesOf = sweeper.data;
      document.getElementById("parallel-section").hidden = axes.length < 2;
      drawNames();
      sweeper.mark(element);
    }
  });
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => sweeper.data && sweeper.mark(element), 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (sweeper.data) sweeper.changed("all");
  });
}
