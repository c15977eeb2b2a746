"use strict";
/* Sections that can be folded. The page's address has the list of folded sections. On a phone, the
   large charts above the table are folded at first. */

{
  const { state } = sweeper;
  const isNarrow = matchMedia("(max-width: 760px)").matches;
  const USUAL = isNarrow ? ["pair-section", "slices-section", "parallel-section"] : [];
  const folded = () => state.folded || new Set(USUAL);
  const sections = [...document.querySelectorAll("main > section")];

  function fold(section, isFolded) {
    section.classList.toggle("folded", isFolded);
    section.querySelector(".fold").setAttribute("aria-expanded", String(!isFolded));
  }

  for (const section of sections) {
    const heading = section.querySelector("h2");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fold";
    const name = heading.firstChild.textContent.trim();
    button.setAttribute("aria-label", `fold ${name}`);
    button.addEventListener("click", () => {
      state.folded = folded();
      if (!state.folded.delete(section.id)) state.folded.add(section.id);
      fold(section, state.folded.has(section.id));
      sweeper.changed("open");
      sweeper.drawSoon();
    });
    heading.prepend(button);
  }

  sweeper.onChange((what) => {
    if (what === "all") for (const section of sections) fold(section, folded().has(section.id));
  });
}
