// A link to sign in: the page is ours by now, so its form may be sent.
document.querySelector("form[data-send]")?.requestSubmit();
