// Submits the form of a sign-in link. A request from this page is same-site, so the session's strict cookie is sent.
document.querySelector("form[data-send]")?.requestSubmit();
