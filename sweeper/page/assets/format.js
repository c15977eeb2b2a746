"use strict";
/* The one format of numbers on the page, and the ticks of axes. It knows no study and no document,
   so that it runs without a browser.

   A number has three significant digits, as 0.497 or 2.41e-4. The numbers of one column have the
   same number of decimals, as many as their spread needs. A tick is a round number. */

const numbers = (() => {
  /** @returns {value is number} */
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  /* Return a number with its exponent, as 2.41e-4. */
  const withExponent = (value, digits) =>
    (+value.toPrecision(digits)).toExponential().replace("e+", "e");

  /* Format a value with at most this number of significant digits. Whole numbers stay whole. */
  function text(value, digits = 3) {
    if (value === undefined || value === null) return "n/a";
    if (!isNumber(value)) return String(value);
    const size = Math.abs(value);
    if (size === 0 || (Number.isInteger(value) && size < 1e5)) return String(value);
    if (size >= 1e5 || size < 1e-3) return withExponent(value, digits);
    return String(+value.toPrecision(Math.max(digits, size >= 1000 ? 4 : 1)));
  }

  /* Format a number with three significant digits, zeros at its end included: 0.0400, 2.40e-4. */
  function evenText(value) {
    const size = Math.abs(value);
    if (!isNumber(value) || value === 0 || (size >= 100 && size < 1e5)) return text(value);
    return size >= 1e5 || size < 1e-3
      ? value.toExponential(2).replace("e+", "e") : value.toPrecision(3);
  }

  /* Return all digits of a value. The page shows them when the pointer is on a number. */
  const full = (value) => (value === undefined || value === null ? "n/a" : String(value));

  /* Return whether a number has at most three significant digits, as numbers that people choose. */
  const isShort = (value) => +value.toPrecision(3) === value;

  /* Return how many decimals distinguish numbers that differ by about `spread`. */
  const decimalsFor = (spread) => Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(spread) + 1e-9)));

  /* Return the function that formats the numbers of one column, all with the same decimals.
     Numbers that people have chosen, such as 0.25, keep their own digits. */
  function formatOf(values, isLog = false) {
    const known = values.filter(isNumber).sort((a, b) => a - b);
    if (!known.length || known.every(isShort)) return (v) => text(v);
    if (known.every((v) => Number.isInteger(v) && Math.abs(v) < 1e7)) return full;
    if (isLog) return evenText;
    const [low, high] = ends(known);
    const size = Math.max(Math.abs(low), Math.abs(high));
    const at = (share) => known[Math.round(share * (known.length - 1))];
    const spread = Math.min(high - low, at(0.95) - at(0.05) || Infinity) || size / 10;
    if (size < 1e-3 || size >= 1e5 || (low > 0 && high / low > 1000)) return evenText;
    const decimals = decimalsFor(spread);
    return (v) => {
      if (!isNumber(v)) return text(v);
      const fixed = v.toFixed(decimals);
      return Math.abs(v) >= 1e5 || (v !== 0 && +fixed === 0) ? text(v) : fixed;
    };
  }

  /* Format a mean and half the width of its interval: 0.497 ± 0.030. */
  function withInterval(mean, half) {
    if (!isNumber(half)) return text(mean);
    if (half === 0) return `${text(mean, 6)} ± 0`;
    const rounded = +half.toPrecision(2);
    const size = Math.max(Math.abs(mean), rounded);
    if (size < 1e-3 || size >= 1e5) return `${text(mean)} ± ${text(rounded, 2)}`;
    const decimals = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(rounded))));
    return `${mean.toFixed(decimals)} ± ${rounded.toFixed(decimals)}`;
  }

  /* Format a share: 38 %. */
  const percent = (share) => `${Math.round(100 * share)} %`;

  const clean = (value) => +value.toPrecision(12);

  /* Return round numbers from `low` to `high`, at most `most`: multiples of 1, 2 or 5. */
  function ticks(low, high, most = 6, isWhole = false) {
    if (!(high > low)) return [low];
    for (let power = Math.floor(Math.log10((high - low) / most)); ; power += 1) {
      for (const factor of [1, 2, 5]) {
        const step = factor * 10 ** power;
        if (isWhole && step < 1) continue;
        const first = Math.ceil(clean(low / step));
        const last = Math.floor(clean(high / step));
        if (last - first + 1 > most) continue;
        return Array.from({ length: last - first + 1 }, (_, i) => clean((first + i) * step));
      }
    }
  }

  /* Return round numbers on a logarithmic axis: decades, else 1, 2 and 5 of each decade. */
  function logTicks(low, high, most = 6) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const among = (factors, every = 1) => {
      const found = [];
      for (let power = first; power <= last; power += 1) {
        if (power % every === 0) for (const factor of factors) found.push(clean(factor * 10 ** power));
      }
      return found.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
    };
    const finest = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]].map((f) => among(f));
    for (let every = 2; every < 12; every += 1) finest.push(among([1], every));
    const fitting = finest.find((found) => found.length <= most) || finest.at(-1);
    return fitting.length > 1 ? fitting : ticks(low, high, most);
  }

  /* Return the texts of ticks. If rounding made two of them equal, they have all their digits. */
  function tickTexts(values) {
    const texts = values.map((v) => text(v, 6));
    return new Set(texts).size === texts.length ? texts : values.map(full);
  }

  /* Return the smallest and the largest value, without outliers, which are more than 6 interquartile
     ranges away. */
  function ends(values) {
    const known = values.filter(isNumber).sort((a, b) => a - b);
    if (!known.length) return [0, 1];
    const at = (share) => known[Math.round(share * (known.length - 1))];
    const reach = 6 * (at(0.75) - at(0.25));
    if (known.length < 8 || reach === 0) return [known[0], known.at(-1)];
    const inside = known.filter((v) => v >= at(0.25) - reach && v <= at(0.75) + reach);
    return [inside[0], inside.at(-1)];
  }

  return { isNumber, isShort, text, full, formatOf, withInterval, percent, ticks, logTicks, tickTexts, ends };
})();
