// What lasts while a region is renewed: the focus, how far a table is scrolled, and a selection that somebody makes.
const kept = new Map();

// What a thing is called, so that it is found again in the region's next version.
function name(one) {
  const words = one.getAttribute("aria-label") || one.textContent.trim();
  return [one.tagName, one.id, one.getAttribute("href"), one.closest("form")?.getAttribute("action"), words].join("\n");
}

function selecting(region) {
  const selection = getSelection();
  return !selection.isCollapsed && region.contains(selection.anchorNode);
}

export function keep() {
  document.addEventListener("htmx:beforeSwap", (event) => {
    const region = event.detail.target;
    if (selecting(region)) {
      event.detail.shouldSwap = false;
      region.dataset.stale = "";
      return;
    }
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = [...region.querySelectorAll(".table-scroll")].map((one) => [name(one), one.scrollLeft]);
    kept.set(region.id, { focused: focused && name(focused), scrolled: scrolled.filter(([, left]) => left) });
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const region = event.detail.elt, before = kept.get(region.id);
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
  document.addEventListener("selectionchange", () => {
    if (!getSelection().isCollapsed) return;
    for (const region of document.querySelectorAll("[data-stale]")) {
      delete region.dataset.stale;
      region.dispatchEvent(new CustomEvent("live"));
    }
  });
}
