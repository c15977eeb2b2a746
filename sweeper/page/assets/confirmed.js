"use strict";
/* The ranking of trials by their mean score over several runs. There are three kinds of runs: the best
   trials of a search on fresh seeds, the repeated runs of each proposal in a search, and an ablation, in
   which a trial's params get the notebook's original values one at a time. */

{
  const section = document.getElementById("confirmed-section");
  const about = document.getElementById("confirmed-about");
  const table = document.getElementById("confirmed");
  const { text } = sweeper;

  /* List the reasons for which the ranking may be wrong. */
  function doubts({ missing, wanted, seed_has_no_effect }) {
    const lines = [];
    if (seed_has_no_effect) {
      lines.push(
        "Every seed gives the same score: the notebook does not use its seed, or the score is too"
        + " coarse, so it is not known how much of the score is luck.",
      );
    }
    if (missing) lines.push(`${missing} of ${wanted} runs are missing.`);
    return lines;
  }

  /* Return a link to a run. The runs on fresh seeds are in the page of their own study. */
  function link(run_id, label) {
    const { runs_page, confirmation } = sweeper.data;
    if (runs_page && sweeper.isCopy) { // The output of a Jupyter cell has no link to another page.
      const score = document.createElement("span");
      score.textContent = label;
      score.title = `run ${run_id}: sweeper.load("${confirmation.study}").page() shows its notebook`;
      return score;
    }
    if (runs_page) {
      const anchor = document.createElement("a");
      Object.assign(anchor, { href: `${runs_page}#open=${run_id}`, textContent: label });
      anchor.title = `the executed notebook of run ${run_id}, in the page of the runs`;
      return anchor;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.title = `the executed notebook of ${run_id}`;
    button.addEventListener("click", () => sweeper.open(run_id));
    return button;
  }

  /* Return the text of a trial's second last column: its score in the search. In an ablation, the text
     says instead by how much the ablated trial is better than this trial. */
  function beside({ run_id, search_score }, { ablated, worths }, score) {
    if (!ablated) return search_score === null ? "" : score(search_score);
    const { gain, interval } = worths[run_id] || {};
    return interval ? `${text(gain)} (${interval.map(text).join(" to ")})` : "";
  }

  /* Return a mean with its interval, or alone if the interval is not known. */
  function meanOf({ mean, interval }) {
    if (mean === null) return "";
    return interval ? numbers.withInterval(mean, (interval[1] - interval[0]) / 2) : text(mean);
  }

  function row(one, rank, confirmation, score) {
    const element = document.createElement("tr");
    element.classList.toggle("best", sweeper.data.confirmation.winner === one.run_id);
    const scores = one.runs.flatMap((run) => [
      link(run.run_id, run.score === null ? run.state : score(run.score)), " ",
    ]);
    // The page of the search has the notebooks of the ranked trials, so their run ids are links.
    const name = sweeper.data.runs_page ? sweeper.runLink(one.run_id) : one.run_id;
    const contents = [
      [String(rank)], [name], [meanOf(one)], [one.std === null ? "" : text(one.std)], [`${one.seeds} of ${confirmation.seeds}`],
      [beside(one, confirmation, score)], scores,
    ];
    element.append(
      ...contents.map((content) => {
        const cell = document.createElement("td");
        cell.append(...content);
        return cell;
      }),
    );
    return element;
  }

  function draw() {
    const { confirmation } = sweeper.data;
    section.hidden = !confirmation || !confirmation.ranking.length;
    if (section.hidden) return;
    const { ablated, objective, repeats, seeds } = confirmation;
    // Change only the text of the heading, which also contains a button.
    const title = [...section.querySelector("h2").childNodes].find((node) => node.nodeType === 3);
    title.textContent = repeats ? `Means over ${repeats}` : "Confirmed on fresh seeds";
    about.textContent = [
      repeats
        ? `Proposals with all their ${seeds} runs, by the mean of ${objective}. The others could no`
          + " longer be the best."
        : ablated
        ? `Trial ${ablated}, and its params with one of the notebook's original values each, on the`
          + ` same ${seeds} seeds: means of ${objective}, and by how much the trial is better.`
        : `The best trials of the search, run again on ${seeds} seeds that none of them had before.`
          + ` The mean of ${objective} over these seeds decides. The score in the search does not`
          + " count, because the trial was chosen for it.",
      ...doubts(confirmation),
    ].join(" ");
    const head = document.createElement("tr");
    const names = ["", ablated ? "with" : repeats ? "first run" : "in the search", "mean ± 95 % interval", "std", repeats || "seeds"];
    names.push(ablated ? `${ablated} is better by` : repeats ? "" : "score there", "scores");
    for (const name of names) {
      const cell = document.createElement("th");
      cell.textContent = name;
      head.append(cell);
    }
    table.tHead.replaceChildren(head);
    const all = confirmation.ranking.flatMap((one) => one.runs.map((run) => run.score));
    const score = numbers.formatOf(all);
    table.tBodies[0].replaceChildren(
      ...confirmation.ranking.map((one, index) => row(one, index + 1, confirmation, score)),
    );
  }

  sweeper.onChange((what) => {
    if (what === "all") draw();
  });
}
