"use strict";
// Fetches the page every two seconds and replaces its main part if it has changed. Ticked boxes, open details and
// scroll positions are kept.
let last = null;

async function refresh() {
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    const text = answer.ok ? await answer.text() : last;
    if (last !== null && text !== last) {
      replace(new DOMParser().parseFromString(text, "text/html"));
    }
    last = text;
  } catch {
    // The server has ended: the page stays as it is.
    return;
  }
  setTimeout(refresh, 2000);
}

function replace(page) {
  const ticked = [...document.querySelectorAll("input:checked")].map((input) => input.name + "=" + input.value);
  const open = [...document.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  const scrolled = [...document.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  document.querySelector("main").replaceWith(page.querySelector("main"));
  document.title = page.title;
  for (const input of document.querySelectorAll("input")) {
    if (ticked.includes(input.name + "=" + input.value)) input.checked = true;
  }
  for (const summary of document.querySelectorAll("details > summary")) {
    summary.parentElement.open = open.includes(summary.textContent);
  }
  document.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
}

refresh();
