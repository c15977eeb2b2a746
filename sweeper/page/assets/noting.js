"use strict";
/* What people note about trials: a star, a name and a text.

   The file `page/notes.js` has the notes that are stored in the study. If the command `ui` serves the
   page, its server stores changes there. Otherwise, changes are stored in the page's address. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const dialog = byId("note");
  const about = byId("notes-about");
  const NONE = { trial_name: "", note: "", starred: false };
  let kept = {}; // by run id: the note that is stored in the study
  let isServed = false; // whether the server of the command `ui` stores changes
  let problem = "";
  let edited = null; // run id of the trial whose note is open in the dialog

  const isSame = (one, other) => Object.keys(NONE).every((part) => one[part] === other[part]);
  const inStudy = (run_id) => ({ ...NONE, ...kept[run_id] });

  /* Return the note about a trial. Parts that the page's address has replace those of the study. */
  sweeper.noteOf = (run_id) => ({ ...inStudy(run_id), ...state.notes[run_id] });

  const redraw = () => {
    if (sweeper.data) sweeper.changed("selection");
  };

  sweeper.notes = (known) => {
    const isNew = JSON.stringify(known) !== JSON.stringify(kept);
    kept = known;
    if (isNew) redraw();
  };

  /* --- where changes are kept --------------------------------------------------------------------- */

  /* Ask the server of `ui` for the notes, or ask it to store changes. Return whether it succeeded. */
  async function ask(changes) {
    const request = changes && {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(changes),
    };
    try {
      const answer = await fetch("notes", { cache: "no-store", ...request });
      const found = await answer.json();
      problem = answer.ok ? "" : found.error;
      if (answer.ok) sweeper.notes(found);
      return answer.ok;
    } catch {
      problem = "the server does not answer";
      return false;
    }
  }

  const keepInAddress = (run_id, note) => {
    if (isSame(note, inStudy(run_id))) delete state.notes[run_id];
    else state.notes[run_id] = note;
  };

  async function change(run_id, parts) {
    const note = { ...sweeper.noteOf(run_id), ...parts };
    // Store the parts that were only in the address together with the changed parts.
    if (isServed && await ask({ [run_id]: { ...state.notes[run_id], ...parts } })) delete state.notes[run_id];
    else keepInAddress(run_id, note);
    redraw();
  }

  async function keepAll() {
    if (await ask(state.notes)) state.notes = {};
    redraw();
  }

  function code(text) {
    const element = document.createElement("code");
    element.textContent = text;
    return element;
  }

  function tell() {
    const n_own = Object.keys(state.notes).length;
    const nodes = [];
    if (problem) nodes.push(`Not kept in the study: ${problem}. `);
    if (isServed) {
      nodes.push("Stars, names and notes are kept in the study. ");
      if (n_own) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = "keep them";
        button.addEventListener("click", keepAll);
        nodes.push(`Those of ${n_own} ${n_own === 1 ? "trial are" : "trials are"} only in the address: `, button);
      }
    } else if (sweeper.isCopy) {
      nodes.push("Stars, names and notes that you change here are lost when the cell runs again; the page of ", code("ui"), " keeps them.");
    } else {
      nodes.push("Stars, names and notes that you change here are kept in the address; the page of ", code("ui"), " keeps them in the study.");
    }
    about.replaceChildren(...nodes);
  }

  /* Find out whether the server of the command `ui` serves this page. Only this server answers requests
     for notes. */
  async function begin() {
    if (!location.protocol.startsWith("http") || sweeper.isCopy) return;
    isServed = await ask();
    if (!isServed) problem = "";
    tell();
  }

  addEventListener("focus", () => { // Somebody else may have changed notes in the meantime.
    if (isServed) ask().then(tell);
    else if (sweeper.data) sweeper.load("notes.js");
  });

  /* --- the buttons and the dialog ----------------------------------------------------------------- */

  function button(text, label, title, act) {
    const element = document.createElement("button");
    Object.assign(element, { type: "button", textContent: text, title });
    element.setAttribute("aria-label", label);
    element.addEventListener("click", act);
    return element;
  }

  /* Return the buttons that star a trial and that open its note. */
  sweeper.noteButtons = (run_id) => {
    const { starred, trial_name, note } = sweeper.noteOf(run_id);
    const star = button(starred ? "★" : "☆", `star ${run_id}`, starred ? "remove the star" : "star this trial",
      () => change(run_id, { starred: !starred }));
    star.setAttribute("aria-pressed", String(starred));
    const written = [trial_name, note].filter(Boolean).join(": ");
    const pen = button("✎", `note on ${run_id}`, written || "name this trial, or write a note",
      () => sweeper.editNote(run_id));
    pen.className = written ? "pen written" : "pen";
    return [star, pen];
  };

  sweeper.editNote = (run_id) => {
    edited = run_id;
    const { trial_name, note } = sweeper.noteOf(run_id);
    byId("note-title").textContent = `Note on ${run_id}`;
    byId("note-name").value = trial_name;
    byId("note-text").value = note;
    dialog.showModal();
  };

  function save() {
    change(edited, { trial_name: byId("note-name").value.trim(), note: byId("note-text").value.trim() });
    dialog.close();
  }

  byId("note-save").addEventListener("click", save);
  byId("note-cancel").addEventListener("click", () => dialog.close());
  byId("note-name").addEventListener("keydown", (event) => {
    if (event.key === "Enter") save();
  });
  byId("note-open").addEventListener("click", () => sweeper.editNote(state.open));
  sweeper.onChange(() => tell());
  begin();
}
