"use strict";
/* The colours of trials by their values of a column that the reader has chosen. The smallest and the
   largest value of the selected trials have the colours at the ends of the scale. */

{
  const { state } = sweeper;
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  /* Colours of numbers, from low to high. Their contrast with the background is at least 3 to 1. */
  const ON_WHITE = ["#1f2a6b", "#4b2f9e", "#8b2fa8", "#c02a86", "#d83a55", "#cf5a00"].map(channels);
  const ON_DARK = ["#8c6fd6", "#5d8fe0", "#35a9b8", "#3fbf8a", "#8fd34f", "#fde725"].map(channels);
  const PALETTE = ["#0072b2", "#c27c00", "#00835f", "#b5568a", "#2b8fce", "#d55e00", "#8a7d00", "#777"];
  const PALETTE_ON_DARK = ["#4aa3df", "#e69f00", "#2fc79a", "#e391bd", "#7cc8f5", "#ff8a3d", "#d3c53a", "#a0a0a0"];

  sweeper.palette = (i) => {
    const palette = sweeper.isDark() ? PALETTE_ON_DARK : PALETTE;
    return palette[i % palette.length];
  };

  /* Return the colour for a share from 0 to 1. */
  sweeper.shade = (share) => {
    const stops = sweeper.isDark() ? ON_DARK : ON_WHITE;
    const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
    const low = Math.floor(at);
    const high = Math.min(low + 1, stops.length - 1);
    const mixed = stops[low].map((v, i) => Math.round(v + (stops[high][i] - v) * (at - low)));
    return `rgb(${mixed.join(",")})`;
  };

  /* Return the colours of the page's parts, which the style sheet defines. */
  let [drawn, isDrawnDark] = [null, null];
  sweeper.colours = () => {
    if (drawn && isDrawnDark === sweeper.isDark()) return drawn;
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    isDrawnDark = sweeper.isDark();
    drawn = {
      ink: of("--ink"), soft: of("--soft"), line: of("--line"), accent: of("--accent"),
      ground: of("--panel"), faint: of("--faint"),
    };
    return drawn;
  };

  /* Return a function that returns its last result again if it is called with the same arguments. */
  function kept(make) {
    let [result, of] = [null, null];
    return (...parts) => {
      if (of === null || parts.some((part, i) => part !== of[i])) [result, of] = [make(...parts), parts];
      return result;
    };
  }

  const coloured = kept(({ goals, scores, params, duration }, key) =>
    [...goals, ...scores, ...params, duration].find((column) => column.key === key));
  const axisOf = kept((column, data) => scales.of(column, data.all));

  const scaleOf = kept((selected, column, axis) => {
    const goal = sweeper.data.objectives.find((g) => column.key === `score.${g.name}`);
    // Only completed trials count for an objective: the score of a pruned trial may be so far off
    // that all completed trials would get the same colour.
    const completed = goal ? selected.filter(sweeper.hasGoal) : [];
    const ends = axis.places ? null : scales.colourEnds(axis, completed.length > 1 ? completed : selected);
    const isBestLow = goal?.direction === "minimize"; // The best scores have the brightest colours.
    const { faint } = sweeper.colours();
    const shareOf = (trial) => {
      if (!numbers.isNumber(column.of(trial))) return null;
      const [low, high] = ends;
      const share = high > low ? (axis.position(trial) - low) / (high - low) : 0.5;
      return isBestLow ? 1 - share : share;
    };
    const of = (trial) => {
      if (axis.places) {
        return column.of(trial) === undefined ? faint : sweeper.palette(axis.position(trial));
      }
      const share = shareOf(trial);
      return share === null ? faint : sweeper.shade(share);
    };
    return { column, axis, ends, isBestLow, of, shareOf };
  });

  /* Return the colours of the trials. `of(trial)` is a colour, and `shareOf(trial)` is the position on
     the scale from 0 to 1, or null for a trial without a number. */
  sweeper.colourScale = () => {
    const column = coloured(sweeper.columns, state.colour || `score.${state.goal}`);
    return scaleOf(sweeper.selected(), column, axisOf(column, sweeper.data), state.goal, sweeper.isDark());
  };

  function text(words) {
    const span = document.createElement("span");
    span.textContent = words;
    return span;
  }

  sweeper.drawLegend = () => {
    const { column, axis, ends, isBestLow } = sweeper.colourScale();
    const parts = [];
    if (axis.places) {
      axis.places.forEach((place, i) => {
        const dot = document.createElement("i");
        dot.className = "dot";
        dot.style.background = i < column.categories.length ? sweeper.palette(i) : sweeper.colours().faint;
        parts.push(dot, text(place));
      });
    } else if (ends[0] === ends[1]) {
      parts.push(text(sweeper.data.all.some((t) => numbers.isNumber(column.of(t))) ? "all have the same colour" : ""));
    } else {
      const bar = document.createElement("i");
      const stops = [0, 0.25, 0.5, 0.75, 1].map((at) => sweeper.shade(isBestLow ? 1 - at : at));
      bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
      const back = column.isLog ? (v) => 10 ** v : (v) => v;
      const isCut = axis.low < ends[0] || axis.high > ends[1];
      const [low, high] = ends.map((at) => column.text(back(at)));
      parts.push(text((isCut ? "≤ " : "") + low), bar, text((isCut ? "≥ " : "") + high));
      if (axis.missing !== null) {
        const dot = document.createElement("i");
        dot.className = "dot";
        dot.style.background = sweeper.colours().faint;
        parts.push(dot, text("n/a"));
      }
    }
    document.getElementById("legend").replaceChildren(...parts);
  };

  sweeper.onChange((what) => {
    if (what !== "open" && what !== "table") sweeper.drawLegend();
  });
}
