// What lasts while a region is renewed: the focus, how far a table is scrolled, a field that somebody is in, and a selection.
const kept = new Map();

// What a thing is called, so that it is found again in the region's next version.
function name(one) {
  const words = one.getAttribute("aria-label") || one.textContent.trim();
  return [one.tagName, one.id, one.getAttribute("href"), one.closest("form")?.getAttribute("action"), words].join("\n");
}

function inUse(region) {
  const selection = getSelection(), active = document.activeElement;
  if (!selection.isCollapsed && region.contains(selection.anchorNode)) return true;
  return region.contains(active) && active.matches("input, select, textarea");
}

// Regions that were in use when there was news of them.
function catchUp() {
  for (const region of document.querySelectorAll("[data-stale]")) {
    if (inUse(region)) continue;
    delete region.dataset.stale;
    region.dispatchEvent(new CustomEvent("live"));
  }
}

export function keep() {
  document.addEventListener("htmx:beforeSwap", (event) => {
    const region = event.detail.target;
    if (inUse(region)) {
      event.detail.shouldSwap = false;
      region.dataset.stale = "";
      return;
    }
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = [...region.querySelectorAll(".table-scroll")].map((one) => [name(one), one.scrollLeft]);
    kept.set(region.id, { focused: focused && name(focused), scrolled: scrolled.filter(([, left]) => left) });
  });
  // At once, and not when it has settled: a key that is pressed between would be lost.
  document.addEventListener("htmx:afterSwap", (event) => {
    const region = document.getElementById(event.detail.target.id), before = region && kept.get(region.id);
    if (!before) return;
    kept.delete(region.id);
    const find = (selector, called) => [...region.querySelectorAll(selector)].find((one) => name(one) === called);
    for (const [called, left] of before.scrolled) {
      const table = find(".table-scroll", called);
      if (table) table.scrollLeft = left;
    }
    if (before.focused && document.activeElement === document.body) {
      find("a, button, summary, input, select, [tabindex]", before.focused)?.focus({ preventScroll: true });
    }
  });
  document.addEventListener("selectionchange", catchUp);
  document.addEventListener("focusout", () => setTimeout(catchUp));
}
