// Keeps the focus, the scroll position of tables, a field in use and the selection when a region is replaced.
const kept = new Map();

// A text that identifies an element in the region's next version, too.
function identity(element) {
  const words = element.getAttribute("aria-label") || element.textContent.trim();
  return [element.tagName, element.id, element.getAttribute("href"), element.closest("form")?.getAttribute("action"), words].join("\n");
}

function inUse(region) {
  const selection = getSelection(), active = document.activeElement;
  if (!selection.isCollapsed && region.contains(selection.anchorNode)) return true;
  return region.contains(active) && active.matches("input, select, textarea");
}

// Updates regions that were in use when their data changed.
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
    const scrolled = [...region.querySelectorAll(".table-scroll")].map((table) => [identity(table), table.scrollLeft]);
    kept.set(region.id, { focused: focused && identity(focused), scrolled: scrolled.filter(([, left]) => left) });
  });
  // Right after the swap, not after htmx has settled it: a key pressed in between would be lost.
  document.addEventListener("htmx:afterSwap", (event) => {
    const region = document.getElementById(event.detail.target.id), before = region && kept.get(region.id);
    if (!before) return;
    kept.delete(region.id);
    const find = (selector, wanted) => [...region.querySelectorAll(selector)].find((element) => identity(element) === wanted);
    for (const [wanted, left] of before.scrolled) {
      const table = find(".table-scroll", wanted);
      if (table) table.scrollLeft = left;
    }
    if (before.focused && document.activeElement === document.body) {
      find("a, button, summary, input, select, [tabindex]", before.focused)?.focus({ preventScroll: true });
    }
  });
  document.addEventListener("selectionchange", catchUp);
  document.addEventListener("focusout", () => setTimeout(catchUp));
}
