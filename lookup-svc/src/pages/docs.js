
// Adds search, copy buttons and keyboard access to scrollable blocks. Without it, the page is complete.
"use strict";

const main = document.querySelector("main");

const status = document.createElement("p");
status.className = "sr-only";
status.setAttribute("role", "status");
document.body.append(status);

async function copy(code) {
  // Browsers offer the clipboard only to pages that were loaded over HTTPS or from the same machine.
  if (navigator.clipboard) return navigator.clipboard.writeText(code.textContent);
  const selection = getSelection();
  selection.selectAllChildren(code);
  const copied = document.execCommand("copy");
  selection.removeAllRanges();
  if (!copied) throw new Error("the browser rejected the copy");
}

for (const block of main.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy: ${block.dataset.label}`);
  button.addEventListener("click", async () => {
    let result = "Copied";
    await copy(block.firstElementChild).catch(() => (result = "Press Ctrl+C"));
    if (result !== "Copied") getSelection().selectAllChildren(block.firstElementChild);
    button.textContent = result;
    status.textContent = `${result}: ${block.dataset.label}`;
    setTimeout(() => {
      button.textContent = "Copy";
      status.textContent = "";
    }, 2000);
  });
  const frame = document.createElement("div");
  frame.className = "code";
  block.replaceWith(frame);
  frame.append(block, button);
}

// A section is a heading with everything up to the next heading.
const sections = [];
for (const element of main.children) {
  if (/^H[123]$/.test(element.tagName)) sections.push({ level: Number(element.tagName[1]), elements: [] });
  sections.at(-1)?.elements.push(element);
}
for (const section of sections) section.text = textOf(...section.elements);
const sectionById = new Map();
for (const section of sections) {
  for (const element of section.elements) {
    for (const target of [element, ...element.querySelectorAll("[id]")]) {
      if (target.id) sectionById.set(target.id, section);
    }
  }
}

function textOf(...elements) {
  return elements.map((element) => element.textContent).join(" ").toLowerCase();
}

const query = document.getElementById("query");
const found = document.getElementById("found");
document.getElementById("search").hidden = false;

function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (text) => words.every((word) => text.includes(word));
  let parent;
  for (const section of sections) {
    section.shown = section.level === 1 || matches(section.text);
    if (section.level < 3) parent = section;
    // The heading above a section that was found stays, so that it is clear what it is about.
    else if (section.shown && parent) parent.headed = true;
  }
  for (const section of sections) {
    section.elements.forEach((element, index) => {
      element.hidden = !section.shown && !(section.headed && index === 0);
    });
    section.headed = false;
    for (const body of section.elements.flatMap((element) => [...element.querySelectorAll("tbody")])) {
      const rows = [...body.rows].map((row) => [row, matches(textOf(row))]);
      const any = rows.some(([, match]) => match);
      for (const [row, match] of rows) row.hidden = any && !match;
    }
  }
  for (const link of document.querySelectorAll(".contents a[href^='#']")) {
    const section = sectionById.get(link.hash.slice(1));
    link.hidden = words.length > 0 && !section?.shown;
  }
  const count = sections.filter((section) => section.level > 1 && section.shown).length;
  if (words.length === 0) found.textContent = "";
  else if (count === 0) found.textContent = "Nothing found.";
  else found.textContent = count === 1 ? "1 section found." : `${count} sections found.`;
  markScrollable();
}

function clearSearch() {
  query.value = "";
  search();
}

query.addEventListener("input", search);
query.addEventListener("keydown", (event) => {
  if (event.key === "Escape") clearSearch();
});
document.addEventListener("keydown", (event) => {
  const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key === "/" && plain && document.activeElement !== query) {
    event.preventDefault();
    query.focus();
  }
});
// A link to what the search hides ends the search.
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.closest("[hidden]")) {
    clearSearch();
    target.scrollIntoView();
  }
});

// Only a block that scrolls needs the keyboard focus: any other would be an unnecessary stop.
function markScrollable() {
  for (const block of main.querySelectorAll("pre, .wide")) {
    if (block.scrollWidth > block.clientWidth) {
      block.tabIndex = 0;
      block.setAttribute("role", "region");
      block.setAttribute("aria-label", block.dataset.label);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) block.removeAttribute(name);
    }
  }
}

new ResizeObserver(markScrollable).observe(main);
for (const details of main.querySelectorAll("details")) details.addEventListener("toggle", markScrollable);
markScrollable();
