// Keeps the page live: asks for the same page again and swaps the parts that are marked. Without it, reload does the same.
"use strict";
(() => {
  const EVERY = 5000;
  const status = document.getElementById("live-status");
  if (!status || !document.querySelector("[data-live]")) return;
  const text = document.createElement("span");
  const button = document.createElement("button");
  button.type = "button";
  status.append(text, button);
  let paused = false;
  let timer = 0;
  let lost = false;

  function show() {
    text.textContent = paused ? "Paused" : lost ? "Connection lost, trying again" : "Live";
    button.textContent = paused ? "Go on" : "Pause";
  }

  function swap(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      // A part that somebody is in with the keyboard or has marked text in stays as it is until they leave it.
      const marked = window.getSelection();
      const busy = part.contains(document.activeElement) || (marked && !marked.isCollapsed && marked.containsNode(part, true));
      if (next && !busy && next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
    }
  }

  async function update() {
    clearTimeout(timer);
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
        if (!answer.ok) throw new Error(String(answer.status));
        swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
        lost = false;
      } catch {
        lost = true;
      }
      show();
    }
    timer = setTimeout(update, EVERY);
  }

  button.addEventListener("click", () => {
    paused = !paused;
    show();
    if (!paused) update();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
  show();
  timer = setTimeout(update, EVERY);
})();
