"use strict";
/* The empirical distribution of the score: the share of the trials whose score is at most a value. If
   the reader has grouped the trials by a param, each group has a line. */

{
  const { state } = sweeper;
  const done = () => sweeper.data.all.filter(sweeper.hasGoal);

  const steps = (trials, goal) => {
    const sorted = trials.map((t) => goal.at(t.scores[state.goal])).sort((a, b) => a - b);
    return sorted.map((value, i) => [value, (i + 1) / sorted.length]);
  };

  function option() {
    const trials = done();
    const colours = sweeper.colours();
    const goal = sweeper.goalScale(trials, (t) => t.scores[state.goal]);
    const groups = sweeper.groups();
    const selected = sweeper.selected().filter(sweeper.hasGoal);
    const lines = groups
      ? groups.map(([value, of], i) => [`${value} (${of.length})`, of, sweeper.palette(i)])
      : [
        ["all", trials, colours.soft],
        ...(selected.length < trials.length ? [["selected", selected, colours.accent]] : []),
      ];
    return {
      grid: { ...sweeper.grid, top: lines.length > 1 ? 30 : 12 },
      legend: lines.length > 1
        ? { data: lines.map(([name]) => name), top: 0, type: "scroll", textStyle: { color: colours.ink } } : undefined,
      xAxis: sweeper.roundAxis(state.goal, goal.low, goal.high, { nameGap: 26 }),
      yAxis: sweeper.axis("share of trials at most", {
        min: 0, max: 1, nameGap: 40, axisLabel: { formatter: numbers.percent },
      }),
      series: lines.map(([name, of, color]) => ({
        type: "line", name, step: "end", showSymbol: false, data: steps(of, goal), silent: true,
        itemStyle: { color }, lineStyle: { color, width: 2 },
      })),
    };
  }

  sweeper.chart({ id: "distribution", option, isEmpty: () => done().length < 5 });
}
