"use strict";
/* Two objectives against each other. A line joins the trials of the Pareto front: no other trial is
   better than one of these in both objectives. */

{
  const goals = () => sweeper.data.objectives;
  const usable = () => sweeper.data.all.filter((t) =>
    goals().slice(0, 2).every((goal) => numbers.isNumber(t.scores[goal.name])) && t.state === "completed");

  function option() {
    const [first, second] = goals();
    const trials = usable();
    const [x, y] = [first, second].map((goal) => ({
      of: (t) => t.scores[goal.name], ...sweeper.goalScale(trials, (t) => t.scores[goal.name]),
    }));
    const best = new Set(sweeper.data.best);
    const place = (t) => [x.at(x.of(t)), y.at(y.of(t))];
    const points = sweeper.layered(trials).map((t) => ({
      ...sweeper.point(t, place(t), x.isCut(x.of(t)) || y.isCut(y.of(t))),
      symbolSize: best.has(t.run_id) ? 13 : 6,
    }));
    const front = trials.filter((t) => best.has(t.run_id)).map(place).sort((a, b) => a[0] - b[0]);
    return {
      grid: sweeper.grid,
      xAxis: sweeper.roundAxis(`${first.name} (${first.direction})`, x.low, x.high, { nameGap: 26 }),
      yAxis: sweeper.roundAxis(`${second.name} (${second.direction})`, y.low, y.high),
      series: [
        { type: "scatter", data: points },
        {
          type: "line", data: front, showSymbol: false, silent: true,
          step: first.direction === "minimize" ? "end" : "start",
          lineStyle: { color: sweeper.colours().ink, type: "dashed", width: 1 },
        },
      ],
    };
  }

  sweeper.chart({ id: "pareto", option, isEmpty: () => goals().length < 2 || usable().length === 0 });
}
