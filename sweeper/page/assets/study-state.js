"use strict";
/* The study's data, the reader's selection of trials, and the page's address, which stores the
   selection.

   The files with data are scripts that call `sweeper.study`, `.curves`, `.styles` and `.notebook`.
   Scripts that draw parts of the page register with `sweeper.onChange`. */

const sweeper = (() => {
  const listeners = [];
  const state = {
    states: null, // Set of the ticked states of trials; null for all
    query: "",
    sort: null, // [key of a column, whether it is descending]; null for the best first
    goal: null, // the name of the objective that charts draw
    colour: null,
    axes: [], // names of axes in the order of the reader; all others follow
    hidden: new Set(),
    brush: {}, // by name of an axis: ranges [low, high] as positions on its scale
    open: null,
    beside: null,
    isDiffering: false,
    metric: null,
    isLog: false, // whether the learning curves have a logarithmic axis
    smooth: 0, // smoothing of the learning curves, from 0 to 9: weight of the last mean, in tenths
    group: null, // key of the param by which trials are grouped
    pair: null, // keys of the two params in the chart of pairs
    over: null, // horizontal axis of the history: time or cost; null for the trial's number
    folded: null, // Set of ids of folded sections; null until the reader folds or opens one
    notes: {}, // by run id: changes of notes that only the page's address stores
    isStarred: false, // whether only starred trials are shown
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Whether the page is in a cell's output in Jupyter. It then has no address, and contains all files.
  const isCopy = location.href === "about:srcdoc";
  let study = null;

  const { isNumber } = numbers;

  /* Return the columns of the table of trials: params, scores and facts. A column's `of(trial)` is the
     value of a trial, and `text(value)` formats it like the column's other values. */
  function columns() {
    const scores = new Set();
    for (const trial of study.all) for (const name in trial.scores) scores.add(name);
    const goals = study.objectives.map((goal) => goal.name);
    const others = [...scores].filter((name) => !goals.includes(name));
    const known = new Map(study.params.map((param) => [param.name, param]));
    for (const trial of study.all) {
      for (const name in trial.params) if (!known.has(name)) known.set(name, { name });
    }
    return {
      goals: goals.map((name) => score(name)),
      scores: others.map((name) => score(name)),
      params: [...known.values()].map(param),
      duration: formatted({
        key: "duration", name: "duration [s]", of: (t) => t.duration_s || undefined,
      }),
      memory: formatted({
        key: "memory", name: "GPU memory [GB]",
        of: (t) => (t.gpu_peak_bytes === undefined ? undefined : t.gpu_peak_bytes / 1e9),
      }),
    };
  }

  const formatted = (column) => {
    // Only completed trials decide how many digits a score has: the last scores of pruned trials
    // differ by more than those of completed trials.
    const completed = study.all.filter((t) => column.isScore && t.state === "completed");
    const known = completed.length > 1 ? completed : study.all;
    const text = numbers.formatOf(known.map(column.of), column.isLog);
    return { ...column, text };
  };
  const score = (name) => formatted({
    key: `score.${name}`, name, of: (t) => t.scores[name], isScore: true,
  });

  function param(facts) {
    const values = study.all.map((t) => t.params[facts.name]).filter((v) => v !== undefined);
    const isCategory = facts.choices !== undefined || values.some((v) => !isNumber(v));
    const choices = [...(facts.choices || []), ...values].map(String);
    return formatted({
      key: `param.${facts.name}`, name: facts.name, of: (t) => t.params[facts.name],
      isLog: Boolean(facts.is_log) && values.every((v) => v > 0),
      isWhole: facts.is_whole, categories: isCategory ? [...new Set(choices)] : null,
      isConstant: new Set(values.map(String)).size < 2 && values.length === study.all.length,
    });
  }

  /* --- the selection ------------------------------------------------------------------------ */

  let [found, selected] = [null, null]; // results of `find` and `inBrush`, until the selection changes
  let byId = new Map();

  function inBrush(trials) {
    const tests = Object.entries(state.brush)
      .map(([name, ranges]) => [sweeper.axisOf(name), ranges])
      .filter(([axis, ranges]) => axis && ranges.length);
    return trials.filter((trial) => tests.every(([axis, ranges]) => {
      const at = axis.position(trial);
      return ranges.some(([low, high]) => at >= low && at <= high);
    }));
  }

  function isFound(trial, words) {
    const { trial_name, note } = sweeper.noteOf(trial.run_id);
    const text = [
      trial.run_id, trial_name, note, trial.state, trial.reason, trial.message,
      ...Object.entries(trial.params).map(([name, value]) => `${name}=${value}`),
      ...Object.entries(trial.scores).map(([name, value]) => `${name}=${value}`),
    ].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function find() {
    const words = state.query ? state.query.toLowerCase().split(/\s+/) : [];
    let trials = study.all;
    if (state.states !== null) trials = trials.filter((t) => state.states.has(t.state));
    if (state.isStarred) trials = trials.filter((t) => sweeper.noteOf(t.run_id).starred);
    return words.length ? trials.filter((trial) => isFound(trial, words)) : trials;
  }

  /* --- the address ----------------------------------------------------------------------------- */

  let hadOpen = null; // whether a notebook was open before; null before the address has been read

  function address(changes = {}) {
    const words = new URLSearchParams();
    if (state.states !== null) words.set("states", [...state.states].join(","));
    if (state.query) words.set("find", state.query);
    if (state.sort) words.set("sort", (state.sort[1] ? "-" : "") + state.sort[0]);
    if (state.goal && state.goal !== study.objectives[0].name) words.set("goal", state.goal);
    if (state.colour) words.set("colour", state.colour);
    if (state.axes.length) words.set("axes", JSON.stringify(state.axes));
    if (state.hidden.size) words.set("hidden", JSON.stringify([...state.hidden]));
    if (Object.keys(state.brush).length) words.set("brush", JSON.stringify(state.brush));
    if (state.metric) words.set("metric", state.metric);
    if (state.isLog) words.set("log", "1");
    if (state.smooth) words.set("smooth", String(state.smooth));
    if (state.group) words.set("group", state.group);
    if (state.pair) words.set("pair", JSON.stringify(state.pair));
    if (state.over) words.set("over", state.over);
    if (state.folded) words.set("folded", [...state.folded].join(","));
    if (state.isStarred) words.set("starred", "1");
    if (Object.keys(state.notes).length) words.set("notes", JSON.stringify(state.notes));
    const { open, beside } = { ...state, ...changes };
    if (open) words.set("open", open);
    if (open && beside) words.set("beside", beside);
    if (state.isDiffering) words.set("differing", "1");
    return `#${words}`;
  }

  /* Write the state to the page's address. Only opening a notebook adds an entry to the browser's
     history, so that the browser's Back closes the notebook. */
  function write() {
    const isOpened = hadOpen === false && Boolean(state.open);
    hadOpen = Boolean(state.open);
    if (isCopy || address() === location.hash || (address() === "#" && !location.hash)) return;
    history[isOpened ? "pushState" : "replaceState"](null, "", address());
  }

  function parsed(words, name, otherwise) {
    try {
      return JSON.parse(words.get(name)) || otherwise;
    } catch {
      return otherwise; // The address is incomplete, for example after it was copied.
    }
  }

  /* Return the notes in the address. In older addresses, a note is only a text, and its trial has a
     star. */
  function notesIn(words) {
    const found = Object.entries(Object(parsed(words, "notes", {})));
    return Object.fromEntries(found.map(([run_id, note]) =>
      [run_id, typeof note === "string" ? { note, starred: true } : Object(note)]));
  }

  function read() {
    const words = new URLSearchParams(location.hash.slice(1));
    const states = words.get("states");
    const sort = words.get("sort");
    const goals = study.objectives.map((goal) => goal.name);
    const brush = parsed(words, "brush", {});
    const isRange = (range) => Array.isArray(range) && range.every(isNumber);
    Object.assign(state, {
      states: states === null ? null : new Set(states.split(",")),
      query: words.get("find") || "",
      sort: sort ? [sort.replace(/^-/, ""), sort.startsWith("-")] : null,
      goal: goals.includes(words.get("goal")) ? words.get("goal") : goals[0],
      colour: words.get("colour"),
      axes: [].concat(parsed(words, "axes", [])),
      hidden: new Set([].concat(parsed(words, "hidden", []))),
      brush: Object.fromEntries(
        Object.entries(brush).filter(([, ranges]) => Array.isArray(ranges) && ranges.every(isRange)),
      ),
      metric: words.get("metric"),
      isLog: words.get("log") === "1",
      smooth: Math.max(0, Math.min(9, Number(words.get("smooth")) || 0)),
      group: words.get("group"),
      pair: [].concat(parsed(words, "pair", [])).length === 2 ? parsed(words, "pair", []) : null,
      over: ["time", "cost"].includes(words.get("over")) ? words.get("over") : null,
      folded: words.has("folded") ? new Set(words.get("folded").split(",").filter(Boolean)) : null,
      notes: notesIn(words),
      isStarred: words.get("starred") === "1",
      open: words.get("open"),
      beside: words.get("beside"),
      isDiffering: words.get("differing") === "1",
    });
    hadOpen = Boolean(state.open);
  }

  /* --- for the files of data ------------------------------------------------------------------ */

  function load(name, then = null) {
    if (isCopy) {
      if (then) setTimeout(then);
      return;
    }
    const script = document.createElement("script");
    script.src = `page/${name}?${Date.now()}`;
    script.onload = script.onerror = () => {
      script.remove();
      if (then) then();
    };
    document.head.append(script);
  }

  let pause_ms = 5000;

  function refresh() {
    const before = study.written_at_s;
    load("notes.js");
    load("study.js", () => {
      pause_ms = study.written_at_s === before ? Math.min(60000, pause_ms * 1.5) : 5000;
      if (study.is_running) setTimeout(refresh, pause_ms);
    });
  }

  function receive(data) {
    const isFirst = study === null;
    if (!isFirst && data.written_at_s === study.written_at_s) return;
    study = data;
    byId = new Map(data.all.map((trial) => [trial.run_id, trial]));
    sweeper.data = data;
    sweeper.columns = columns();
    if (isFirst) {
      read();
      window.addEventListener("hashchange", () => {
        read();
        sweeper.changed("all");
      });
      if (study.is_running && !isCopy) setTimeout(refresh, pause_ms);
    }
    sweeper.changed("all");
  }

  /* --- drawing what is in view, one thing in each frame, so that no frame takes long ------------ */

  const drawers = new Map(); // by element: the function that draws it
  const stale = new Set();
  const visible = new Set();
  const urgent = new Set(); // elements that are drawn before all others
  const PAUSE_MS = 300; // pause of the reader before elements out of view are drawn (chosen)
  const FRAME_MS = 8; // half of a frame's time (chosen, not measured)
  let frame = 0;
  let resting = 0;

  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) visible.add(target);
      else visible.delete(target);
    }
    drawLater();
  }, { rootMargin: "200px" });

  function drawLater() {
    if (frame === 0) frame = requestAnimationFrame(drawNext);
  }

  function drawNext() {
    frame = 0;
    const seen = [...stale].filter((element) => visible.has(element));
    const next = seen.find((element) => urgent.has(element)) || seen[0];
    if (study === null) return;
    if (next) {
      stale.delete(next);
      drawers.get(next)();
      drawLater();
    } else if ([...stale].some(isShown)) {
      clearTimeout(resting);
      resting = setTimeout(() => (window.requestIdleCallback || setTimeout)(drawUnseen), PAUSE_MS);
    }
  }

  const isShown = (element) => element.offsetParent !== null; // null in a hidden section

  /* When the reader does nothing for a while, draw an element that is out of view. */
  function drawUnseen() {
    const next = [...stale].find(isShown);
    if (frame !== 0 || !next) return;
    stale.delete(next);
    drawers.get(next)();
    (window.requestIdleCallback || setTimeout)(drawUnseen);
  }

  addEventListener("beforeprint", () => {
    for (const element of study === null ? [] : [...stale].filter(isShown)) {
      stale.delete(element);
      drawers.get(element)();
    }
  });

  return {
    state,
    isCopy,
    data: null,
    columns: null,
    study: receive,
    load,
    isDark: () => dark.matches,

    /* Draw an element when it is in view, now and whenever it is marked as stale. */
    whenVisible(element, draw, isUrgent = false) {
      drawers.set(element, draw);
      if (isUrgent) urgent.add(element);
      stale.add(element);
      observer.observe(element);
    },

    mark(element) {
      stale.add(element);
      drawLater();
    },

    drawSoon: drawLater,

    forget(element) {
      observer.unobserve(element);
      for (const kept of [drawers, stale, visible, urgent]) kept.delete(element);
    },

    onChange(listener) {
      listeners.push(listener);
    },

    /* Tell all listeners what has changed: `all`, `selection`, `brush` (the ranges on the axes), `table`
       or `open` (the open notebook, and other things that change no selection). */
    changed(what) {
      if (what !== "open" && what !== "table") sweeper.touch();
      write();
      if (what !== "brush") {
        for (const listener of listeners) listener(what);
        return;
      }
      // A long frame would delay the reader's drag. So the listeners are called in several frames.
      const left = [...listeners];
      const next = () => {
        const until_ms = performance.now() + FRAME_MS;
        while (left.length && performance.now() < until_ms) left.shift()(what);
        if (left.length) requestAnimationFrame(next);
      };
      requestAnimationFrame(next);
    },

    /* Forget the lists of trials that were found and selected, because study or selection changed. */
    touch() {
      [found, selected] = [null, null];
    },

    /* Return the trials that match the ticked states and the words in the search box. */
    found: () => (found ??= find()),

    /* Return the found trials that are inside of all ranges on the axes. */
    selected: () => (selected ??= inBrush(sweeper.found())),

    /* Return the address of this page with a trial open. */
    addressOf: (run_id) => address({ open: run_id, beside: null }),

    trial: (run_id) => byId.get(run_id),

    goal: () => study.objectives.find((goal) => goal.name === state.goal),

    /* Format a value that belongs to no column. */
    text: (value) => numbers.text(value),
  };
})();

/* --- the head of the page ------------------------------------------------------------------------ */

{
  const byId = (id) => document.getElementById(id);

  function headline() {
    const { data } = sweeper;
    document.title = `${data.study} · ${data.all.length} trials`;
    byId("name").textContent = data.study;
    const goals = data.objectives.map((goal) => `${goal.direction} ${goal.name}`).join(", ");
    byId("headline").textContent = `${data.notebook}: ${goals}`;
    const at = new Date(data.written_at_s * 1000).toLocaleString();
    const age_s = Date.now() / 1000 - data.written_at_s;
    byId("remark").textContent = data.remark;
    byId("moment").textContent = data.is_running
      ? `as of ${at}, while it ${age_s > 600 || sweeper.isCopy ? "was running" : "is running; this page follows"}`
      : `as of ${at}`;
  }

  sweeper.onChange((what) => {
    if (what === "all") headline();
  });
}
