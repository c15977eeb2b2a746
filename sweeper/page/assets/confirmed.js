"use strict";
/* The best trials, or an ablated one, run again on fresh seeds: the ranking by their means. */

{
  const section = document.getElementById("confirmed-section");
  const about = document.getElementById("confirmed-about");
  const table = document.getElementById("confirmed");
  const { text } = sweeper;

  /* By what the trial in the headline is the best, in words; there is one once all runs ended. */
  sweeper.wonBy = () => {
    const { ranking: [first], repeats } = sweeper.data.confirmation;
    return `mean over ${first.seeds} ${repeats ? "runs" : "fresh seeds"} ${text(first.mean)}`;
  };

  /* What keeps the ranking from being the last word. */
  function doubts({ winner, indistinguishable, missing, wanted, seed_has_no_effect }) {
    const lines = [];
    if (seed_has_no_effect) {
      lines.push(
        "Every seed gives the same score: the notebook does not use its seed, or the score is too"
        + " coarse, so nothing is known of how far luck goes.",
      );
    } else if (indistinguishable.length) {
      const names = indistinguishable.slice(0, 5).join(", ");
      const more = indistinguishable.length > 5 ? ` and ${indistinguishable.length - 5} more` : "";
      lines.push(`${winner} cannot be told apart from ${names}${more} by these seeds.`);
    }
    if (missing) lines.push(`${missing} of ${wanted} runs are missing.`);
    return lines;
  }

  function link(run_id, label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.title = `the executed notebook of ${run_id}`;
    button.addEventListener("click", () => sweeper.open(run_id));
    return button;
  }

  /* What a trial had in the search; of an ablation, how much worse than the ablated one it is. */
  function beside({ run_id, search_score }, { ablated, worths }) {
    if (!ablated) return search_score === null ? "" : text(search_score);
    const { gain, interval } = worths[run_id] || {};
    return interval ? `${text(gain)} (${interval.map(text).join(" to ")})` : "";
  }

  function row(one, rank, confirmation) {
    const element = document.createElement("tr");
    element.classList.toggle("best", sweeper.data.confirmation.winner === one.run_id);
    const interval = one.interval ? one.interval.map(text).join(" to ") : "";
    const scores = one.runs.flatMap((run) => [
      link(run.run_id, run.score === null ? run.state : text(run.score)), " ",
    ]);
    const contents = [
      [String(rank)], [one.run_id], [one.mean === null ? "" : text(one.mean)],
      [interval], [one.std === null ? "" : text(one.std)], [`${one.seeds} of ${confirmation.seeds}`],
      [beside(one, confirmation)], scores,
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
    section.querySelector("h2").textContent = repeats
      ? `Means over ${repeats}` : "Confirmed on fresh seeds";
    about.textContent = [
      repeats
        ? `Proposals that have all their ${seeds} runs, by the mean of ${objective}. The others could`
          + " no longer be the best."
        : ablated
        ? `Trial ${ablated} and its params with one value of the notebook's own each, on the same`
          + ` ${seeds} seeds: means of ${objective}, and by how much the trial is better.`
        : `The best trials of the search, run again on ${seeds} seeds that none of them had before.`
          + ` The mean of ${objective} over these decides; the score of the search does not count, as`
          + " it was chosen for being high or low.",
      ...doubts(confirmation),
    ].join(" ");
    const head = document.createElement("tr");
    const names = ["", ablated ? "with" : repeats ? "first run" : "in the search", "mean", "95 % interval", "std", repeats || "seeds"];
    names.push(ablated ? `${ablated} is better by` : repeats ? "" : "score there", "scores");
    for (const name of names) {
      const cell = document.createElement("th");
      cell.textContent = name;
      head.append(cell);
    }
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(
      ...confirmation.ranking.map((one, index) => row(one, index + 1, confirmation)),
    );
  }

  sweeper.onChange((what) => {
    if (what === "all") draw();
  });
}
