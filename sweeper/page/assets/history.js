"use strict";
/* The scores of the trials, with a line of the best score so far. The horizontal axis is the number of
   the trial, the time of its end, or the computing time of all trials until then: the sweep's cost. */

{
  const { state } = sweeper;
  const select = /** @type {HTMLSelectElement} */ (document.getElementById("over"));

  const done = () => sweeper.data.all.filter(sweeper.hasGoal);
  const hasTimes = () => done().some((t) => t.started_at_s > 0 && t.duration_s > 0);

  /* Return an axis of time. `of_s` returns the seconds of a trial on this axis. */
  function timeAxis(name, trials, of_s) {
    const longest_s = trials.reduce((longest, t) => Math.max(longest, of_s(t)), 0);
    const [unit, size] = [["days", 86400], ["h", 3600], ["min", 60]]
      .find(([, s]) => longest_s >= 2 * Number(s)) || ["s", 1];
    return { name: `${name} [${unit}]`, of: (t) => of_s(t) / Number(size) };
  }

  function clock(trials) {
    const first_s = sweeper.data.all.reduce((first, t) => Math.min(first, t.started_at_s || first), Infinity);
    return timeAxis("time since the first trial began", trials, (t) => sweeper.end_s(t) - first_s);
  }

  function computing(trials) {
    let sum_s = 0;
    const spent_s = new Map();
    for (const trial of [...sweeper.data.all].sort((a, b) => sweeper.end_s(a) - sweeper.end_s(b))) {
      sum_s += trial.duration_s || 0;
      spent_s.set(trial, sum_s);
    }
    return timeAxis("computing time of all trials until then", trials, (t) => spent_s.get(t));
  }

  const AXES = { time: clock, cost: computing };

  function option() {
    const trials = done();
    const timed = hasTimes() ? AXES[state.over] : undefined;
    const over = timed ? timed(trials) : { name: "trial", of: (t) => +t.run_id };
    const order = [...trials].sort((a, b) => over.of(a) - over.of(b));
    const score = (t) => t.scores[state.goal];
    const isBetter = sweeper.goal().direction === "minimize" ? (a, b) => a < b : (a, b) => a > b;
    const scale = sweeper.goalScale(trials, score);
    let best;
    const line = order.map((trial) => {
      if (best === undefined || isBetter(score(trial), best)) best = score(trial);
      return [over.of(trial), scale.at(best)];
    });
    const places = order.map(over.of);
    return {
      grid: sweeper.grid,
      xAxis: sweeper.roundAxis(over.name, 0, places.at(-1) || 1, {
        min: 0, max: Math.max(places.at(-1) || 0, 1e-9), isWhole: over.name === "trial", nameGap: 26,
      }),
      yAxis: sweeper.roundAxis(state.goal, scale.low, scale.high),
      series: [
        {
          type: "scatter", symbolSize: trials.length > 300 ? 5 : 8,
          data: sweeper.layered(trials).map((t) =>
            sweeper.point(t, [over.of(t), scale.at(score(t))], scale.isCut(score(t)))),
        },
        {
          type: "line", step: "end", showSymbol: false, data: line, silent: true,
          lineStyle: { color: sweeper.colours().ink, width: 1.5 },
        },
      ],
    };
  }

  sweeper.chart({ id: "history", option, isEmpty: () => done().length === 0 });
  select.addEventListener("change", () => {
    state.over = select.value || null;
    sweeper.mark(document.getElementById("history"));
    sweeper.changed("open");
  });
  sweeper.onChange((what) => {
    if (what !== "all") return;
    select.value = state.over || "";
    select.hidden = !hasTimes();
  });
}
