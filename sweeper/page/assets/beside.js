"use strict";
/* Two executed notebooks next to each other. Equal code is shown once, outputs are aligned by cell, and
   differences are marked. The HTML of cells is safe: it was sanitised when it was written, and scripts
   in a document of `DOMParser` do not run. */

{
  const MOST_PAIRS = 1_000_000; // most pairs of entries to compare, which takes some 10 ms (chosen)

  /* Align two lists: return pairs of the indexes of equal entries, in order. An entry that only one
     list has is paired with -1. */
  function aligned(one, other) {
    let begin = 0;
    while (begin < Math.min(one.length, other.length) && one[begin] === other[begin]) begin += 1;
    let end = 0;
    const most = Math.min(one.length, other.length) - begin;
    while (end < most && one.at(-1 - end) === other.at(-1 - end)) end += 1;
    const [n, m] = [one.length - begin - end, other.length - begin - end];
    const pairs = Array.from({ length: begin }, (_, i) => [i, i]);
    pairs.push(...between(one.slice(begin, begin + n), other.slice(begin, begin + m))
      .map((pair) => pair.map((i) => (i < 0 ? i : i + begin))));
    for (let i = end; i > 0; i -= 1) pairs.push([one.length - i, other.length - i]);
    return pairs;
  }

  /* Return pairs as `aligned` does, with the largest possible number of equal entries. If the lists
     are too long to compare, return pairs of the entries at the same index. */
  function between(one, other) {
    const [n, m] = [one.length, other.length];
    const pairs = [];
    if (n * m > MOST_PAIRS) {
      for (let i = 0; i < Math.max(n, m); i += 1) pairs.push([i < n ? i : -1, i < m ? i : -1]);
      return pairs;
    }
    const longest = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
    for (let i = n - 1; i >= 0; i -= 1) {
      for (let j = m - 1; j >= 0; j -= 1) {
        longest[i][j] = one[i] === other[j]
          ? longest[i + 1][j + 1] + 1
          : Math.max(longest[i + 1][j], longest[i][j + 1]);
      }
    }
    for (let i = 0, j = 0; i < n || j < m;) {
      if (i < n && j < m && one[i] === other[j]) pairs.push([i++, j++]);
      else if (j >= m || (i < n && longest[i + 1][j] >= longest[i][j + 1])) pairs.push([i++, -1]);
      else pairs.push([-1, j++]);
    }
    return pairs;
  }

  /* Join neighbouring cells into pairs if one is only in the first notebook, and the other is only in
     the second: probably the same cell was changed. */
  function joined(pairs) {
    const found = [];
    for (let at = 0; at < pairs.length;) {
      let end = at;
      while (end < pairs.length && pairs[end].includes(-1)) end += 1;
      const rest = pairs.slice(at, end);
      const [left, right] = [0, 1].map((side) => rest.map((p) => p[side]).filter((i) => i >= 0));
      for (let i = 0; i < Math.max(left.length, right.length); i += 1) {
        found.push([left[i] ?? -1, right[i] ?? -1]);
      }
      if (end < pairs.length) found.push(pairs[end]);
      at = end + 1;
    }
    return found;
  }

  /* --- one cell ------------------------------------------------------------------------------- */

  /* Return HTML without ids and execution counts, which differ even between equal cells. */
  const essence = (html) =>
    html.replace(/ id="[^"]*"/g, "").replace(/(In|Out)(&nbsp;|\u00a0|\s)*\[[^\]]*\]:/g, "");

  function parsed(html) {
    const cell = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    const part = (name) => cell?.querySelector(`:scope > .jp-Cell-${name}Wrapper`) || null;
    const [input, output] = [part("input"), part("output")];
    return {
      cell, input, output,
      code: essence(input?.outerHTML ?? html), shown: output ? essence(output.outerHTML) : "",
    };
  }

  /* Return a part of a cell as HTML, in an element that has the cell's classes. */
  function drawn({ cell }, part) {
    if (part === null) return "";
    const around = cell.cloneNode(false);
    around.append(part);
    return around.outerHTML;
  }

  /* Mark what differs between two parts of cells: lines of texts, and cells of tables. */
  function mark(one, other) {
    const [left, right] = [one, other].map((part) => [...(part?.querySelectorAll("pre, table") || [])]);
    left.forEach((element, i) => {
      if (right[i]?.tagName !== element.tagName) return;
      if (element.tagName === "PRE") markLines(element, right[i]);
      else markValues(element, right[i]);
    });
  }

  function markValues(...tables) {
    const [one, other] = tables.map((table) => [...table.querySelectorAll("td")]);
    if (one.length !== other.length) return;
    one.forEach((cell, i) => {
      if (cell.textContent === other[i].textContent) return;
      for (const each of [cell, other[i]]) each.classList.add("marked");
    });
  }

  function markLines(...texts) {
    const lines = texts.map((pre) => pre.textContent.split("\n"));
    const pairs = aligned(...lines);
    texts.forEach((pre, side) => {
      const alone = pairs.filter((pair) => pair[1 - side] < 0).map((pair) => pair[side]);
      wrapLines(pre, new Set(alone));
    });
  }

  /* Wrap the text of the lines with these numbers in <mark>. A line may consist of several elements. */
  function wrapLines(pre, numbers) {
    const nodes = [];
    const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) nodes.push(walker.currentNode);
    let line = 0;
    for (const node of nodes) {
      const parts = node.textContent.split("\n");
      const wrapped = parts.flatMap((text, i) => {
        const number = line + i;
        const end = i < parts.length - 1 ? ["\n"] : [];
        if (!numbers.has(number) || text === "") return [text, ...end];
        const marked = pre.ownerDocument.createElement("mark");
        marked.textContent = text;
        return [marked, ...end];
      });
      line += parts.length - 1;
      node.replaceWith(...wrapped);
    }
  }

  /* --- the pair --------------------------------------------------------------------------------- */

  let run_ids = ["", ""];

  const both = (name, ...sides) => {
    const cells = sides.map((html, i) => `<div data-run="${run_ids[i]}">${html}</div>`);
    return sides.some(Boolean) ? `<div class="pair ${name}">${cells.join("")}</div>` : "";
  };

  function row(a, b) {
    if (!a || !b) return `<div class="differs">${both("", a?.cell.outerHTML || "", b?.cell.outerHTML || "")}</div>`;
    const isSame = [a.code === b.code, a.shown === b.shown];
    if (isSame.every(Boolean)) return `<div>${a.cell.outerHTML}</div>`;
    if (!isSame[0]) mark(a.input, b.input);
    if (!isSame[1]) mark(a.output, b.output);
    const code = isSame[0] ? drawn(a, a.input) : both("code", drawn(a, a.input), drawn(b, b.input));
    const outputs = isSame[1] ? drawn(a, a.output) : both("outputs", drawn(a, a.output), drawn(b, b.output));
    return `<div class="differs">${code}${outputs}</div>`;
  }

  /* Return the cells of two notebooks as HTML.
     ids: run ids of the trials.
     isDiffering: whether to leave out cells that are the same. */
  sweeper.beside = (ids, notebooks, isDiffering) => {
    run_ids = ids;
    const [left, right] = notebooks.map((cells) => cells.map(parsed));
    const pairs = joined(aligned(left.map((c) => c.code), right.map((c) => c.code)));
    const rows = pairs.map(([i, j]) => row(left[i], right[j]));
    const kept = isDiffering ? rows.filter((html) => html.startsWith('<div class="differs">')) : rows;
    return kept.join("") || '<p class="none">no cell differs</p>';
  };

  /* Return the cells of a notebook. In its parameters cell, the assignments are struck through that the
     next cell, which papermill has injected, replaces. */
  sweeper.struck = (cells) => {
    const at = cells.findIndex((html) => html.includes("celltag_injected-parameters"));
    if (at < 1 || !cells[at - 1].includes("celltag_parameters")) return cells;
    const [before, injected] = [at - 1, at].map((i) => parsed(cells[i]));
    const assigned = /^(\w+)\s*(?::[^=]*)?=(?!=)/u;
    const linesOf = ({ input }) => input.querySelector("pre").textContent.split("\n");
    const names = new Set(linesOf(injected).map((line) => line.match(assigned)?.[1]));
    const lines = linesOf(before).map((line) => line.match(assigned)?.[1]);
    wrapLines(
      before.input.querySelector("pre"),
      new Set(lines.flatMap((name, i) => (name && names.has(name) ? [i] : []))),
    );
    const struck = before.cell.outerHTML.replace(/(<\/?)mark>/g, "$1del>");
    return cells.map((html, i) => (i === at - 1 ? struck : html));
  };
}
