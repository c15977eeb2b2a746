"use strict";
/* How much each param mattered for the objective. The bars of params that cannot be told apart from
   the least important one are faint. */

{
  const { state } = sweeper;
  const about = document.getElementById("importance-about");
  const found = () => Object.entries(sweeper.data.importances[state.goal] || {});

  /* Return whether a param's interval is above that of the param that matters least. */
  const isSure = ([, [, low]], rows) => rows.length < 2 || low > rows.at(-1)[1][2];

  function option() {
    const rows = found().slice(0, 12);
    const upwards = [...rows].reverse();
    const colours = sweeper.colours();
    const words = ([share, low, high]) =>
      `${numbers.percent(share)} (${numbers.percent(low)} to ${numbers.percent(high)})`;
    return {
      grid: { ...sweeper.grid, left: 8, right: 14, containLabel: true, bottom: 22 },
      xAxis: sweeper.axis("share of the variance", {
        min: 0, max: Math.min(1, Math.ceil(10 * Math.max(...rows.map(([, [, , high]]) => high))) / 10),
        axisLabel: { formatter: numbers.percent },
      }),
      yAxis: sweeper.axis("", {
        type: "category", data: upwards.map(([name]) => name), splitLine: { show: false },
        axisLabel: { color: colours.ink, width: 130, overflow: "truncate", formatter: null },
      }),
      series: [
        {
          type: "bar", barMaxWidth: 26,
          data: upwards.map(([name, values]) => ({
            value: values[0], about: `<b>${sweeper.escaped(name)}</b> ${words(values)}`,
            itemStyle: { color: colours.accent, opacity: isSure([name, values], rows) ? 0.9 : 0.25 },
          })),
        },
        ...upwards.map(([name, [, low, high]]) => ({
          type: "line", data: [[low, name], [high, name]], symbol: "rect", symbolSize: [2, 9], silent: true,
          lineStyle: { color: colours.ink, width: 1.5 }, itemStyle: { color: colours.ink },
        })),
      ],
    };
  }

  function explain() {
    const rows = found();
    const n = sweeper.data.all.filter((t) => t.state === "completed").length;
    const sure = rows.filter((row) => isSure(row, rows));
    about.textContent = sure.length || rows.length < 2
      ? "The lines are 90 % intervals. Faint bars cannot be told apart from the shortest one."
      : `Too early: after ${n} completed trials, no param can be told apart from the others.`;
  }

  sweeper.chart({
    id: "importance", option, isEmpty: () => found().length === 0,
    csv: () => [["param", "share", "low", "high"], ...found().map(([name, values]) => [name, ...values])],
    height: () => Math.max(150, Math.min(300, 60 + 30 * found().length)),
  });
  sweeper.onChange((what) => {
    if (what === "all") explain();
  });
}
