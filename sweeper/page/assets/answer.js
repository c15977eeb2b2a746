"use strict";
/* The answer of the study: the sentences that `sweeper/answer/wording.py` has written. */

{
  const section = document.getElementById("answer");
  const titles = {
    best: "Best", params: "Params", mattered: "What mattered", where: "Where", failed: "Failed",
    time: "Time and cost", next: "Next",
  };

  /* Return a link that opens the executed notebook of a trial. */
  sweeper.runLink = (run_id) => {
    const link = document.createElement("a");
    Object.assign(link, { href: sweeper.addressOf(run_id), textContent: run_id });
    link.addEventListener("click", (event) => {
      // The browser opens the link in another tab or window.
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      sweeper.open(run_id);
    });
    return link;
  };

  /* Return the run ids in the answer's data. Only these become links: other numbers in its sentences
     may look like run ids. */
  function runIds(data) {
    if (typeof data === "string") return sweeper.trial(data) ? [data] : [];
    return data === null || typeof data !== "object" ? [] : Object.values(data).flatMap(runIds);
  }

  /* Return a text as nodes: run ids become links, and commands in backticks become code. */
  function nodes(text, named) {
    return text.split(/(`[^`]*`|(?<![\w.=-])\d{4,}(?!\w|\.\d))/).map((part) => {
      if (part.startsWith("`")) {
        const code = document.createElement("code");
        code.textContent = part.slice(1, -1);
        return code;
      }
      return named.has(part) ? sweeper.runLink(part) : part.replace(/(\d) %/g, "$1\u00a0%");
    });
  }

  function draw() {
    const { sentences = [], ...data } = sweeper.data.insights || {};
    const named = new Set(runIds(data));
    section.hidden = sentences.length === 0;
    const list = document.createElement("dl");
    for (const { topic, text } of sentences) {
      const [term, description] = ["dt", "dd"].map((tag) => document.createElement(tag));
      term.textContent = titles[topic] || topic;
      description.append(...nodes(text, named));
      description.dataset.topic = topic;
      list.append(term, description);
    }
    section.replaceChildren(list);
  }

  sweeper.onChange((what) => {
    if (what === "all") draw();
  });
}
