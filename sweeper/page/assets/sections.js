"use strict";
/* Sections that can be folded. The address keeps which ones are. */

{
  const { state } = sweeper;
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
      if (state.folded.has(section.id)) state.folded.delete(section.id);
      else state.folded.add(section.id);
      fold(section, state.folded.has(section.id));
      sweeper.changed("open");
      sweeper.drawSoon();
    });
    heading.prepend(button);
  }

  sweeper.onChange((what) => {
    if (what === "all") for (const section of sections) fold(section, state.folded.has(section.id));
  });
}
