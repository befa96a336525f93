// Copies all of a kernel's source, which may be more than the page shows.
const say = (button, text) => {
  button.textContent = text;
  document.getElementById("announce").textContent = text;
};

async function sourceBlob(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.blob().then((blob) => new Blob([blob], { type: "text/plain" }));
}

// Over plain HTTP a page may not write to the clipboard: then this selects the text, to be copied by keyboard.
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
  // Some browsers allow writing only during the click, so the promise is passed without waiting for it.
  const item = new ClipboardItem({ "text/plain": sourceBlob(button.dataset.copyUrl) });
  navigator.clipboard.write([item]).then(() => say(button, "Copied"), () => select(button));
});
