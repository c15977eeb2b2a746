"use strict";
/* The executed notebook of a trial, alone or next to another one, in a frame without scripts. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const dialog = byId("notebook");
  const cells = new Map(); // by run id: the cells of the executed notebook, as HTML
  let styles = null;
  let drawn = "";

  sweeper.styles = (sheets) => {
    styles = sheets;
  };
  sweeper.notebook = (run_id, rendered) => cells.set(run_id, rendered);

  function whenLoaded(run_ids, then) {
    const missing = run_ids.filter((id) => !cells.has(id) && sweeper.trial(id)?.has_notebook);
    const files = missing.map((id) => `notebooks/${id}.js`);
    if (styles === null) files.push("notebooks/styles.js");
    let left = files.length;
    if (left === 0) then();
    for (const file of files) {
      sweeper.load(file, () => {
        left -= 1;
        if (left === 0) then();
      });
    }
  }

  /* --- what the frame displays ------------------------------------------------------------------ */

  const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:";
  const OWN = `
    body { margin: 0; padding: 10px; background: var(--jp-layout-color0); overflow-wrap: anywhere; --mark: #fff3c4; }
    body[data-jp-theme-light="false"] { --mark: #574a14; }
    .pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 12px; }
    .pair > div { min-width: 0; overflow-x: auto; }
    .pair .jp-InputPrompt, .pair .jp-OutputPrompt { display: none; }
    .pair { padding-left: var(--jp-cell-prompt-width); }
    .heads { position: sticky; z-index: 1; top: -10px; padding-block: 8px 4px; background: var(--jp-layout-color0); }
    .heads > div { font: 600 14px sans-serif; color: var(--jp-ui-font-color1); }
    .differs { box-shadow: -3px 0 #e0a800; }
    mark, .marked { background: var(--mark) !important; color: inherit; }
    del { opacity: .6; }
    .jp-InputArea-editor:has(del)::after { display: none !important; }
    .facts { margin: 0 0 8px; border-collapse: collapse; font: 13px sans-serif; color: var(--jp-ui-font-color1); }
    .facts :is(th, td) { padding: 2px 16px 2px 4px; text-align: left; vertical-align: top; }
    .facts td:first-child { color: var(--jp-ui-font-color2); }
    .jp-Cell img { max-width: 100%; height: auto; }
    .none { padding: 1em; color: var(--jp-ui-font-color2); }
    a.anchor-link { display: none; }
    @media (max-width: 700px) {
      .jp-InputPrompt, .jp-OutputPrompt { display: none; }
      .pair { grid-template-columns: minmax(0, 1fr); padding-left: 6px; }
      .pair > div:not(:empty)::before { color: var(--jp-ui-font-color2); font: 600 12px sans-serif; content: attr(data-run); }
      .heads { display: none; }
    }`;
  const isState = (cell) => cell.includes("celltag_sweeper-state");

  function page(body) {
    const sheets = styles ? [styles.base, styles.code, sweeper.isDark() ? styles.dark : styles.light] : [];
    const css = [...sheets, OWN].join("\n").replace(/<\//g, "<\\/");
    return `<!doctype html><html><head><meta charset="utf-8">
      <meta http-equiv="Content-Security-Policy" content="${POLICY}"><base target="_blank">
      <style>${css}</style></head>
      <body tabindex="0" class="jp-Notebook" data-jp-theme-light="${!sweeper.isDark()}">${body}</body></html>`;
  }

  const none = (run_id) => {
    const trial = sweeper.trial(run_id);
    let why = "has no rendered notebook; export renders it";
    if (sweeper.isCopy) why = "has a notebook that is too large for this cell; index.html has it";
    if (["running", "frozen"].includes(trial?.state)) why = `is ${trial.state}`;
    return `<p class="none">${run_id} ${why}</p>`;
  };

  /* --- the state of the trials ----------------------------------------------------------------- */

  const textOrNull = (value) => ((value ?? null) === null ? null : sweeper.text(value));

  function facts(run_ids) {
    const trials = run_ids.map(sweeper.trial).filter(Boolean);
    const { goals, scores, params, duration } = sweeper.columns;
    const isOwn = new Set(["duration [s]", "notebook"]); // These differ between any two trials.
    const rows = [
      ["state", (t) => [t.state, t.message].filter(Boolean).join(": ")],
      ...[...goals, ...scores, ...params, duration].map((c) => [c.name, (t) => textOrNull(c.of(t))]),
      ["seed", (t) => String(t.seed)],
      ["notebook", (t) => t.notebook],
    ];
    const table = document.createElement("table");
    table.className = "facts";
    const head = table.createTHead().insertRow();
    head.append(...["", ...trials.map((t) => t.run_id)].map((text) => {
      const cell = document.createElement("th");
      cell.textContent = text;
      return cell;
    }));
    const body = table.createTBody();
    for (const [name, of] of rows) {
      const values = trials.map(of);
      const differs = new Set(values).size > 1 && !isOwn.has(name);
      if (trials.length === 1 ? values[0] === null : state.isDiffering && !differs) continue;
      const line = body.insertRow();
      line.insertCell().textContent = name;
      for (const value of values) {
        const cell = line.insertCell();
        cell.textContent = value ?? sweeper.text(null);
        cell.classList.toggle("marked", differs);
      }
    }
    return table.outerHTML;
  }

  /* Return the HTML for the frame: a table about the trials, then the cells of their notebooks. */
  function body(run_ids) {
    const missing = run_ids.filter((id) => !cells.has(id));
    if (missing.length) return facts(run_ids) + missing.map(none).join("");
    if (run_ids.length === 1) {
      const [all] = run_ids.map((id) => cells.get(id));
      return (all.some(isState) ? "" : facts(run_ids)) + sweeper.struck(all).join("");
    }
    const both = run_ids.map((id) => sweeper.struck(cells.get(id).filter((cell) => !isState(cell))));
    const heads = run_ids.map((id) => `<div>${id}</div>`).join("");
    return `${facts(run_ids)}<div class="pair heads">${heads}</div>${sweeper.beside(run_ids, both, state.isDiffering)}`;
  }

  /* --- the dialog ----------------------------------------------------------------------------------- */

  /* Return a text that identifies what the frame should display. The frame is drawn again only if this
     text changes. */
  const wantedNow = () => JSON.stringify([pairOpen(), state.isDiffering, sweeper.isDark()]);
  const pairOpen = () => [state.open, ...(state.beside ? [state.beside] : [])];

  function draw() {
    if (!state.open || !sweeper.trial(state.open)) {
      if (dialog.open) dialog.close();
      drawn = "";
      return;
    }
    if (!sweeper.trial(state.beside) || state.beside === state.open) state.beside = null;
    const run_ids = pairOpen();
    byId("notebook-title").textContent = run_ids
      .map((id) => [id, sweeper.noteOf(id).trial_name].filter(Boolean).join(" ")).join(" beside ");
    const others = sweeper.ordered().filter((t) => t.run_id !== state.open);
    const isListed = others.some((t) => t.run_id === state.beside);
    if (state.beside && !isListed) others.push(sweeper.trial(state.beside));
    const choices = [["", "none"], ...others.map((t) => [t.run_id, t.run_id])];
    sweeper.fillSelect(byId("beside"), choices, state.beside || "");
    byId("differing").checked = state.isDiffering;
    byId("differing-label").hidden = !state.beside;
    const at = position();
    byId("previous").disabled = at <= 0;
    byId("next").disabled = at < 0 || at >= sweeper.ordered().length - 1;
    if (!dialog.open) dialog.showModal();
    const wanted = wantedNow();
    whenLoaded(run_ids, () => {
      if (wanted !== wantedNow() || wanted === drawn) return;
      const [one, other] = run_ids.map((id) => cells.get(id));
      if (one && (other || !state.beside)) drawn = wanted; // Otherwise, draw again when trials end.
      // Make a new frame: a new document in the old frame would add to the browser's history.
      const frame = byId("frame").cloneNode();
      frame.srcdoc = page(body(run_ids));
      byId("frame").replaceWith(frame);
    });
  }

  const position = () => sweeper.ordered().findIndex((t) => t.run_id === state.open);

  function step(by) {
    const next = sweeper.ordered()[position() + by];
    if (next && next.run_id !== state.beside) sweeper.open(next.run_id, state.beside);
    else if (next) sweeper.open(next.run_id);
  }

  sweeper.open = (run_id, beside = null) => {
    Object.assign(state, { open: run_id, beside });
    sweeper.changed("open");
  };

  dialog.addEventListener("close", () => {
    if (state.open && !dialog.open) { // The browser's Forward may have opened the dialog again.
      Object.assign(state, { open: null, beside: null, isDiffering: false });
      sweeper.changed("open");
    }
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("select, input")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", () => dialog.close());
  byId("beside").addEventListener("change", (event) => sweeper.open(state.open, event.target.value || null));
  byId("differing").addEventListener("change", (event) => {
    state.isDiffering = event.target.checked;
    sweeper.changed("open");
  });
  sweeper.onChange((what) => {
    if (what === "open" || what === "all") draw();
  });
}
