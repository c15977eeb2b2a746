"use strict";
/* The filters on top of the page: states, objective, colour, search, and how many trials are selected. */

{
  const byId = (id) => document.getElementById(id);
  const { state } = sweeper;

  function fillSelect(select, options, value) {
    select.replaceChildren(
      ...options.map(([key, text]) => {
        const option = document.createElement("option");
        option.value = key;
        option.textContent = text;
        return option;
      }),
    );
    select.value = value;
  }
  sweeper.fillSelect = fillSelect;

  /* Return the check box that selects only starred trials. Return no box if no trial has a star. */
  function starred() {
    const n_starred = sweeper.data.all.filter((t) => sweeper.noteOf(t.run_id).starred).length;
    if (!n_starred && !state.isStarred) return [];
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", checked: state.isStarred });
    box.addEventListener("change", () => {
      state.isStarred = box.checked;
      sweeper.changed("selection");
    });
    label.append(box, ` only ★ (${n_starred})`);
    return [label];
  }

  function filters() {
    const { data, columns } = sweeper;
    const counts = new Map();
    for (const trial of data.all) {
      counts.set(trial.state, (counts.get(trial.state) || 0) + 1);
    }
    const boxes = [...counts].sort().map(([name, n]) => {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.name = name;
      box.checked = state.states === null || state.states.has(name);
      box.addEventListener("change", () => {
        const ticked = [...byId("states").querySelectorAll("input[name]:checked")].map((b) => b.name);
        state.states = ticked.length === counts.size ? null : new Set(ticked);
        sweeper.changed("selection");
      });
      label.append(box, ` ${name} (${n})`);
      return label;
    });
    byId("states").replaceChildren(...boxes, ...starred());
    const goals = data.objectives.map((goal) => [goal.name, `${goal.name} (${goal.direction.slice(0, 3)})`]);
    fillSelect(byId("goal"), goals, state.goal);
    byId("goal-label").hidden = goals.length < 2;
    const colours = [...columns.goals, ...columns.scores, ...columns.params, columns.duration];
    const named = colours.map((column) => [column.key, column.name]);
    const usual = `score.${state.goal}`;
    if (!named.some(([key]) => key === state.colour)) state.colour = null;
    fillSelect(byId("colour"), named, state.colour || usual);
    if (document.activeElement !== byId("query")) byId("query").value = state.query;
  }

  sweeper.countSelected = () => {
    const [n, all] = [sweeper.selected().length, sweeper.data.all.length];
    byId("selected").textContent = n === all ? `all ${all} trials` : `${n} of ${all} trials`;
  };

  byId("goal").addEventListener("change", (event) => {
    state.goal = event.target.value;
    state.colour = null;
    sweeper.changed("all");
  });
  byId("colour").addEventListener("change", (event) => {
    state.colour = event.target.value;
    sweeper.changed("all");
  });
  let waiting = 0;
  byId("query").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.query = event.target.value.trim();
      sweeper.changed("selection");
    }, 150);
  });
  byId("reset").addEventListener("click", () => {
    Object.assign(state, { states: null, isStarred: false, query: "", brush: {}, hidden: new Set(), axes: [] });
    sweeper.changed("all");
  });

  sweeper.onChange((what) => {
    if (what === "all" || what === "selection") filters();
    if (what !== "open") sweeper.countSelected();
  });
}
