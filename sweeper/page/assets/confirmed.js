"use strict";
/* The best trials, run again on fresh seeds: the ranking that decides which one is the best. */

{
  const section = document.getElementById("confirmed-section");
  const about = document.getElementById("confirmed-about");
  const table = document.getElementById("confirmed");
  const { text } = sweeper;

  const winner = () => {
    const { confirmation } = sweeper.data;
    return confirmation?.ranking.find((one) => one.run_id === confirmation.winner);
  };

  /* By what a trial is the best, in words. */
  sweeper.wonBy = (run_id) => {
    const first = winner();
    return first?.run_id === run_id
      ? `mean over ${first.seeds} fresh seeds ${text(first.mean)}`
      : "by its score in the search, not confirmed";
  };

  /* What keeps the ranking from being the last word. */
  function doubts({ indistinguishable, missing, wanted, seed_has_no_effect, ranking }) {
    const lines = [];
    const first = winner();
    if (seed_has_no_effect) {
      lines.push(
        "Every seed gives the same score: the notebook does not use its seed, or the score is too"
        + " coarse, so nothing is known of how far luck goes.",
      );
    } else if (first && indistinguishable.length) {
      const next = ranking.find((one) => one.run_id === indistinguishable[0]);
      const p = sweeper.isNumber(next.p_value) ? `, p = ${text(+next.p_value.toPrecision(2))}` : "";
      const names = indistinguishable.slice(0, 5).join(", ");
      const more = indistinguishable.length > 5 ? ` and ${indistinguishable.length - 5} more` : "";
      lines.push(
        `${first.run_id} cannot be told apart from ${names}${more} (paired t-test over the seeds${p}).`,
      );
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

  function row(one, rank, { seeds }) {
    const element = document.createElement("tr");
    element.classList.toggle("best", sweeper.data.best.includes(one.run_id));
    const interval = one.interval ? one.interval.map(text).join(" to ") : "";
    const failed = one.failed ? `, ${one.failed} without a score` : "";
    const scores = one.runs.flatMap((run) => [
      link(run.run_id, run.score === null ? run.state : text(run.score)), " ",
    ]);
    const contents = [
      [String(rank)], [link(one.run_id, one.run_id)], [one.mean === null ? "" : text(one.mean)],
      [interval], [one.std === null ? "" : text(one.std)], [`${one.seeds} of ${seeds}${failed}`],
      [text(one.search_score)], scores,
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
    const ranking = (confirmation?.ranking || []).filter((one) => one.runs.length > 0);
    section.hidden = ranking.length === 0;
    if (section.hidden) return;
    about.textContent = [
      `The best trials of the search, run again on ${confirmation.seeds} seeds that none of them had`
        + ` before. The mean of ${confirmation.objective} over these decides; the score of the search`
        + " does not count, as it was chosen for being high or low.",
      ...doubts(confirmation),
    ].join(" ");
    const head = document.createElement("tr");
    const names = ["", "run", "mean", "95 % interval", "std", "seeds", "in the search", "scores"];
    for (const name of names) {
      const cell = document.createElement("th");
      cell.textContent = name;
      head.append(cell);
    }
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(
      ...ranking.map((one, index) => row(one, index + 1, confirmation)),
    );
  }

  sweeper.onChange((what) => {
    if (what === "all") draw();
  });
}
