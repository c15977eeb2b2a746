"use strict";
/* The scale of a column: the position of a value on an axis, and the ticks of that axis. The script
   uses no document, so that tests can run it without a browser.

   The position of a value is its log10 for logarithmic params, and its index (0, 1, 2, …) for
   categories. Trials without a value lie at `missing`, below all others. */

const scales = (() => {
  const { isNumber } = numbers;

  const FEW = 7; // A column with at most this many different values has a tick for each (chosen).

  function ofCategories(column, trials) {
    const isMissing = trials.some((trial) => column.of(trial) === undefined);
    const places = [...column.categories, ...(isMissing ? ["n/a"] : [])];
    const at = new Map(column.categories.map((category, i) => [category, i]));
    return {
      column, places, missing: null, low: 0, high: Math.max(1, places.length - 1),
      ticks: places.map((_, i) => i),
      label: (position) => places[position] ?? "",
      at: (value) => (value === undefined ? places.length - 1 : at.get(String(value)) ?? -1),
      position(trial) {
        return this.at(column.of(trial));
      },
    };
  }

  function tickValues(column, distinct, low, high, most) {
    if (distinct.length <= FEW && distinct.every(numbers.isShort)) return distinct;
    if (column.isLog) return numbers.logTicks(low, high, most);
    return numbers.ticks(low, high, most, column.isWhole);
  }

  /* Return the scale of a column from the smallest to the largest value that the trials have. */
  function of(column, trials, most = 6) {
    if (column.categories) return ofCategories(column, trials);
    const values = trials.map(column.of);
    const known = values.filter(isNumber);
    const isMissing = known.length < values.length;
    const distinct = [...new Set(known)].sort((a, b) => a - b);
    const scale = column.isLog ? Math.log10 : (v) => v;
    let [low, high] = distinct.length ? [distinct[0], distinct.at(-1)] : [0, 1];
    if (column.isScore) [low, high] = numbers.ends(known); // Outliers are drawn at the ends.
    if (low === high) {
      const half = (Math.abs(low) || 1) / 2;
      [low, high] = [low - half, high + half];
    }
    const [bottom, top] = [scale(low), scale(high)];
    const missing = isMissing ? bottom - (top - bottom) * 0.12 : null;
    const at = (value) => (isNumber(value) ? Math.max(bottom, Math.min(top, scale(value))) : missing);
    const ticks = distinct.length < 2 ? distinct : tickValues(column, distinct, low, high, most);
    const texts = numbers.tickTexts(ticks);
    const labels = new Map(ticks.map((v, i) => [scale(v), texts[i]]));
    if (distinct.at(-1) > high) labels.set(top, `≥ ${column.text(high)}`);
    if (distinct[0] < low) labels.set(bottom, `≤ ${column.text(low)}`);
    if (missing !== null) labels.set(missing, "n/a");
    return {
      column, places: null, missing, low: bottom, high: top, distinct,
      ticks: [...labels.keys()],
      label: (position) => labels.get(position)
        ?? [...labels].find(([at]) => Math.abs(at - position) < 1e-9 * (1 + Math.abs(at)))?.[1] ?? "",
      at,
      position: (trial) => at(column.of(trial)),
    };
  }

  /* Return the positions on a column's scale that get the first and the last colour. With ten values or
     more, 5 % of the values at each end are ignored. Otherwise, one outlier would give all others the
     same colour. */
  function colourEnds(scale, trials) {
    const known = trials.map(scale.position).filter((at) => isNumber(at) && at >= scale.low);
    if (!known.length) return [scale.low, scale.high];
    known.sort((a, b) => a - b);
    const at = (share) => known[Math.round(share * (known.length - 1))];
    const ends = known.length < 10 ? [known[0], known.at(-1)] : [at(0.05), at(0.95)];
    return ends[0] === ends[1] ? [known[0], known.at(-1)] : ends;
  }

  /* Return an offset from -0.5 to 0.5, by which points with equal values are spread. A trial always has
     the same offset. */
  function jitter(run_id) {
    let hash = 2166136261;
    for (let i = 0; i < run_id.length; i += 1) {
      hash = Math.imul(hash ^ run_id.charCodeAt(i), 16777619);
    }
    hash = Math.imul(hash ^ (hash >>> 15), 2246822519);
    return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32 - 0.5;
  }

  /* Return the quartiles of some values, and the ends of the whiskers: the outermost values within 1.5
     interquartile ranges of the quartiles. */
  function box(values) {
    const sorted = values.filter(isNumber).sort((a, b) => a - b);
    const at = (share) => {
      const place = share * (sorted.length - 1);
      const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
      return low + (high - low) * (place % 1);
    };
    const [first, middle, third] = [0.25, 0.5, 0.75].map(at);
    const reach = 1.5 * (third - first);
    const inside = sorted.filter((v) => v >= first - reach && v <= third + reach);
    return { low: inside[0], first, middle, third, high: inside.at(-1), n: sorted.length };
  }

  return { of, colourEnds, jitter, box };
})();
