"use strict";
/* How much each param mattered for the objective. The study's answer, on top of the page, names only
   params whose effects are larger than the noise. The bars of all other params are faint. */

{
  const { state } = sweeper;
  const about = document.getElementById("importance-about");
  const found = () => Object.entries(sweeper.data.importances[state.goal] || {});

  /* Return the names of the params whose effects are larger than the noise, as the answer says. */
  function sure() {
    const rows = found();
    if (rows.length === 1) return new Set([rows[0][0]]); // A single param explains all differences.
    const mattered = sweeper.data.insights?.mattered || [];
    const { groups = [], pair } = mattered.find(({ objective }) => objective === state.goal) || {};
    return new Set([...groups.flatMap(Object.keys), ...(pair || [])]);
  }

  function option() {
    const rows = found().slice(0, 12);
    const upwards = [...rows].reverse();
    const named = sure();
    const colours = sweeper.colours();
    const words = ([share, low, high]) =>
      `${numbers.percent(share)} (${numbers.percent(low)} to ${numbers.percent(high)})`;
    return {
      grid: { ...sweeper.grid, left: 8, right: 24, containLabel: true, bottom: 22 },
      xAxis: sweeper.axis("share of the variance", {
        min: 0, max: Math.min(1, Math.ceil(5 * Math.max(...rows.map(([, [, , high]]) => high))) / 5),
        axisLabel: { formatter: numbers.percent },
      }),
      yAxis: sweeper.axis("", {
        type: "category", data: upwards.map(([name]) => name), splitLine: { show: false },
        // Cut names at their beginnings: options of one call, such as `Adam.lr`, differ at the end.
        axisLabel: { color: colours.ink, formatter: (name) => (name.length > 24 ? `…${name.slice(-23)}` : name) },
      }),
      series: [
        {
          type: "bar", barMaxWidth: 26,
          data: upwards.map(([name, values]) => ({
            value: values[0], about: `<b>${sweeper.escaped(name)}</b> ${words(values)}`,
            itemStyle: { color: colours.accent, opacity: named.has(name) ? 0.9 : 0.25 },
          })),
        },
        ...upwards.map(([name, [, low, high]]) => ({
          type: "line", data: [[low, name], [high, name]], symbol: "rect", symbolSize: [2, 9], silent: true,
          lineStyle: { color: colours.ink, width: 1.5 }, itemStyle: { color: colours.ink },
        })),
      ],
    };
  }

  /* Return the text about how trials without a score count. */
  function withoutScore() {
    const isAny = (state) => sweeper.data.all.some((trial) => trial.state === state);
    const counts = sweeper.data.is_predicting ? " count with the score that is predicted for them." : " do not count.";
    return (isAny("failed") ? " Failed trials do not count." : "") + (isAny("pruned") ? ` Pruned trials${counts}` : "");
  }

  function explain() {
    const hint = `The lines are 90 % intervals. Faint bars are small, or may be noise.${withoutScore()}`;
    const { sentences = [], mattered = [] } = sweeper.data.insights || {};
    const index = mattered.findIndex(({ objective }) => objective === state.goal);
    // If the answer says that it is too early, or that no param stands out, the chart says so, too.
    const said = sentences.filter(({ topic }) => topic === "mattered")[index]?.text;
    about.textContent = sure().size || !said ? hint : `${said[0].toUpperCase()}${said.slice(1)}. ${hint}`;
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
