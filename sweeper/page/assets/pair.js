"use strict";
/* Two params and the score: the trials as points, and the score that a Gaussian process predicts as the
   background, if a prediction is available. Where the prediction is uncertain, it fades out. */

{
  const { state } = sweeper;
  const byId = (id) => document.getElementById(id);
  const about = byId("pair-about");

  const varied = () => sweeper.columns.params.filter((column) => !column.isConstant);
  const chosen = () => (state.pair || []).map((key) => varied().find((column) => column.key === key));
  const surfaces = () => sweeper.data.surfaces?.[state.goal] || [];

  /* Interactions with a smaller share of the variance are not pointed out (chosen between two
     measurements). The Gaussian process found a share of 0.16 for two params without an interaction,
     and 0.25 for an optimum that depends on a choice. */
  const LEAST = 0.2;
  const mattered = () =>
    (sweeper.data.insights?.mattered || []).find(({ objective }) => objective === state.goal);

  /* Return whether the answer says that it is too early to name params that matter. Interactions may
     then be noise, too. */
  const isTooEarly = () => Boolean(mattered()) && !mattered().groups.length && !mattered().pair;

  const interacting = () =>
    (isTooEarly() ? [] : surfaces().filter((pair) => pair.interaction >= LEAST));

  const turned = (rows) => rows[0].map((_, i) => rows.map((row) => row[i]));

  /* Return the predicted scores over two params, transposed if needed so that `x` is horizontal. */
  function surfaceOf(x, y) {
    const isOf = ({ params }) => params.includes(x.name) && params.includes(y.name);
    const found = surfaces().find(isOf);
    if (!found) return null;
    const isTurned = found.params[0] === y.name;
    const [means, stds] = [found.means, found.stds].map((rows) => (isTurned ? turned(rows) : rows));
    const [xs, ys] = (isTurned ? [...found.places].reverse() : found.places).map((places, i) => {
      const { categories } = [x, y][i];
      return categories ? places.map((place) => categories[place]) : places;
    });
    // Rounding makes positions of a small range of whole numbers equal. Use only the first of them.
    const first = (places) => places.map((place, i) => i).filter((i) => places.indexOf(places[i]) === i);
    const [columns, rows] = [first(xs), first(ys)];
    const picked = (table) => columns.map((i) => rows.map((j) => table[i][j]));
    return {
      means: picked(means), stds: picked(stds), xs: columns.map((i) => xs[i]), ys: rows.map((j) => ys[j]),
    };
  }

  /* Return the colour that results from a colour with this opacity on the charts' background. */
  function blended(colour, opacity) {
    const channels = (text) => (text.startsWith("#")
      ? [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) : text.match(/\d+/g).map(Number));
    const ground = channels(sweeper.colours().ground);
    const mixed = channels(colour).map((v, i) => Math.round(opacity * v + (1 - opacity) * ground[i]));
    return `rgb(${mixed.join(",")})`;
  }

  /* Return a rectangle for each prediction. It is fainter where the prediction is uncertain. */
  function heat(surface, sx, sy, shade) {
    const edges = (at) => at.map((v, i) => [
      i === 0 ? v - (at[1] - v) / 2 : (at[i - 1] + v) / 2,
      i === at.length - 1 ? v + (v - at[i - 1]) / 2 : (v + at[i + 1]) / 2,
    ]);
    const [columns, rows] = [edges(surface.xs.map(sx.at)), edges(surface.ys.map(sy.at))];
    const largest = Math.max(...surface.stds.flat());
    const data = [];
    surface.means.forEach((means, i) => means.forEach((mean, j) => {
      const std = surface.stds[i][j];
      data.push({
        value: [columns[i][0], columns[i][1], rows[j][0], rows[j][1]],
        about: `predicted ${sweeper.escaped(state.goal)}: <b>${numbers.withInterval(mean, 1.96 * std)}</b>`
          + sweeper.rows([[sx.column.name, numbers.text(surface.xs[i])], [sy.column.name, numbers.text(surface.ys[j])]]),
        itemStyle: { color: blended(shade(mean), 0.7 - 0.55 * (std / largest)) },
      });
    }));
    return {
      type: "custom", data, encode: { x: [0, 1], y: [2, 3] }, z: 1, clip: true,
      renderItem(_, api) {
        const [left, top] = api.coord([api.value(0), api.value(3)]);
        const [right, bottom] = api.coord([api.value(1), api.value(2)]);
        return {
          type: "rect", style: api.style(),
          shape: {
            x: Math.round(left), y: Math.round(top), width: Math.round(right) - Math.round(left),
            height: Math.round(bottom) - Math.round(top),
          },
        };
      },
    };
  }

  /* Return a text about how to get a prediction. It is empty while trials run, or if there are too few
     trials for a prediction. */
  function lacking() {
    const { is_predicting, is_running, study } = sweeper.data;
    const isAnalyzed = Object.keys(sweeper.data.importances[state.goal] || {}).length > 1;
    return is_predicting || is_running || !isAnalyzed ? ""
      : "No predicted scores, because torch is not installed: pip install 'notebook-hpo[torch]', then"
        + ` notebook_hpo.py export ${study}`;
  }

  function option() {
    const [x, y] = chosen();
    if (!x || !y || x === y) return {};
    const trials = sweeper.data.all.filter((t) =>
      sweeper.hasGoal(t) && x.of(t) !== undefined && y.of(t) !== undefined);
    const [sx, sy] = [x, y].map((column) => scales.of(column, trials));
    const surface = surfaceOf(x, y);
    const isGoal = sweeper.colourScale().column.key === `score.${state.goal}`;
    const goal = scales.of(sweeper.columns.goals.find((g) => g.name === state.goal), sweeper.data.all);
    const [low, high] = isGoal ? sweeper.colourScale().ends : scales.colourEnds(goal, sweeper.data.all);
    const isDown = sweeper.goal().direction === "minimize";
    const shade = (mean) => {
      const share = high > low ? (mean - low) / (high - low) : 0.5;
      return sweeper.shade(isDown ? 1 - share : share);
    };
    const spread = (scale, t, salt) => (scale.places ? 0.5 * scales.jitter(salt + t.run_id) : 0);
    about.textContent = surface
      ? `Behind the trials: the ${state.goal} that a Gaussian process predicts, the other params as in the best`
        + " trial. It is faint where it is unsure."
      : lacking();
    const { ground } = sweeper.colours();
    return {
      grid: { ...sweeper.grid, left: 76 },
      xAxis: sweeper.columnAxis(sx), yAxis: sweeper.columnAxis(sy, { nameGap: 60 }),
      series: [
        ...(surface ? [heat(surface, sx, sy, shade)] : []),
        {
          type: "scatter", symbolSize: trials.length > 300 ? 7 : 10, z: 2,
          data: sweeper.layered(trials).map((t) => {
            const point = sweeper.point(t, [
              sx.position(t) + spread(sx, t, "x"), sy.position(t) + spread(sy, t, "y"),
            ]);
            Object.assign(point.itemStyle, surface ? { borderColor: ground, borderWidth: 1 } : {});
            return point;
          }),
        },
      ],
    };
  }

  /* Choose the pair that interacts most, else the two most important params. */
  function usual() {
    const keys = varied().map((column) => column.key);
    const strongest = mattered()?.pair || interacting()[0]?.params;
    const important = Object.keys(sweeper.data.importances[state.goal] || {});
    const named = (strongest || important).map((name) => `param.${name}`);
    return [...new Set([...named, ...keys])].filter((key) => keys.includes(key)).slice(0, 2);
  }

  function arrange() {
    const columns = varied();
    byId("pair-section").hidden = columns.length < 2 || !sweeper.data.all.some(sweeper.hasGoal);
    const keys = columns.map((column) => column.key);
    if (!state.pair?.every((key) => keys.includes(key))) state.pair = null;
    const shown = state.pair || usual();
    state.pair = shown;
    for (const [i, id] of ["pair-x", "pair-y"].entries()) {
      sweeper.fillSelect(byId(id), columns.map((column) => [column.key, column.name]), shown[i]);
    }
    const strongest = interacting().slice(0, 3);
    const intro = strongest.length ? "interact most: " : surfaces().length && !isTooEarly() ? "No pair interacts noticeably." : "";
    byId("pair-strongest").replaceChildren(intro, ...strongest.flatMap((pair) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${pair.params.join(" × ")} (${numbers.percent(pair.interaction)})`;
      button.title = "share of the predicted variance that neither param explains alone";
      button.addEventListener("click", () => {
        state.pair = pair.params.map((name) => `param.${name}`);
        sweeper.changed("selection");
      });
      return [button, " "];
    }));
  }

  for (const [i, id] of ["pair-x", "pair-y"].entries()) {
    byId(id).addEventListener("change", (event) => {
      state.pair = [...state.pair];
      state.pair[i] = event.target.value;
      sweeper.changed("selection");
    });
  }
  sweeper.chart({ id: "pair", option });
  sweeper.onChange((what) => {
    if (what === "all" || what === "selection") arrange();
  });
}
