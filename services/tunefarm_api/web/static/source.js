// Copies a kernel's source: all of it, which may be more than the page shows.
const say = (button, text) => {
  button.textContent = text;
  document.getElementById("announce").textContent = text;
};

async function whole(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.blob().then((blob) => new Blob([blob], { type: "text/plain" }));
}

// Where a page may not write to the clipboard (over plain HTTP), what is shown is selected, for the keyboard to copy.
function select(button) {
  const lines = button.closest(".source-body").querySelector(".lines");
  getSelection().selectAllChildren(lines);
  say(button, "Selected: copy it");
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy-url]");
  if (!button) return;
  if (!navigator.clipboard || !window.ClipboardItem) {
    select(button);
    return;
  }
  // The promise is handed over at once: some browsers allow it only in the very click.
  const item = new ClipboardItem({ "text/plain": whole(button.dataset.copyUrl) });
  navigator.clipboard.write([item]).then(() => say(button, "Copied"), () => select(button));
});
